// SPDX-License-Identifier: MIT
// The clock that every I/O is timed by: the time stamp counter where it can be trusted, else
// CLOCK_MONOTONIC. Both give ticks; ns() turns differences of ticks into nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <string>

#include "pattern/random.hpp"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace sampleblk::workload {

class Clock {
  public:
    // CLOCK_MONOTONIC: a tick is a nanosecond.
    Clock() noexcept = default;

    // The TSC, calibrated and checked once per process: it must be invariant, agree with
    // CLOCK_MONOTONIC over two windows and be the same on every CPU. Falls back to CLOCK_MONOTONIC,
    // with why_not() saying why. Takes a few milliseconds the first time.
    [[nodiscard]] static const Clock& best();

    [[nodiscard]] bool uses_tsc() const noexcept { return tsc_; }
    // Why the TSC is not used; empty when it is.
    [[nodiscard]] const std::string& why_not() const noexcept { return why_not_; }

    [[nodiscard]] std::uint64_t ticks() const noexcept {
#if defined(__x86_64__)
        if (tsc_) {
            return __rdtsc();
        }
#endif
        return monotonic_ns();
    }

    [[nodiscard]] std::uint64_t ns(std::uint64_t tick_count) const noexcept {
        return static_cast<std::uint64_t>((static_cast<Wide>(tick_count) * multiplier_) >> shift);
    }

    [[nodiscard]] std::uint64_t ticks_for(std::uint64_t nanoseconds) const noexcept {
        const Wide ticks = (static_cast<Wide>(nanoseconds) << shift) / multiplier_;
        return ticks > UINT64_MAX ? UINT64_MAX : static_cast<std::uint64_t>(ticks);
    }

    // The tick that comes `nanoseconds` after another; UINT64_MAX, which means never, where 64 bits do not hold it.
    [[nodiscard]] std::uint64_t after(std::uint64_t tick, std::uint64_t nanoseconds) const noexcept {
        const std::uint64_t ticks = ticks_for(nanoseconds);
        return tick > UINT64_MAX - ticks ? UINT64_MAX : tick + ticks;
    }

    [[nodiscard]] static std::uint64_t monotonic_ns() noexcept {
        timespec now{};
        (void)::clock_gettime(CLOCK_MONOTONIC, &now);
        return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
    }

  private:
    static constexpr unsigned shift = 32;
    using Wide = Uint128;

    [[nodiscard]] static Clock measure();

    bool tsc_ = false;
    std::uint64_t multiplier_ = std::uint64_t{1} << shift;
    std::string why_not_ = "not asked for";
};

// Where a tick count and CLOCK_MONOTONIC met, to check at the end that they still agree.
struct ClockMark {
    std::uint64_t ticks = 0;
    std::uint64_t monotonic_ns = 0;
    std::uint64_t error_ticks = 0;  // how far apart the two may have been read
    [[nodiscard]] static ClockMark take(const Clock& clock) noexcept;
    // CLOCK_MONOTONIC at a tick, which is not after this one.
    [[nodiscard]] std::uint64_t ns_at(const Clock& clock, std::uint64_t tick) const noexcept {
        return monotonic_ns - clock.ns(ticks - std::min(tick, ticks));
    }
    // How far the clock has drifted from CLOCK_MONOTONIC since `start`, in parts per million: by what the two
    // readings cannot explain, which in an emulated guest take microseconds each.
    [[nodiscard]] double drift_ppm(const Clock& clock, const ClockMark& start) const noexcept;
};

}  // namespace sampleblk::workload
