// SPDX-License-Identifier: MIT
#include "corpus.hpp"
#include "fuzz_profile.hpp"

namespace sampleblk::fuzz {
namespace {

TEST(ProfileCorpus, RecordingsAreReadOrRefused) {
    EXPECT_GE(replay("perf_data", &perf_data), 10U);
}
TEST(ProfileCorpus, ProgramsAreReadOrPassedOver) {
    EXPECT_GE(replay("elf_symbols", &elf_symbols), 5U);
}
TEST(ProfileCorpus, FoldedTextIsReadOrRefused) {
    EXPECT_GE(replay("folded", &folded), 5U);
}

}  // namespace
}  // namespace sampleblk::fuzz
