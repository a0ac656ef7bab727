// SPDX-License-Identifier: GPL-2.0-only
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core.hpp"

namespace sampleblk_module {
namespace {

struct LatencyDestroy {
    void operator()(sblk_latency* latency) const { sblk_latency_destroy(latency); }
};
using Latency = std::unique_ptr<sblk_latency, LatencyDestroy>;

Latency make(u32 model, u64 a, u64 b, const std::vector<sampleblk_bin>& bins = {}) {
    Latency latency(sblk_latency_create(static_cast<u32>(bins.size())));
    latency->model = model;
    latency->a = a;
    latency->b = b;
    latency->seed = 42;
    std::copy(bins.begin(), bins.end(), latency->bins);
    return latency;
}

std::vector<double> draws(const Latency& latency, int n = 100'000) {
    EXPECT_EQ(sblk_latency_check(latency.get()), 0);
    std::vector<double> out;
    for (int i = 0; i < n; ++i) {
        out.push_back(static_cast<double>(sblk_latency_draw(latency.get())));
    }
    std::sort(out.begin(), out.end());
    return out;
}

double mean(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) {
        sum += value;
    }
    return sum / static_cast<double>(values.size());
}

double deviation(const std::vector<double>& values) {
    const double middle = mean(values);
    double sum = 0;
    for (const double value : values) {
        sum += (value - middle) * (value - middle);
    }
    return std::sqrt(sum / static_cast<double>(values.size()));
}

double quantile(const std::vector<double>& sorted, double q) {
    return sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1))];
}

TEST(Latency, ConstantAndUniform) {
    EXPECT_EQ(draws(make(SAMPLEBLK_LATENCY_CONSTANT, 5000, 0), 3), (std::vector<double>(3, 5000)));
    const std::vector<double> uniform = draws(make(SAMPLEBLK_LATENCY_UNIFORM, 1000, 3000));
    EXPECT_GE(uniform.front(), 1000);
    EXPECT_LE(uniform.back(), 3000);
    EXPECT_NEAR(mean(uniform), 2000, 10);
    EXPECT_NEAR(quantile(uniform, 0.25), 1500, 20);
}

TEST(Latency, NormalHasItsMomentsAndTails) {
    const std::vector<double> normal = draws(make(SAMPLEBLK_LATENCY_NORMAL, 100'000, 10'000));
    EXPECT_NEAR(mean(normal), 100'000, 150);
    EXPECT_NEAR(deviation(normal), 10'000, 150);
    EXPECT_NEAR(quantile(normal, 0.99), 100'000 + 2.3263 * 10'000, 500);
    EXPECT_NEAR(quantile(normal, 0.001), 100'000 - 3.0902 * 10'000, 1500);
    // Never below zero, however wide.
    EXPECT_EQ(draws(make(SAMPLEBLK_LATENCY_NORMAL, 10, 100'000)).front(), 0);
}

TEST(Latency, LognormalHasItsMedianAndSpread) {
    const std::vector<double> values = draws(make(SAMPLEBLK_LATENCY_LOGNORMAL, 80'000, 500));
    EXPECT_NEAR(quantile(values, 0.5), 80'000, 800);
    EXPECT_NEAR(quantile(values, 0.8413) / 80'000, std::exp(0.5), 0.03);
    EXPECT_NEAR(quantile(values, 0.1587) / 80'000, std::exp(-0.5), 0.02);
}

TEST(Latency, ExponentialAndPareto) {
    const std::vector<double> exponential = draws(make(SAMPLEBLK_LATENCY_EXPONENTIAL, 20'000, 1000));
    EXPECT_GE(exponential.front(), 1000);
    EXPECT_NEAR(mean(exponential), 21'000, 300);
    EXPECT_NEAR(quantile(exponential, 0.5), 1000 + 20'000 * std::log(2.0), 300);
    const std::vector<double> pareto = draws(make(SAMPLEBLK_LATENCY_PARETO, 10'000, 2500));
    EXPECT_GE(pareto.front(), 9999);
    EXPECT_NEAR(quantile(pareto, 0.5), 10'000 * std::pow(2.0, 1 / 2.5), 150);
    EXPECT_NEAR(quantile(pareto, 0.99) / 10'000, std::pow(100.0, 1 / 2.5), 0.3);
}

TEST(Latency, EmpiricalFollowsItsHistogram) {
    const std::vector<sampleblk_bin> bins = {{1000, 0}, {2000, 30}, {4000, 0}, {5000, 60}, {100'000, 10}};
    const std::vector<double> values = draws(make(SAMPLEBLK_LATENCY_EMPIRICAL, 0, 0, bins));
    const auto within = [&](double low, double high) {
        return static_cast<double>(std::count_if(values.begin(), values.end(),
                                                 [&](double value) { return value >= low && value < high; })) /
               static_cast<double>(values.size());
    };
    EXPECT_EQ(within(0, 1000), 0);
    EXPECT_NEAR(within(1000, 2000), 0.3, 0.01);
    EXPECT_EQ(within(2000, 4000), 0);
    EXPECT_NEAR(within(4000, 5000), 0.6, 0.01);
    EXPECT_NEAR(within(5000, 100'000), 0.1, 0.01);
    EXPECT_NEAR(within(1000, 1500), 0.15, 0.01);
}

TEST(Latency, EmpiricalFindsItsBinAmongMany) {
    std::vector<sampleblk_bin> bins;
    for (u64 i = 0; i < SAMPLEBLK_MAX_BINS; ++i) {
        bins.push_back({(i + 1) * 1000, i % 3 == 0 ? u64{0} : u64{1}});
    }
    const Latency latency = make(SAMPLEBLK_LATENCY_EMPIRICAL, 0, 0, bins);
    std::vector<u64> hits(bins.size());
    for (const double value : draws(latency, 300'000)) {
        hits[static_cast<std::size_t>(value) / 1000]++;
    }
    for (u64 i = 0; i < bins.size(); ++i) {
        ASSERT_EQ(hits[i] == 0, bins[i].count == 0) << i;
    }
    // One bin alone, and the first of two.
    EXPECT_LT(draws(make(SAMPLEBLK_LATENCY_EMPIRICAL, 0, 0, {{10, 1}}), 100).back(), 10);
    EXPECT_LT(draws(make(SAMPLEBLK_LATENCY_EMPIRICAL, 0, 0, {{10, 1}, {20, 0}}), 100).back(), 10);
}

TEST(Latency, TheSeedDecidesAndNothingExceedsTheBound) {
    EXPECT_EQ(draws(make(SAMPLEBLK_LATENCY_NORMAL, 1000, 100), 100), draws(make(SAMPLEBLK_LATENCY_NORMAL, 1000, 100), 100));
    const std::vector<double> wild = draws(make(SAMPLEBLK_LATENCY_PARETO, 1'000'000'000, 100));
    EXPECT_EQ(wild.back(), static_cast<double>(SAMPLEBLK_MAX_LATENCY_NS));
    const std::vector<double> wide = draws(make(SAMPLEBLK_LATENCY_LOGNORMAL, 1'000'000'000, 10'000));
    EXPECT_EQ(wide.back(), static_cast<double>(SAMPLEBLK_MAX_LATENCY_NS));
}

TEST(Latency, AnyMultipleOfNothingIsNothing) {
    EXPECT_EQ(draws(make(SAMPLEBLK_LATENCY_LOGNORMAL, 0, 10'000)).back(), 0);
    EXPECT_EQ(draws(make(SAMPLEBLK_LATENCY_PARETO, 0, 100)).back(), 0);
}

TEST(Latency, NeighbouringSeedsHaveNothingInCommon) {
    // As the operations of one call have.
    for (const u32 model : {SAMPLEBLK_LATENCY_UNIFORM, SAMPLEBLK_LATENCY_NORMAL, SAMPLEBLK_LATENCY_LOGNORMAL}) {
        const u64 b = model == SAMPLEBLK_LATENCY_UNIFORM ? 200'000 : 500;
        const Latency one = make(model, 100'000, b), other = make(model, 100'000, b);
        other->seed = one->seed + 1;
        std::vector<double> x, y, product;
        for (int i = 0; i < 20'000; ++i) {
            x.push_back(static_cast<double>(sblk_latency_draw(one.get())));
            y.push_back(static_cast<double>(sblk_latency_draw(other.get())));
            product.push_back(x.back() * y.back());
        }
        EXPECT_LT(std::abs(mean(product) - mean(x) * mean(y)), 0.04 * deviation(x) * deviation(y)) << model;
    }
}

TEST(Latency, WhatIsNoModelIsRefused) {
    const auto refused = [](const Latency& latency) { return sblk_latency_check(latency.get()) == -EINVAL; };
    EXPECT_TRUE(refused(make(99, 0, 0)));
    EXPECT_TRUE(refused(make(SAMPLEBLK_LATENCY_UNIFORM, 2, 1)));
    EXPECT_TRUE(refused(make(SAMPLEBLK_LATENCY_CONSTANT, SAMPLEBLK_MAX_LATENCY_NS + 1, 0)));
    EXPECT_TRUE(refused(make(SAMPLEBLK_LATENCY_PARETO, 1, 0)));
    EXPECT_TRUE(refused(make(SAMPLEBLK_LATENCY_EMPIRICAL, 0, 0)));
    EXPECT_TRUE(refused(make(SAMPLEBLK_LATENCY_EMPIRICAL, 0, 0, {{10, 1}, {10, 1}})));
    EXPECT_TRUE(refused(make(SAMPLEBLK_LATENCY_EMPIRICAL, 0, 0, {{10, ~u64{0}}, {20, 1}})));
    EXPECT_TRUE(refused(make(SAMPLEBLK_LATENCY_CONSTANT, 1, 0, {{10, 1}})));
}

TEST(Throttle, BandwidthAndIopsSpaceRequestsOut) {
    sblk_throttle throttle{};
    throttle.bytes_per_second = 1'000'000;
    EXPECT_EQ(sblk_throttle_pass(&throttle, 1000, 1000), 1'001'000U);
    EXPECT_EQ(sblk_throttle_pass(&throttle, 1000, 1000), 2'001'000U);
    // Idle time is not saved up.
    EXPECT_EQ(sblk_throttle_pass(&throttle, 50'000'000, 1000), 51'000'000U);
    sblk_throttle iops{};
    iops.iops = 1000;
    EXPECT_EQ(sblk_throttle_pass(&iops, 0, 0), 1'000'000U);
    EXPECT_EQ(sblk_throttle_pass(&iops, 0, 1 << 20), 2'000'000U);
}

__extension__ using u128 = unsigned __int128;

TEST(Throttle, ALimitIsNotExceededByRounding) {
    // A fraction that is cut off is a faster device: 0.04 % with 600,000 IOPS.
    sblk_throttle iops{};
    iops.iops = 600'000;
    EXPECT_EQ(sblk_throttle_pass(&iops, 0, 0), 1667U);
    sblk_throttle none{};
    none.iops = ~u64{0};
    EXPECT_EQ(sblk_throttle_pass(&none, 0, 0), 1U);
    std::mt19937_64 chance{1};
    for (int n = 0; n < 100'000; n++) {
        u64 bytes = 512 * (1 + (chance() >> (24 + n % 40)));
        sblk_throttle throttle{};
        throttle.bytes_per_second = 4096 + (chance() >> (n % 52));
        auto wanted = u128{bytes} * 1'000'000'000U;
        u64 cost = sblk_throttle_pass(&throttle, 0, bytes);
        auto rate = u128{throttle.bytes_per_second};
        if (wanted / rate > ~u64{0} >> 1)
            continue;  // centuries
        ASSERT_GE(cost * rate, wanted) << bytes << " at " << throttle.bytes_per_second;
        ASSERT_LT((cost - 1) * rate, wanted) << bytes << " at " << throttle.bytes_per_second;
    }
}

TEST(Throttle, TheLongestPeriodHasNoStallBeforeItsOffset) {
    sblk_throttle throttle{};
    throttle.stall_period_ns = ~u64{0};
    throttle.stall_ns = 200;
    throttle.stall_offset_ns = 5000;
    ASSERT_EQ(sblk_throttle_check(&throttle), 0);
    for (u64 when : {u64{0}, u64{4999}, u64{5200}, u64{1} << 62})
        EXPECT_EQ(sblk_throttle_stall(&throttle, when), when);
    EXPECT_EQ(sblk_throttle_stall(&throttle, 5000), 5200U);
    EXPECT_EQ(sblk_throttle_stall(&throttle, 5199), 5200U);
}

TEST(Throttle, AStallHoldsWhatWouldCompleteInIt) {
    sblk_throttle throttle{};
    throttle.stall_period_ns = 1000;
    throttle.stall_ns = 200;
    throttle.stall_offset_ns = 100;
    ASSERT_EQ(sblk_throttle_check(&throttle), 0);
    EXPECT_EQ(sblk_throttle_stall(&throttle, 99), 99U);
    EXPECT_EQ(sblk_throttle_stall(&throttle, 100), 300U);
    EXPECT_EQ(sblk_throttle_stall(&throttle, 5299), 5300U);
    EXPECT_EQ(sblk_throttle_stall(&throttle, 5300), 5300U);
    // The line knows nothing of it.
    EXPECT_EQ(sblk_throttle_pass(&throttle, 100, 0), 100U);
    throttle.stall_ns = 1000;
    EXPECT_EQ(sblk_throttle_check(&throttle), -EINVAL);
}

}  // namespace
}  // namespace sampleblk_module
