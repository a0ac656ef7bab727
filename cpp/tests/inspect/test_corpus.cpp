// SPDX-License-Identifier: MIT
#include "corpus.hpp"
#include "fuzz_inspect.hpp"

namespace sampleblk::fuzz {
namespace {

TEST(InspectCorpus, TypesAreReadOrRefused) {
    EXPECT_GE(replay("btf", &btf), 10U);
}
TEST(InspectCorpus, NamesAreReadOrPassedOver) {
    EXPECT_GE(replay("kernel_names", &kernel_names), 5U);
}

}  // namespace
}  // namespace sampleblk::fuzz
