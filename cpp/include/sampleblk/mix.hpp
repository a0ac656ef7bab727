// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace sampleblk {

// What splitmix64 adds to its state before each number, and how it makes the number of it: every bit of `value` changes
// half of the bits. Sebastiano Vigna, https://prng.di.unimi.it/splitmix64.c, public domain.
inline constexpr std::uint64_t mix_step = 0x9e3779b97f4a7c15ULL;

[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t value) noexcept {
    value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27U)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31U);
}

}  // namespace sampleblk
