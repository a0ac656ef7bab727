// SPDX-License-Identifier: MIT
// Every input that fuzzing found worth keeping, once more.
#include <gtest/gtest.h>

#include <filesystem>

#include "fuzz_trace.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk::fuzz {
namespace {

std::size_t replay(const std::string& name, int (*target)(const std::uint8_t*, std::size_t)) {
    std::size_t inputs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(SAMPLEBLK_SOURCE_DIR "/cpp/fuzz/corpus/" + name)) {
        const std::string text = read_file(entry.path().string());
        EXPECT_EQ(target(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()), 0) << entry.path();
        ++inputs;
    }
    return inputs;
}

TEST(TraceCorpus, FilesAreReadOrRefused) {
    EXPECT_GE(replay("trace_file", &trace_file), 10U);
}
TEST(TraceCorpus, PagesAreWalkedOrRefused) {
    EXPECT_GE(replay("trace_page", &trace_page), 5U);
}
TEST(TraceCorpus, FormatsAreParsedOrRefused) {
    EXPECT_GE(replay("event_format", &event_format), 10U);
}
TEST(TraceCorpus, TextsAreImportedOrRefused) {
    EXPECT_GE(replay("trace_text", &trace_text), 10U);
}

}  // namespace
}  // namespace sampleblk::fuzz
