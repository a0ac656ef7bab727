// SPDX-License-Identifier: MIT
#include "corpus.hpp"
#include "fuzz_profile.hpp"

namespace sampleblk::fuzz {
namespace {

TEST(ProfileCorpus, RecordingsAreReadOrRefused) {
    EXPECT_GE(replay("perf_data", &perf_data), 10U);
}
TEST(ProfileCorpus, RecordingsAreViewedOrRefused) {
    EXPECT_GE(replay("perf_data", &perf_data_views), 10U);
}
TEST(ProfileCorpus, RecordingsAreExportedOrRefused) {
    EXPECT_GE(replay("perf_data", &perf_data_exports), 10U);
}
TEST(ProfileCorpus, ProgramsAreReadOrPassedOver) {
    EXPECT_GE(replay("elf_symbols", &elf_symbols), 5U);
}
TEST(ProfileCorpus, FoldedTextIsReadOrRefused) {
    EXPECT_GE(replay("folded", &folded), 5U);
}

TEST(ProfileCorpus, TracesStacksAreReadOrRefused) {
    EXPECT_GE(replay("trace_stacks", &trace_stacks), 3U);
}
TEST(ProfileCorpus, RulesAreFollowedOrGivenUp) {
    EXPECT_GE(replay("unwind_rules", &unwind_rules), 3U);
}

}  // namespace
}  // namespace sampleblk::fuzz
