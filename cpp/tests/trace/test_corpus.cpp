// SPDX-License-Identifier: MIT
#include "corpus.hpp"
#include "fuzz_trace.hpp"

namespace sampleblk::fuzz {
namespace {

TEST(TraceCorpus, FilesAreReadOrRefused) {
    EXPECT_GE(replay("trace_file", &trace_file), 10U);
}
TEST(TraceCorpus, FilesAreViewedOrRefused) {
    EXPECT_GE(replay("trace_file", &trace_file_views), 10U);
}
TEST(TraceCorpus, ExportsOfFilesSayTheSame) {
    EXPECT_GE(replay("trace_file", &trace_file_exports), 10U);
}
TEST(TraceCorpus, PagesAreWalkedOrRefused) {
    EXPECT_GE(replay("trace_page", &trace_page), 5U);
}
TEST(TraceCorpus, FormatsAreParsedOrRefused) {
    EXPECT_GE(replay("event_format", &event_format), 10U);
}
TEST(TraceCorpus, RecordingsAreImportedOrRefused) {
    EXPECT_GE(replay("trace_import", &trace_import), 6U);
}
TEST(TraceCorpus, TextsAreImportedOrRefused) {
    EXPECT_GE(replay("trace_text", &trace_text), 10U);
}

}  // namespace
}  // namespace sampleblk::fuzz
