// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "sampleblk/error.hpp"

namespace sampleblk::fuzz {

// Whether `work` came to an answer; an error of ours is none, any other error is a finding.
template <typename Work>
bool answers(Work&& work) {
    try {
        work();
        return true;
    } catch (const FormatError&) {
    } catch (const UnsupportedError&) {
    } catch (const InputError&) {
    }
    return false;
}

inline std::vector<std::byte> copy_of(const std::uint8_t* data, std::size_t size) {
    std::vector<std::byte> bytes(size);
    if (size != 0) {
        std::memcpy(bytes.data(), data, size);
    }
    return bytes;
}

}  // namespace sampleblk::fuzz
