// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "pattern/distribution.hpp"
#include "pattern/random.hpp"
#include "pattern/random_map.hpp"

namespace sampleblk::workload {
namespace {

TEST(RandomMap, HandsOutEveryBlockOnce) {
    for (const std::uint64_t blocks : {1U, 63U, 64U, 65U, 4096U, 5000U, 300000U}) {
        RandomMap map(blocks);
        Random random(blocks);
        std::vector<bool> seen(blocks, false);
        for (std::uint64_t i = 0; i < blocks; ++i) {
            const auto block = map.next_free(random.below(blocks));
            ASSERT_TRUE(block && *block < blocks);
            ASSERT_FALSE(seen[*block]);
            seen[*block] = true;
            map.use(*block);
        }
        EXPECT_FALSE(map.next_free(0));
        map.clear();
        EXPECT_EQ(map.next_free(blocks - 1), blocks - 1);
    }
}

TEST(Random, IsReproducibleAndEven) {
    Random one(7);
    Random two(7);
    std::vector<std::uint64_t> counts(16, 0);
    constexpr std::uint64_t draws = 160'000;
    for (std::uint64_t i = 0; i < draws; ++i) {
        const std::uint64_t value = one.below(16);
        ASSERT_EQ(value, two.below(16));
        ++counts[value];
    }
    double chi_square = 0;
    for (const std::uint64_t count : counts) {
        const double off = static_cast<double>(count) - draws / 16.0;
        chi_square += off * off / (draws / 16.0);
    }
    EXPECT_LT(chi_square, 37.7);  // 15 degrees of freedom, p = 0.001
}

// The share of the favourite is 1 / zeta(n, theta).
TEST(SkewedChoice, ZipfFavoursByRank) {
    SkewedChoice zipf(Distribution::zipf, 1000, 1.2, -1, 42, true);
    std::vector<int> counts(1000, 0);
    constexpr int draws = 200'000;
    for (int i = 0; i < draws; ++i) {
        ++counts[zipf.next()];
    }
    double zeta = 0;
    for (int i = 1; i <= 1000; ++i) {
        zeta += std::pow(i, -1.2);
    }
    EXPECT_NEAR(counts[0], draws / zeta, 4 * std::sqrt(draws / zeta));
    EXPECT_NEAR(counts[1], draws / zeta * std::pow(2, -1.2), 4 * std::sqrt(draws / zeta));
}

TEST(SkewedChoice, StaysInRangeForEveryKind) {
    for (const Distribution kind : {Distribution::zipf, Distribution::pareto, Distribution::normal}) {
        for (const std::uint64_t blocks : {1U, 2U, 3U, 1000U}) {
            SkewedChoice choice(kind, blocks,
                                kind == Distribution::zipf     ? 0.8
                                : kind == Distribution::pareto ? 0.3
                                                               : 40,
                                0.5, blocks);
            for (int i = 0; i < 2000; ++i) {
                ASSERT_LT(choice.next(), blocks);
            }
        }
    }
}

}  // namespace
}  // namespace sampleblk::workload
