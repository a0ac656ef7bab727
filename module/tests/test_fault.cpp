// SPDX-License-Identifier: GPL-2.0-only
#include <gtest/gtest.h>

#include "core.hpp"

namespace sampleblk_module {
namespace {

struct FaultsDestroy {
    void operator()(sblk_faults* faults) const { sblk_faults_destroy(faults); }
};
using Faults = std::unique_ptr<sblk_faults, FaultsDestroy>;

constexpr u32 reads = 1U << SAMPLEBLK_OP_READ;
constexpr u32 writes = 1U << SAMPLEBLK_OP_WRITE;

sampleblk_rule rule(u32 ops, u32 action, u64 arg0 = 0) {
    sampleblk_rule made{};
    made.ops = ops;
    made.action = action;
    made.last_sector = ~u64{0};
    made.arg0 = arg0;
    return made;
}

Faults table(const std::vector<sampleblk_rule>& rules, u64 seed = 1) {
    Faults faults(sblk_faults_create(static_cast<u32>(rules.size()), seed));
    for (std::size_t i = 0; i < rules.size(); ++i) {
        EXPECT_EQ(sblk_fault_check(&rules[i], 1000), 0);
        faults->rules[i].rule = rules[i];
    }
    return faults;
}

// Which of `n` requests a rule acts on.
std::vector<int> fired(sblk_faults* faults, int n, u32 op = SAMPLEBLK_OP_WRITE, u64 first = 0, u64 count = 8) {
    std::vector<int> out;
    for (int i = 0; i < n; ++i) {
        u64 random = 0;
        if (sblk_fault_match(faults, op, first, count, &random) != nullptr) {
            out.push_back(i);
        }
    }
    return out;
}

TEST(Fault, SkipEveryAndCountPickTheirRequests) {
    sampleblk_rule made = rule(writes, SAMPLEBLK_FAULT_ERROR, EIO);
    made.skip = 3;
    made.every = 2;
    made.count = 2;
    const Faults faults = table({made});
    EXPECT_EQ(fired(faults.get(), 20), (std::vector<int>{4, 6}));
    EXPECT_EQ(atomic64_read(&faults->rules[0].hits), 2);
    EXPECT_EQ(atomic64_read(&faults->rules[0].matched), 20);
}

TEST(Fault, OnlyItsOperationsAndSectorsMatch) {
    sampleblk_rule made = rule(writes, SAMPLEBLK_FAULT_ERROR, EIO);
    made.first_sector = 100;
    made.last_sector = 107;
    const Faults faults = table({made});
    EXPECT_TRUE(fired(faults.get(), 3, SAMPLEBLK_OP_READ, 100).empty());
    EXPECT_TRUE(fired(faults.get(), 3, SAMPLEBLK_OP_WRITE, 92).empty());
    EXPECT_TRUE(fired(faults.get(), 3, SAMPLEBLK_OP_WRITE, 108).empty());
    EXPECT_EQ(fired(faults.get(), 1, SAMPLEBLK_OP_WRITE, 93).size(), 1U);
    EXPECT_EQ(fired(faults.get(), 1, SAMPLEBLK_OP_WRITE, 107).size(), 1U);
    EXPECT_EQ(atomic64_read(&faults->rules[0].matched), 2);
}

TEST(Fault, TheFirstThatFiresActsAlone) {
    sampleblk_rule once = rule(writes, SAMPLEBLK_FAULT_ERROR, EIO);
    once.count = 1;
    const Faults faults = table({once, rule(writes | reads, SAMPLEBLK_FAULT_DELAY, 5)});
    u64 random = 0;
    EXPECT_EQ(sblk_fault_match(faults.get(), SAMPLEBLK_OP_WRITE, 0, 1, &random)->action, SAMPLEBLK_FAULT_ERROR);
    EXPECT_EQ(sblk_fault_match(faults.get(), SAMPLEBLK_OP_WRITE, 0, 1, &random)->action, SAMPLEBLK_FAULT_DELAY);
    EXPECT_EQ(sblk_fault_match(faults.get(), SAMPLEBLK_OP_READ, 0, 1, &random)->action, SAMPLEBLK_FAULT_DELAY);
    EXPECT_EQ(sblk_fault_match(faults.get(), SAMPLEBLK_OP_FLUSH, 0, 0, &random), nullptr);
}

TEST(Fault, ProbabilityIsKeptAndTheSeedDecides) {
    sampleblk_rule made = rule(writes, SAMPLEBLK_FAULT_ERROR, EIO);
    made.probability = SAMPLEBLK_PROBABILITY_ONE / 4;
    const std::vector<int> one = fired(table({made}, 1).get(), 40'000);
    EXPECT_NEAR(static_cast<double>(one.size()), 10'000, 400);
    EXPECT_EQ(one, fired(table({made}, 1).get(), 40'000));
    EXPECT_NE(one, fired(table({made}, 2).get(), 40'000));
}

TEST(Fault, WhatNoRequestCanDoIsRefused) {
    const auto refused = [](const sampleblk_rule& made) { return sblk_fault_check(&made, 1000) == -EINVAL; };
    EXPECT_TRUE(refused(rule(0, SAMPLEBLK_FAULT_ERROR, EIO)));
    EXPECT_TRUE(refused(rule(1U << SAMPLEBLK_OPS, SAMPLEBLK_FAULT_ERROR, EIO)));
    EXPECT_TRUE(refused(rule(writes, SAMPLEBLK_FAULTS)));
    EXPECT_TRUE(refused(rule(writes, SAMPLEBLK_FAULT_ERROR, 0)));
    EXPECT_TRUE(refused(rule(reads, SAMPLEBLK_FAULT_LOST_WRITE)));
    EXPECT_TRUE(refused(rule(writes | reads, SAMPLEBLK_FAULT_TORN_WRITE, 1)));
    EXPECT_TRUE(refused(rule(writes, SAMPLEBLK_FAULT_MISDIRECTED_WRITE, 1000)));
    EXPECT_TRUE(refused(rule(writes, SAMPLEBLK_FAULT_CORRUPT, 65)));
    EXPECT_TRUE(refused(rule(writes, SAMPLEBLK_FAULT_DELAY, SAMPLEBLK_MAX_LATENCY_NS + 1)));
    sampleblk_rule made = rule(writes, SAMPLEBLK_FAULT_HANG);
    made.first_sector = 2;
    made.last_sector = 1;
    EXPECT_TRUE(refused(made));
    made = rule(writes, SAMPLEBLK_FAULT_HANG);
    made.hits = 1;
    EXPECT_TRUE(refused(made));
}

}  // namespace
}  // namespace sampleblk_module
