// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "pattern/clock.hpp"

namespace sampleblk::workload {
namespace {

constexpr std::uint64_t ms = 1'000'000;

TEST(ClockTest, WhatReadingTwoClocksCostsIsNoDrift) {
    const Clock clock;  // a tick is a nanosecond
    const ClockMark start{.ticks = 5'000, .monotonic_ns = 0, .error_ticks = 7'000};
    // 12 us of 8 ms, as in an emulated guest.
    const ClockMark end{.ticks = 8 * ms + 17'000, .monotonic_ns = 8 * ms, .error_ticks = 6'000};
    EXPECT_EQ(end.drift_ppm(clock, start), 0);
    const ClockMark sharp{.ticks = 8 * ms + 17'000, .monotonic_ns = 8 * ms, .error_ticks = 0};
    EXPECT_DOUBLE_EQ(sharp.drift_ppm(clock, start), 5e3 / 8e6 * 1e6);
    // A millisecond is no reading, either way; nor are the same 1500 ppm over a second.
    const ClockMark ahead{.ticks = 9 * ms, .monotonic_ns = 8 * ms, .error_ticks = 6'000};
    EXPECT_NEAR(ahead.drift_ppm(clock, start), 122'750, 1);
    const ClockMark behind{.ticks = 7 * ms, .monotonic_ns = 8 * ms, .error_ticks = 6'000};
    EXPECT_NEAR(behind.drift_ppm(clock, start), -124'000, 1);
    const ClockMark later{.ticks = 1'001'500'000, .monotonic_ns = 1000 * ms, .error_ticks = 6'000};
    EXPECT_GT(later.drift_ppm(clock, start), 1'400);
}

TEST(ClockTest, MarksOfOneClockAgree) {
    for (const Clock& clock : {Clock(), Clock::best()}) {
        const ClockMark start = ClockMark::take(clock);
        const ClockMark end = ClockMark::take(clock);
        EXPECT_GE(end.monotonic_ns, start.monotonic_ns);
        EXPECT_GE(end.ticks, start.ticks);
        EXPECT_LT(clock.ns(end.error_ticks), 100 * ms);
    }
}

}  // namespace
}  // namespace sampleblk::workload
