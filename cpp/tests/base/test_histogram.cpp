// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>

#include "sampleblk/histogram.hpp"

namespace sampleblk {
namespace {

TEST(HistogramGeometry, SmallValuesHaveABinEach) {
    for (std::uint64_t value = 0; value < 128; ++value) {
        EXPECT_EQ(HistogramGeometry::index_of(value), value);
        EXPECT_EQ(HistogramGeometry::value_of(static_cast<std::size_t>(value)), value);
    }
}

TEST(HistogramGeometry, BinsTileTheNumbersWithoutGapOrOverlap) {
    for (std::size_t i = 0; i + 1 < HistogramGeometry::bins; ++i) {
        const std::uint64_t start = HistogramGeometry::lower_bound(i);
        const std::uint64_t end = start + HistogramGeometry::width(i);
        EXPECT_EQ(HistogramGeometry::index_of(start), i);
        EXPECT_EQ(HistogramGeometry::index_of(end - 1), i);
        EXPECT_EQ(HistogramGeometry::lower_bound(i + 1), end);
    }
    EXPECT_EQ(HistogramGeometry::index_of(UINT64_MAX), HistogramGeometry::bins - 1);
}

TEST(HistogramGeometry, ErrsByLessThanOnePartIn128) {
    for (std::uint64_t value = 100; value < (std::uint64_t{1} << 33); value += value / 97 + 1) {
        const std::uint64_t shown = HistogramGeometry::value_of(HistogramGeometry::index_of(value));
        EXPECT_LE(std::abs(static_cast<double>(shown) - static_cast<double>(value)), static_cast<double>(value) / 128)
            << value;
    }
}

// Values that fio 3.33 printed in its JSON+ for its own bins.
TEST(HistogramGeometry, NamesBinsAsFioDoes) {
    for (const std::uint64_t shown : {470U, 482U, 502U, 852U, 1064U, 2320U, 14784U, 146432U, 3489792U, 8028160U}) {
        EXPECT_EQ(HistogramGeometry::value_of(HistogramGeometry::index_of(shown)), shown);
    }
}

TEST(LatencyStats, KeepsExtremesMeanAndDeviation) {
    LatencyStats stats;
    for (const std::uint64_t ns : {10U, 20U, 60U}) {
        stats.add(ns);
    }
    EXPECT_EQ(stats.count, 3U);
    EXPECT_EQ(stats.min_ns(), 10U);
    EXPECT_EQ(stats.max_ns, 60U);
    EXPECT_DOUBLE_EQ(stats.mean_ns(), 30.0);
    EXPECT_NEAR(stats.stddev_ns(), std::sqrt((400.0 + 100.0 + 900.0) / 2), 1e-9);
    EXPECT_EQ(stats.percentile_ns(1), 10U);
    EXPECT_EQ(stats.percentile_ns(50), 20U);
    EXPECT_EQ(stats.percentile_ns(100), 60U);
}

TEST(LatencyStats, EmptyOnesAreZeroAndVanishInAMerge) {
    LatencyStats all;
    EXPECT_EQ(all.min_ns(), 0U);
    EXPECT_EQ(all.percentile_ns(99), 0U);
    LatencyStats one;
    one.add(0);
    all.merge(one);
    all.merge(LatencyStats());
    EXPECT_EQ(all.count, 1U);
    EXPECT_EQ(all.min_ns(), 0U);
    LatencyStats other;
    other.add(500);
    other.merge(all);
    EXPECT_EQ(other.count, 2U);
    EXPECT_EQ(other.min_ns(), 0U);
    EXPECT_EQ(other.max_ns, 500U);
}

TEST(LatencyStats, CountsWhatLiesBelow) {
    LatencyStats stats;
    for (std::uint64_t ns = 0; ns < 4000; ++ns) {
        stats.add(ns);
    }
    EXPECT_EQ(stats.count_below(100), 100U);
    EXPECT_NEAR(static_cast<double>(stats.count_below(1000)), 1000, 8);
    EXPECT_EQ(stats.count_below(1'000'000), 4000U);
}

}  // namespace
}  // namespace sampleblk
