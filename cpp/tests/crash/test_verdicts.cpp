// SPDX-License-Identifier: MIT
// tests/crash/test_verdicts.py has e2fsck's reads; here are those of one that reads what no checker does.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <span>
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

TEST(CrashVerdicts, WhatOneLearnsOthersKnow) {
    const VerdictBoard board;
    Verdicts one(board, "checker -n");
    Verdicts other(board, "checker -n");
    Verdicts of_another(board, "checker");
    const std::string disk = disk_of("a23456789");
    EXPECT_FALSE(other.is_sound(disk));
    one.learn(disk, std::vector<Read>{{0, 1}, {3, 2}});
    const std::size_t told = board.from(0).size();
    EXPECT_TRUE(other.is_sound(disk_of("a..45....")));
    EXPECT_FALSE(other.is_sound(disk_of("a..46....")));
    EXPECT_FALSE(of_another.is_sound(disk_of("a..45....")));
    EXPECT_EQ(other.size(), 1U);
    // What was heard is not told again, nor what was found out once more.
    other.learn(disk_of("a23456789"), std::vector<Read>{{0, 1}, {3, 2}});
    EXPECT_EQ(board.from(0).size(), told);
    const std::string another = disk_of("b23456789");
    const pid_t child = ::fork();
    if (child == 0) {
        other.learn(another, std::vector<Read>{{0, 1}, {8, 1}});
        ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    EXPECT_GT(board.from(0).size(), told);
    EXPECT_TRUE(one.is_sound(another));
}

TEST(CrashVerdicts, NothingIsHeardAfterARecordThatIsNotWhole) {
    const std::string disk = disk_of("abc");
    const VerdictBoard whole;
    Verdicts writer(whole, "checker");
    writer.learn(disk, std::vector<Read>{{0, 1}, {2, 1}});
    std::vector<std::byte> record = whole.from(0);
    for (std::size_t length = 0; length < record.size(); ++length) {
        const VerdictBoard board;
        board.append(std::span(record).first(length));
        Verdicts verdicts(board, "checker");
        EXPECT_FALSE(verdicts.is_sound(disk)) << length;
        // The rest of it, as one who is slow to write it.
        board.append(std::span(record).subspan(length));
        EXPECT_TRUE(verdicts.is_sound(disk)) << length;
    }
    for (std::size_t at = 0; at < record.size(); ++at) {
        record[at] ^= std::byte{1};
        const VerdictBoard board;
        board.append(record);
        board.append(whole.from(0));
        Verdicts verdicts(board, "checker");
        EXPECT_FALSE(verdicts.is_sound(disk)) << at;
        record[at] ^= std::byte{1};
    }
}

TEST(CrashVerdicts, ABoardThatIsFullTakesNoMore) {
    const std::vector<std::byte> much(32U << 20U);
    const VerdictBoard board;
    board.append(much);
    board.append(much);
    board.append(std::span(much).first(1));
    EXPECT_EQ(board.from(0).size(), 64U << 20U);
    EXPECT_TRUE(board.from(65U << 20U).empty());
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
