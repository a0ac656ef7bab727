// SPDX-License-Identifier: GPL-2.0-only
#include <gtest/gtest.h>

#include "core.hpp"

namespace sampleblk_module {
namespace {

struct FaultsDestroy {
    void operator()(sblk_faults* faults) const { sblk_faults_destroy(faults); }
};
using Faults = std::unique_ptr<sblk_faults, FaultsDestroy>;

constexpr u64 start_ns = 5'000'000'000;
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
    Faults faults(sblk_faults_create(static_cast<u32>(rules.size()), seed, start_ns));
    for (std::size_t i = 0; i < rules.size(); ++i) {
        EXPECT_EQ(sblk_fault_set(faults.get(), static_cast<u32>(i), &rules[i], 1000), 0);
    }
    return faults;
}

sblk_fault acts(sblk_faults* faults, u32 op, u64 sector, u64 sectors, u64 now_ns = start_ns) {
    const sblk_fault_request request{op, sector, sectors, now_ns};
    sblk_fault fault{};
    const bool acts = sblk_fault_match(faults, &request, &fault);
    EXPECT_EQ(acts, fault.action != SAMPLEBLK_FAULTS);
    return fault;
}

// Which of `n` requests a rule acts on.
std::vector<int> fired(sblk_faults* faults, int n, u32 op = SAMPLEBLK_OP_WRITE, u64 first = 0, u64 count = 8) {
    std::vector<int> out;
    for (int i = 0; i < n; ++i) {
        if (acts(faults, op, first, count).action != SAMPLEBLK_FAULTS) {
            out.push_back(i);
        }
    }
    return out;
}

TEST(Fault, AChanceInAMillionIsOneForTheFirstMatchToo) {
    // Of seed 0, the default, and of any rule; each match is looked at with all tables that are small seeds'.
    sampleblk_rule made = rule(writes, SAMPLEBLK_FAULT_ERROR, EIO);
    made.probability = SAMPLEBLK_PROBABILITY_ONE / 1'000'000;
    for (u64 seed = 0; seed < 64; ++seed) {
        for (const u64 from : {seed, ~seed}) {
            EXPECT_EQ(fired(table({made}, from).get(), 10), std::vector<int>{}) << from;
        }
    }
    EXPECT_EQ(fired(table({rule(reads, SAMPLEBLK_FAULT_HOLD), made}, ~u64{0}).get(), 10), std::vector<int>{});
}

TEST(Fault, SkipEveryAndCountPickTheirRequests) {
    sampleblk_rule made = rule(writes, SAMPLEBLK_FAULT_ERROR, EIO);
    made.skip = 3;
    made.every = 2;
    made.count = 2;
    const Faults faults = table({made});
    EXPECT_EQ(fired(faults.get(), 20), (std::vector<int>{4, 6}));
    EXPECT_EQ(atomic64_read(&faults->rules[0]->hits), 2);
    EXPECT_EQ(atomic64_read(&faults->rules[0]->matched), 20);
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
    EXPECT_EQ(atomic64_read(&faults->rules[0]->matched), 2);
}

TEST(Fault, TheFirstThatFiresActsAlone) {
    sampleblk_rule once = rule(writes, SAMPLEBLK_FAULT_ERROR, EIO);
    once.count = 1;
    const Faults faults = table({once, rule(writes | reads, SAMPLEBLK_FAULT_DELAY, 5)});
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_WRITE, 0, 1).action, u32{SAMPLEBLK_FAULT_ERROR});
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_WRITE, 0, 1).action, u32{SAMPLEBLK_FAULT_DELAY});
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_READ, 0, 1).action, u32{SAMPLEBLK_FAULT_DELAY});
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_FLUSH, 0, 0).action, u32{SAMPLEBLK_FAULTS});
}

TEST(Fault, ProbabilityIsKeptAndTheSeedDecides) {
    sampleblk_rule made = rule(writes, SAMPLEBLK_FAULT_ERROR, EIO);
    made.probability = SAMPLEBLK_PROBABILITY_ONE / 4;
    const std::vector<int> one = fired(table({made}, 1).get(), 40'000);
    EXPECT_NEAR(static_cast<double>(one.size()), 10'000, 400);
    EXPECT_EQ(one, fired(table({made}, 1).get(), 40'000));
    EXPECT_NE(one, fired(table({made}, 2).get(), 40'000));
}

TEST(Fault, RulesThatAreThereStayAsTheyAreWhenOthersAreAdded) {
    sampleblk_rule bad = rule(reads | writes, SAMPLEBLK_FAULT_BAD_SECTOR);
    bad.last_sector = 15;
    sampleblk_rule chance = rule(writes, SAMPLEBLK_FAULT_ERROR, EIO);
    chance.first_sector = 500;
    chance.probability = SAMPLEBLK_PROBABILITY_ONE / 3;
    Faults faults = table({bad, chance}, 7);
    const Faults whole = table({bad, chance}, 7);
    acts(faults.get(), SAMPLEBLK_OP_WRITE, 0, 8);
    acts(faults.get(), SAMPLEBLK_OP_WRITE, 500, 8);
    acts(whole.get(), SAMPLEBLK_OP_WRITE, 500, 8);

    Faults more(sblk_faults_create(3, 9, start_ns + 100));
    sblk_faults_borrow(more.get(), faults.get());
    sampleblk_rule window = rule(reads, SAMPLEBLK_FAULT_ERROR, EIO);
    window.first_sector = 100;
    window.up_ns = 1000;
    window.down_ns = 1000;
    ASSERT_EQ(sblk_fault_set(more.get(), 2, &window, 1000), 0);
    sblk_faults_replace(more.get(), faults.get());
    faults = std::move(more);

    EXPECT_EQ(sblk_fault_get(faults.get(), 0).arg1, 8U) << "repaired";
    EXPECT_EQ(sblk_fault_get(faults.get(), 1).matched, 1U);
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_READ, 0, 8).action, u32{SAMPLEBLK_FAULTS});
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_READ, 8, 8).action, u32{SAMPLEBLK_FAULT_BAD_SECTOR});
    EXPECT_EQ(fired(faults.get(), 100, SAMPLEBLK_OP_WRITE, 500), fired(whole.get(), 100, SAMPLEBLK_OP_WRITE, 500))
        << "their chances are those of their own seed";
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_READ, 100, 8, start_ns + 1050).action, u32{SAMPLEBLK_FAULTS});
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_READ, 100, 8, start_ns + 1100).action, u32{SAMPLEBLK_FAULT_ERROR});
}

TEST(Fault, BadSectorsGoOnWhereTheDeviceGrows) {
    sampleblk_rule open = rule(reads | writes, SAMPLEBLK_FAULT_BAD_SECTOR);
    open.first_sector = 990;
    open.last_sector = ~u64{0};
    sampleblk_rule closed = open;
    closed.last_sector = 1099;
    const Faults faults = table({closed, open});
    acts(faults.get(), SAMPLEBLK_OP_WRITE, 992, 4);
    const auto is_bad = [&](u64 sector) {
        return acts(faults.get(), SAMPLEBLK_OP_READ, sector, 1).action == SAMPLEBLK_FAULT_BAD_SECTOR;
    };
    EXPECT_FALSE(is_bad(1000));
    ASSERT_EQ(sblk_faults_grow(faults.get(), 100'000), 0);
    EXPECT_TRUE(is_bad(991) && is_bad(996) && is_bad(1000) && is_bad(99'999));
    EXPECT_FALSE(is_bad(989) || is_bad(992) || is_bad(995) || is_bad(100'000));
    EXPECT_EQ(sblk_fault_get(faults.get(), 1).arg1, 4U);
    // It had shrunk, and the rules are of nothing that is there.
    EXPECT_EQ(sblk_faults_grow(faults.get(), 900), 0);
    EXPECT_EQ(sblk_faults_grow(faults.get(), u64{1} << 25), -EINVAL);
    EXPECT_TRUE(is_bad(1000));
    user_fail_after(0);
    EXPECT_EQ(sblk_faults_grow(faults.get(), 1 << 20), -ENOMEM);
    user_fail_after(-1);
    EXPECT_TRUE(is_bad(1000));
}

TEST(Fault, RulesThatWereNotAddedLeaveTheOthersWithTheirTable) {
    const Faults faults = table({rule(writes, SAMPLEBLK_FAULT_ERROR, EIO)});
    {
        const Faults more(sblk_faults_create(2, 1, start_ns));
        sblk_faults_borrow(more.get(), faults.get());
        const sampleblk_rule wrong = rule(0, SAMPLEBLK_FAULT_ERROR, EIO);
        EXPECT_EQ(sblk_fault_set(more.get(), 1, &wrong, 1000), -EINVAL);
    }
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_WRITE, 0, 8).action, u32{SAMPLEBLK_FAULT_ERROR});
}

TEST(Fault, WhatNoRequestCanDoIsRefused) {
    const auto refused = [](const sampleblk_rule& made) {
        const Faults faults(sblk_faults_create(1, 1, start_ns));
        return sblk_fault_set(faults.get(), 0, &made, 1000) == -EINVAL;
    };
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
    made = rule(writes, SAMPLEBLK_FAULT_HANG);
    made.up_ns = 1;
    EXPECT_TRUE(refused(made)) << "never awake";
    made.down_ns = ~u64{0};
    EXPECT_TRUE(refused(made)) << "a period that wraps";
    EXPECT_TRUE(refused(rule(writes, SAMPLEBLK_FAULT_HOLD, 1)));
    EXPECT_TRUE(refused(rule(reads, SAMPLEBLK_FAULT_NOT_DURABLE)));
    made = rule(reads, SAMPLEBLK_FAULT_SET_BYTE, 0);
    made.arg1 = 256;
    EXPECT_TRUE(refused(made));
    EXPECT_TRUE(refused(rule(writes, SAMPLEBLK_FAULT_CORRUPT_TAG))) << "no bit";
    made = rule(writes | reads, SAMPLEBLK_FAULT_CORRUPT_TAG, SAMPLEBLK_TAG_REF);
    made.arg1 = 0x10000;
    EXPECT_FALSE(refused(made));
    made.arg0 = SAMPLEBLK_TAG_APP;
    EXPECT_TRUE(refused(made)) << "more bits than it has";
    made.arg0 = SAMPLEBLK_TAG_REF + 1;
    EXPECT_TRUE(refused(made));
    EXPECT_TRUE(refused(rule(writes, SAMPLEBLK_FAULT_BAD_SECTOR)));
    EXPECT_TRUE(refused(rule(reads, SAMPLEBLK_FAULT_BAD_SECTOR, SAMPLEBLK_BAD_ALL + 1)));
    made = rule(reads, SAMPLEBLK_FAULT_BAD_SECTOR);
    made.first_sector = 1000;
    EXPECT_TRUE(refused(made)) << "beyond the device";
    const Faults faults(sblk_faults_create(1, 1, start_ns));
    made.first_sector = 0;
    EXPECT_EQ(sblk_fault_set(faults.get(), 0, &made, (u64{1} << 24) + 1), -EINVAL) << "too many";
}

TEST(Fault, AWindowOpensAndClosesFromWhenTheTableWasSet) {
    sampleblk_rule made = rule(writes, SAMPLEBLK_FAULT_ERROR, EIO);
    made.up_ns = 1000;
    made.down_ns = 200;
    const Faults faults = table({made});
    const auto at = [&](u64 ns) {
        return acts(faults.get(), SAMPLEBLK_OP_WRITE, 0, 1, start_ns + ns).action != SAMPLEBLK_FAULTS;
    };
    EXPECT_FALSE(at(0));
    EXPECT_FALSE(at(999));
    EXPECT_TRUE(at(1000));
    EXPECT_TRUE(at(1199));
    EXPECT_FALSE(at(1200));
    EXPECT_TRUE(at(1200 * 1'000'000 + 1100));
    // One that was on its way to the table when it was set, at any distance.
    for (u64 ns = 1; ns <= 1200; ++ns) {
        EXPECT_FALSE(at(-ns)) << ns;
    }
    // What came while it slept is no match.
    EXPECT_EQ(sblk_fault_get(faults.get(), 0).matched, 3U);
}

TEST(Fault, AByteIsSetOnlyWhereTheRequestHasIt) {
    sampleblk_rule made = rule(writes, SAMPLEBLK_FAULT_SET_BYTE, 600);
    made.arg1 = 0x42;
    const Faults faults = table({made});
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_WRITE, 0, 1).action, u32{SAMPLEBLK_FAULTS});
    const sblk_fault fault = acts(faults.get(), SAMPLEBLK_OP_WRITE, 0, 2);
    EXPECT_EQ(fault.action, u32{SAMPLEBLK_FAULT_SET_BYTE});
    EXPECT_EQ(fault.arg0, 600U);
    EXPECT_EQ(fault.arg1, 0x42U);
}

constexpr u32 zeroes = 1U << SAMPLEBLK_OP_WRITE_ZEROES;

TEST(Fault, ABadSectorIsRepairedByARewrite) {
    sampleblk_rule made = rule(reads | writes | zeroes, SAMPLEBLK_FAULT_BAD_SECTOR);
    made.first_sector = 100;
    made.last_sector = 109;
    const Faults faults = table({made});
    const auto read = [&](u64 sector, u64 sectors) { return acts(faults.get(), SAMPLEBLK_OP_READ, sector, sectors); };
    EXPECT_EQ(read(92, 8).action, u32{SAMPLEBLK_FAULTS});
    // What lies before the first bad sector is read.
    EXPECT_EQ(read(96, 8).action, u32{SAMPLEBLK_FAULT_BAD_SECTOR});
    EXPECT_EQ(read(96, 8).arg0, 4U);
    EXPECT_EQ(read(105, 1).arg0, 0U);
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_WRITE, 96, 8).action, u32{SAMPLEBLK_FAULTS});
    EXPECT_EQ(read(96, 8).action, u32{SAMPLEBLK_FAULTS});
    EXPECT_EQ(read(96, 9).arg0, 8U);
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_WRITE_ZEROES, 104, 100).action, u32{SAMPLEBLK_FAULTS});
    EXPECT_EQ(read(0, 1000).action, u32{SAMPLEBLK_FAULTS});
    EXPECT_EQ(sblk_fault_get(faults.get(), 0).arg1, 10U);
    EXPECT_EQ(sblk_fault_get(faults.get(), 0).hits, 4U);
}

TEST(Fault, ABadSectorOfTheLastKindFailsWritesAndOneOfTheFirstFailsOnce) {
    sampleblk_rule writes_fail = rule(reads | writes, SAMPLEBLK_FAULT_BAD_SECTOR, SAMPLEBLK_BAD_WRITES);
    writes_fail.first_sector = writes_fail.last_sector = 10;
    sampleblk_rule once = rule(reads, SAMPLEBLK_FAULT_BAD_SECTOR, SAMPLEBLK_BAD_ONCE);
    once.first_sector = 20;
    once.last_sector = 29;
    const Faults faults = table({writes_fail, once});
    for (int i = 0; i < 2; ++i) {
        const sblk_fault fault = acts(faults.get(), SAMPLEBLK_OP_WRITE, 8, 8);
        EXPECT_EQ(fault.action, u32{SAMPLEBLK_FAULT_BAD_SECTOR});
        EXPECT_EQ(fault.arg0, 2U);
    }
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_READ, 16, 8).arg0, 4U);
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_READ, 16, 8).action, u32{SAMPLEBLK_FAULTS});
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_READ, 16, 16).arg0, 8U) << "the others are bad still";
}

TEST(Fault, AWriteThatIsLostOrFailsRepairsNothing) {
    sampleblk_rule once = rule(writes, SAMPLEBLK_FAULT_LOST_WRITE);
    once.count = 1;
    sampleblk_rule bad = rule(reads | writes, SAMPLEBLK_FAULT_BAD_SECTOR);
    bad.last_sector = 7;
    const Faults faults = table({once, bad});
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_WRITE, 0, 8).action, u32{SAMPLEBLK_FAULT_LOST_WRITE});
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_READ, 0, 8).action, u32{SAMPLEBLK_FAULT_BAD_SECTOR});
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_WRITE, 0, 8).action, u32{SAMPLEBLK_FAULTS});
    EXPECT_EQ(acts(faults.get(), SAMPLEBLK_OP_READ, 0, 8).action, u32{SAMPLEBLK_FAULTS});
}

}  // namespace
}  // namespace sampleblk_module
