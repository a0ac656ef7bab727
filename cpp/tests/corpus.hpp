// SPDX-License-Identifier: MIT
// Every input that fuzzing found worth keeping, once more.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "sampleblk/fd.hpp"

namespace sampleblk::fuzz {

// Gives the target each file of cpp/fuzz/corpus/`name`; returns how many there are.
inline std::size_t replay(const std::string& name, int (*target)(const std::uint8_t*, std::size_t)) {
    std::size_t inputs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(SAMPLEBLK_SOURCE_DIR "/cpp/fuzz/corpus/" + name)) {
        const std::string text = read_file(entry.path().string());
        EXPECT_EQ(target(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()), 0) << entry.path();
        ++inputs;
    }
    return inputs;
}

}  // namespace sampleblk::fuzz
