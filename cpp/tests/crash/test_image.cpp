// SPDX-License-Identifier: MIT
// tests/crash has the states' contents, against plain Python; here is what Python cannot see.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "sampleblk/crash/replay.hpp"
#include "sampleblk/crash/walk.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "scratch.hpp"

namespace sampleblk::crash {
namespace {

// A log of dm-log-writes of one-sector writes at these sectors, all of one byte.
std::string log_of(const std::vector<std::pair<std::uint64_t, char>>& writes) {
    std::string log(sector_bytes, '\0');
    const std::uint64_t super[]{0x6a736677736872ULL, 1, writes.size(), sector_bytes};
    std::memcpy(log.data(), super, sizeof(super));
    for (const auto& [sector, byte] : writes) {
        std::string head(sector_bytes, '\0');
        const std::uint64_t entry[]{sector, 1, 0, 0};
        std::memcpy(head.data(), entry, sizeof(entry));
        log += head + std::string(sector_bytes, byte);
    }
    const std::string path = fuzz::ScratchFolder::one().file("log");
    std::ofstream(path, std::ios::binary) << log;
    return path;
}

TEST(CrashImage, OnlyWhatDiffersIsWritten) {
    const Log log = Log::read(log_of({{0, 'a'}, {1, 'b'}, {2, 'c'}, {0, 'd'}}));
    Image image(log, fuzz::ScratchFolder::one().file("image"), {}, 4 * sector_bytes);
    image.take({.submitted = 3, .lost = {}, .torn = {}});
    EXPECT_EQ(image.write(), 3U);
    EXPECT_EQ(image.write(), 0U);
    image.take({.submitted = 4, .lost = {}, .torn = {}});
    EXPECT_EQ(image.write(), 1U);
    image.take({.submitted = 4, .lost = {1, 3}, .torn = {}});
    EXPECT_EQ(image.write(), 2U);
    // There and back between two writes: nothing to do.
    image.take({.submitted = 0, .lost = {}, .torn = {}});
    image.take({.submitted = 4, .lost = {1, 3}, .torn = {}});
    EXPECT_EQ(image.write(), 0U);
}

// A write of several sectors, as parts of the entries that it has become in a journal.
TEST(CrashReplayed, PartsOfAWriteAreThoseOfItsEntries) {
    std::string log(sector_bytes, '\0');
    const std::uint64_t super[]{0x6a736677736872ULL, 1, 2, sector_bytes};
    std::memcpy(log.data(), super, sizeof(super));
    for (const std::uint64_t sectors : {8U, 1U}) {
        std::string head(sector_bytes, '\0');
        const std::uint64_t entry[]{0, sectors, 0, 0};
        std::memcpy(head.data(), entry, sizeof(entry));
        log += head + std::string(sectors * sector_bytes, 'x');
    }
    const std::string path = fuzz::ScratchFolder::one().file("log");
    std::ofstream(path, std::ios::binary) << log;
    const Log read = Log::read(path);
    Image image(read, {}, {}, 8 * sector_bytes);
    const Replayed replayed({{{11, 3}, {12, 4}, {14, 1}}, {{20, 1}}});
    using Parts = std::vector<std::vector<std::uint64_t>>;
    const auto parts = [&](const State& state) {
        image.take(state);
        Parts found;
        for (const sampleblk_part& part : replayed.parts(image)) {
            found.push_back({part.sequence, part.first, part.sectors});
        }
        return found;
    };
    EXPECT_EQ(parts({.submitted = 0, .lost = {}, .torn = {}}), Parts{});
    EXPECT_EQ(parts({.submitted = 2, .lost = {}, .torn = {}}), (Parts{{11, 0, 3}, {12, 0, 4}, {14, 0, 1}, {20, 0, 1}}));
    EXPECT_EQ(parts({.submitted = 2, .lost = {0}, .torn = {}}), (Parts{{20, 0, 1}}));
    EXPECT_EQ(parts({.submitted = 1, .lost = {}, .torn = {{0, 2, 4}}}), (Parts{{11, 2, 1}, {12, 0, 3}}));
    EXPECT_EQ(parts({.submitted = 1, .lost = {}, .torn = {{0, 4, 1}}}), (Parts{{12, 1, 1}}));
    EXPECT_THROW((void)Replayed({}).parts(image), std::out_of_range);
}

TEST(CrashImage, EqualContentsHaveEqualDigestsWhateverLedToThem) {
    const Log log = Log::read(log_of({{0, 'a'}, {1, 'a'}, {0, 'a'}, {0, '\0'}}));
    Image image(log, fuzz::ScratchFolder::one().file("image"), {}, 2 * sector_bytes);
    const auto digest = [&](const State& state) {
        image.take(state);
        return image.digest();
    };
    const Digest nothing = digest({.submitted = 0, .lost = {}, .torn = {}});
    const Digest first = digest({.submitted = 1, .lost = {}, .torn = {}});
    const Digest second = digest({.submitted = 2, .lost = {0}, .torn = {}});
    EXPECT_NE(first, second);  // the same bytes elsewhere
    EXPECT_EQ(digest({.submitted = 3, .lost = {0, 1}, .torn = {}}), first);
    EXPECT_EQ(digest({.submitted = 4, .lost = {1}, .torn = {}}), nothing);
}

// A write to the first sector, and then a discard of so many.
Log log_with_discard(std::uint64_t sectors) {
    std::string text = read_file(log_of({{0, 'a'}}));
    std::string head(sector_bytes, '\0');
    const std::uint64_t discard[]{0, sectors, 4, 0};
    std::memcpy(head.data(), discard, sizeof(discard));
    text += head;
    const std::uint64_t entries = 2;
    std::memcpy(text.data() + 16, &entries, sizeof(entries));
    const std::string path = fuzz::ScratchFolder::one().file("discard");
    std::ofstream(path, std::ios::binary) << text;
    return Log::read(path);
}

// With a search through the discard's sectors for each of them this takes hours.
TEST(CrashImage, ATornWriteOfManySectorsIsBuiltInOnePass) {
    constexpr std::uint64_t sectors = 1U << 17;
    const Log log = log_with_discard(sectors);
    const std::string base = fuzz::ScratchFolder::one().file("base");
    std::ofstream(base, std::ios::binary) << std::string(sectors / 2 * sector_bytes, 'x');
    Image image(log, fuzz::ScratchFolder::one().file("image"), base, sectors * sector_bytes);
    image.take({.submitted = 2, .lost = {}, .torn = {{.write = 1, .first = 1, .sectors = sectors - 1}}});
    EXPECT_EQ(image.write(),
              sectors / 2);  // what was written first in its first, the discard in all others of the base
    image.take({.submitted = 2, .lost = {}, .torn = {{.write = 1, .first = 0, .sectors = sectors / 2}}});
    (void)image.write();
    EXPECT_EQ(read_file(image.path()), std::string(sectors * sector_bytes, '\0'));
    const Digest torn = image.digest();
    image.take({.submitted = 2, .lost = {}, .torn = {}});
    EXPECT_EQ(image.digest(), torn);  // the other half was zeros before
    image.take({.submitted = 2, .lost = {}, .torn = {{.write = 1, .first = 2, .sectors = 1}}});
    EXPECT_EQ(image.write(), sectors / 2 - 1);
    std::string wanted = read_file(base) + std::string(sectors / 2 * sector_bytes, '\0');
    wanted.replace(0, sector_bytes, sector_bytes, 'a').replace(2 * sector_bytes, sector_bytes, sector_bytes, '\0');
    EXPECT_EQ(read_file(image.path()), wanted);
}

// As mkfs begins: by the sector that takes more memory than there is.
TEST(CrashImage, ADiscardOfAWholeDiskCostsWhatIsWrittenToIt) {
    constexpr std::uint64_t sectors = std::uint64_t{1} << 40U;
    const Log log = log_with_discard(sectors);
    Image image(log, {}, {}, sectors * sector_bytes);
    const Digest nothing = image.digest();
    image.take({.submitted = 1, .lost = {}, .torn = {}});
    const Digest written = image.digest();
    EXPECT_NE(written, nothing);
    image.take({.submitted = 2, .lost = {}, .torn = {{.write = 1, .first = 1, .sectors = sectors - 1}}});
    EXPECT_EQ(image.digest(), written);
    image.take({.submitted = 2, .lost = {}, .torn = {}});
    EXPECT_EQ(image.digest(), nothing);
}

TEST(CrashImage, ABaseThatGetsShorterIsAnError) {
    const Log log = Log::read(log_of({{0, 'a'}, {1, 'b'}}));
    const std::string base = fuzz::ScratchFolder::one().file("base");
    constexpr std::size_t pages = 4;
    std::ofstream(base, std::ios::binary) << std::string(pages * 4096, 'x');
    Image image(log, fuzz::ScratchFolder::one().file("image"), base, pages * 4096);
    image.take({.submitted = 2, .lost = {}, .torn = {}});
    EXPECT_EQ(image.write(), 2U);
    EXPECT_EQ(image.restore(), 0U);
    std::filesystem::resize_file(base, 4096);
    EXPECT_THROW(image.restore(), FormatError);
    std::filesystem::resize_file(base, 0);
    image.take({.submitted = 1, .lost = {}, .torn = {}});
    EXPECT_THROW(image.write(), FormatError);
}

TEST(CrashWalk, LooksAtNoMoreThanItIsTold) {
    const Log log = Log::read(log_of({{0, 'a'}, {0, 'a'}, {0, 'a'}, {0, 'b'}}));
    Image image(log, fuzz::ScratchFolder::one().file("image"), {}, sector_bytes);
    Walk walk(log, {.kind = Model::Kind::prefix}, image);
    State state;
    EXPECT_TRUE(walk.next(state, 1));   // empty
    EXPECT_TRUE(walk.next(state, 1));   // a
    EXPECT_FALSE(walk.next(state, 1));  // a again
    EXPECT_FALSE(walk.at_end());
    EXPECT_TRUE(walk.next(state, 10));  // b
    EXPECT_FALSE(walk.next(state, 10));
    EXPECT_TRUE(walk.at_end());
    EXPECT_EQ(walk.looked_at(), 5U);
    EXPECT_EQ(walk.repeated(), 2U);
}

// A log of dm-log-writes of a write, a mark, and another write: with a flush before the mark, or without.
std::string marked_log(bool flushed) {
    const std::uint64_t entries[][4]{{0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 8, 4}, {1, 1, 0, 0}};
    std::string log(sector_bytes, '\0');
    const std::uint64_t super[]{0x6a736677736872ULL, 1, flushed ? 4U : 3U, sector_bytes};
    std::memcpy(log.data(), super, sizeof(super));
    for (const auto& entry : entries) {
        if (entry[2] == 1 && !flushed) {
            continue;
        }
        std::string head(sector_bytes, '\0');
        std::memcpy(head.data(), entry, sizeof(entry));
        std::memcpy(head.data() + sizeof(entry), "mark", entry[3]);
        log += head + std::string(entry[1] * sector_bytes, 'x');
    }
    const std::string path = fuzz::ScratchFolder::one().file("log");
    std::ofstream(path, std::ios::binary) << log;
    return path;
}

TEST(CrashStates, AMarkCountsAsLongAsACrashMayLeaveTheState) {
    const State nothing;
    const Log volatile_log = Log::read(marked_log(false));
    ASSERT_EQ(volatile_log.marks().size(), 1U);
    EXPECT_EQ(marks_set(volatile_log, nothing), 1U);
    EXPECT_EQ(at_last_mark(volatile_log, nothing), (State{.submitted = 1, .lost = {0}, .torn = {}}));
    const Log log = Log::read(marked_log(true));
    EXPECT_EQ(marks_set(log, nothing), 0U);
    EXPECT_EQ(at_last_mark(log, nothing), nothing);
    const State first{.submitted = 1, .lost = {}, .torn = {}};
    EXPECT_EQ(marks_set(log, first), 1U);
    EXPECT_EQ(at_last_mark(log, first), first);
    EXPECT_THROW((void)marks_set(log, {.submitted = 3, .lost = {}, .torn = {}}), InputError);
    EXPECT_THROW((void)marks_set(log, {.submitted = 2, .lost = {0}, .torn = {}}), InputError);
    EXPECT_THROW((void)at_last_mark(log, {.submitted = 1, .lost = {7}, .torn = {}}), InputError);
}

TEST(CrashWalk, BringsUnlikeStatesFirst) {
    const Log log = Log::read(log_of({{0, 'a'}, {0, 'b'}, {0, 'c'}, {0, 'd'}}));
    Image image(log, fuzz::ScratchFolder::one().file("image"), {}, sector_bytes);
    Walk walk(log, {.kind = Model::Kind::prefix}, image, {7, 7, 7, 2});
    State state;
    std::vector<std::size_t> order;
    while (walk.next(state, 100)) {
        order.push_back(state.submitted);
    }
    // Nothing, the first of each kind, then one more, then the rest.
    EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 4, 2, 3}));
    EXPECT_TRUE(walk.at_end());
    EXPECT_EQ(walk.looked_at(), 5U);
    EXPECT_EQ(walk.repeated(), 0U);
    EXPECT_THROW(Walk(log, {.kind = Model::Kind::prefix}, image, {7}), InputError);
}

}  // namespace
}  // namespace sampleblk::crash
