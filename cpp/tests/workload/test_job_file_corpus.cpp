// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <filesystem>

#include "fuzz_job_file.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk::workload {
namespace {

// Every input that fuzzing found worth keeping, once more.
TEST(JobFileCorpus, IsReadOrRefused) {
    std::size_t inputs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(SAMPLEBLK_SOURCE_DIR "/cpp/fuzz/corpus/job_file")) {
        const std::string text = read_file(entry.path().string());
        fuzz_job_file(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
        ++inputs;
    }
    EXPECT_GE(inputs, 20U);
}

}  // namespace
}  // namespace sampleblk::workload
