// SPDX-License-Identifier: MIT
// xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021): fast,
// equidistributed and reproducible from a seed.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "sampleblk/mix.hpp"

namespace sampleblk::workload {

__extension__ using Uint128 = unsigned __int128;

// splitmix64, to spread a seed over the state and to derive seeds from seeds.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t value) noexcept {
    return mix(value + mix_step);
}

class Random {
  public:
    explicit Random(std::uint64_t seed = 0) noexcept {
        for (std::uint64_t& word : state_) {
            seed = mix64(seed);
            word = seed;
        }
    }

    [[nodiscard]] std::uint64_t next() noexcept {
        const std::uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
        const std::uint64_t shifted = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= shifted;
        state_[3] = std::rotl(state_[3], 45);
        return result;
    }

    // 0 to count - 1, by a multiplication instead of a division (Lemire 2019); the bias is below
    // count / 2^64.
    [[nodiscard]] std::uint64_t below(std::uint64_t count) noexcept {
        return static_cast<std::uint64_t>((static_cast<Uint128>(next()) * count) >> 64);
    }

    // Whether an event of `percent` in a hundred happens.
    [[nodiscard]] bool percent(std::uint32_t percent) noexcept { return below(100) < percent; }

    // [0, 1) with 53 bits.
    [[nodiscard]] double unit() noexcept { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  private:
    std::array<std::uint64_t, 4> state_{};
};

// What a job's random choices are for: each has a stream of its own, so that one does not shift
// another.
enum class Stream : std::uint8_t {
    offset,
    direction,
    block_size,
    sequential_share,
    file,
    file_size,
    buffer,
    dedupe,
    zone,
    poisson,
    hipri,
    start_delay,
};

[[nodiscard]] inline Random stream(std::uint64_t job_seed, Stream purpose, std::uint64_t which = 0) noexcept {
    return Random(mix64(job_seed ^ mix64(static_cast<std::uint64_t>(purpose) + 1) ^ mix64(which + 0x1000)));
}

}  // namespace sampleblk::workload
