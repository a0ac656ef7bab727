// SPDX-License-Identifier: MIT
// Every input that fuzzing found worth keeping, once more.
#include <gtest/gtest.h>

#include <filesystem>

#include "fuzz_inspect.hpp"
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

TEST(InspectCorpus, TypesAreReadOrRefused) {
    EXPECT_GE(replay("btf", &btf), 10U);
}
TEST(InspectCorpus, NamesAreReadOrPassedOver) {
    EXPECT_GE(replay("kernel_names", &kernel_names), 5U);
}

}  // namespace
}  // namespace sampleblk::fuzz
