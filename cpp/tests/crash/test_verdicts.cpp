// SPDX-License-Identifier: MIT
// tests/crash/test_verdicts.py has e2fsck's reads; here are those of one that reads what no checker does.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "sampleblk/crash/verdicts.hpp"
#include "sampleblk/error.hpp"
#include "scratch.hpp"

namespace sampleblk::crash {
namespace {

std::string disk_of(const std::string& contents) {
    const std::string path = fuzz::ScratchFolder::one().file("disk");
    std::ofstream(path, std::ios::binary) << contents;
    return path;
}

TEST(CrashVerdicts, WhatComesNextDependsOnWhatWasRead) {
    Verdicts verdicts;
    // The first byte says where it goes on.
    verdicts.learn(disk_of("a23456789"), std::vector<Read>{{0, 1}, {3, 2}});
    verdicts.learn(disk_of("b23456789"), std::vector<Read>{{0, 1}, {6, 1}, {2, 1}});
    EXPECT_EQ(verdicts.size(), 2U);
    EXPECT_TRUE(verdicts.is_sound(disk_of("a..45....")));
    EXPECT_FALSE(verdicts.is_sound(disk_of("a..4.....")));
    EXPECT_FALSE(verdicts.is_sound(disk_of("a.3...7..")));
    EXPECT_TRUE(verdicts.is_sound(disk_of("b.3...7..")));
    EXPECT_FALSE(verdicts.is_sound(disk_of("b..45....")));
    EXPECT_FALSE(verdicts.is_sound(disk_of("c..45....")));
    verdicts.learn(disk_of("b23456789"), std::vector<Read>{{0, 1}, {6, 1}, {2, 1}});
    EXPECT_EQ(verdicts.size(), 2U);
}

TEST(CrashVerdicts, ThreadsMayReadInAnotherOrder) {
    Verdicts verdicts;
    const std::string disk = disk_of("a2345");
    verdicts.learn(disk, std::vector<Read>{{0, 1}, {4, 1}, {2, 1}});
    verdicts.learn(disk_of("a2x45"), std::vector<Read>{{0, 1}, {2, 1}, {4, 1}});
    EXPECT_EQ(verdicts.size(), 2U);
    EXPECT_TRUE(verdicts.is_sound(disk_of("a.3.5")));
    EXPECT_TRUE(verdicts.is_sound(disk_of("a.x.5")));
    EXPECT_FALSE(verdicts.is_sound(disk_of("a.3.6")));
    EXPECT_FALSE(verdicts.is_sound(disk_of("a.y.5")));
    // No more ways than it is worth to try.
    for (char at = '5'; at < '9'; ++at) {
        verdicts.learn(disk_of("a2345......"), std::vector<Read>{{0, 1}, {static_cast<std::uint64_t>(at - '0'), 1}});
    }
    EXPECT_EQ(verdicts.size(), 4U);
}

TEST(CrashVerdicts, TheEndOfADiskCounts) {
    Verdicts verdicts;
    verdicts.learn(disk_of(std::string(1000, 'x')), std::vector<Read>{{990, 100}, {5000, 10}});
    EXPECT_TRUE(verdicts.is_sound(disk_of(std::string(1000, 'x'))));
    EXPECT_FALSE(verdicts.is_sound(disk_of(std::string(999, 'x'))));
    EXPECT_FALSE(verdicts.is_sound(disk_of(std::string(1001, 'x'))));
    EXPECT_FALSE(verdicts.is_sound(disk_of(std::string(1000, 'x') + std::string(4100, 'x'))));
}

TEST(CrashVerdicts, LongReadsAndThoseThatGoOnAreTheSame) {
    const std::string disk(300'000, 'x');
    Verdicts verdicts;
    verdicts.learn(disk_of(disk), std::vector<Read>{{0, 300'000}});
    EXPECT_TRUE(verdicts.is_sound(disk_of(disk)));
    for (const std::size_t at : {0UL, 65'535UL, 65'536UL, 299'999UL}) {
        std::string changed = disk;
        changed[at] = 'y';
        EXPECT_FALSE(verdicts.is_sound(disk_of(changed))) << at;
    }
    Verdicts parts;
    std::vector<Read> reads;
    for (std::uint64_t at = 0; at < 300'000; at += 1000) {
        reads.push_back({at, 1000});
    }
    parts.learn(disk_of(disk), reads);
    EXPECT_TRUE(parts.is_sound(disk_of(disk)));
    EXPECT_FALSE(parts.is_sound(disk_of(disk.substr(0, 299'999))));
}

TEST(CrashVerdicts, NothingIsKnownOfNothing) {
    Verdicts verdicts;
    verdicts.learn(disk_of("x"), {});
    verdicts.learn(disk_of("x"), std::vector<Read>{{0, 0}});
    EXPECT_EQ(verdicts.size(), 0U);
    EXPECT_FALSE(verdicts.is_sound(disk_of("x")));
    verdicts.learn(disk_of("x"), std::vector<Read>{{0, 1}});
    EXPECT_THROW((void)verdicts.is_sound(fuzz::ScratchFolder::one().file("none")), SystemError);
}

}  // namespace
}  // namespace sampleblk::crash
