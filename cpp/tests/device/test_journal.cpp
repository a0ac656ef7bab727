// SPDX-License-Identifier: MIT
// Journals made by hand, as the driver lays them out.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <utility>

#include "sampleblk/device_journal.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk {
namespace {

class Builder {
  public:
    Builder() : bytes_(128) { header_.magic = SAMPLEBLK_JOURNAL_MAGIC; }

    void write(std::uint64_t sector, std::uint64_t sectors, char fill, std::uint32_t flags = 0) {
        std::vector<std::byte> redo = chunk(sector, sectors, SAMPLEBLK_CHUNK_DATA);
        redo.insert(redo.end(), sectors * 512, static_cast<std::byte>(fill));
        append(SAMPLEBLK_OP_WRITE, flags, sector, sectors, redo);
    }
    void discard(std::uint64_t sector, std::uint64_t sectors) {
        append(SAMPLEBLK_OP_DISCARD, 0, sector, sectors, chunk(sector, sectors, SAMPLEBLK_CHUNK_ZERO));
    }
    void flush() { append(SAMPLEBLK_OP_FLUSH, 0, 0, 0, {}); }
    // Of the newest entry; without it each is completed before the next is submitted.
    void orders(std::uint64_t submit, std::uint64_t complete, std::uint32_t flags = 0) {
        sampleblk_journal_entry entry{};
        std::memcpy(&entry, bytes_.data() + newest_, sizeof(entry));
        entry.submit_order = submit;
        entry.complete_order = complete;
        entry.flags |= flags;
        std::memcpy(bytes_.data() + newest_, &entry, sizeof(entry));
    }
    void mark(std::string_view text) {
        const auto* begin = reinterpret_cast<const std::byte*>(text.data());
        append(SAMPLEBLK_JOURNAL_MARK, 0, 0, 0, {begin, begin + text.size()});
    }
    std::vector<std::byte> done() {
        header_.first = 128;
        header_.head = bytes_.size();
        header_.entries = sequence_;
        std::memcpy(bytes_.data(), &header_, sizeof(header_));
        return bytes_;
    }

  private:
    static std::vector<std::byte> chunk(std::uint64_t sector, std::uint64_t sectors, std::uint32_t kind) {
        const sampleblk_chunk chunk{sector, sectors, kind, 0};
        const auto* begin = reinterpret_cast<const std::byte*>(&chunk);
        return {begin, begin + sizeof(chunk)};
    }
    void append(std::uint32_t type, std::uint32_t flags, std::uint64_t sector, std::uint64_t sectors,
                std::vector<std::byte> redo) {
        sampleblk_journal_entry entry{};
        entry.sequence = ++sequence_;
        entry.submit_order = 2 * sequence_ - 1;
        entry.complete_order = 2 * sequence_;
        entry.type = type;
        entry.flags = flags;
        entry.sector = sector;
        entry.sectors = sectors;
        entry.redo_bytes = static_cast<std::uint32_t>(redo.size());
        redo.resize((redo.size() + 7) / 8 * 8);
        entry.bytes = static_cast<std::uint32_t>(sizeof(entry) + redo.size());
        entry.previous_bytes = std::exchange(previous_bytes_, entry.bytes);
        newest_ = bytes_.size();
        const auto* begin = reinterpret_cast<const std::byte*>(&entry);
        bytes_.insert(bytes_.end(), begin, begin + sizeof(entry));
        bytes_.insert(bytes_.end(), redo.begin(), redo.end());
    }

    sampleblk_journal_header header_{};
    std::vector<std::byte> bytes_;
    std::uint64_t sequence_ = 0;
    std::uint32_t previous_bytes_ = 0;
    std::size_t newest_ = 0;
};

Builder story() {
    Builder builder;
    builder.write(8, 8, 'a');
    builder.mark("one");
    builder.write(12, 2, 'b', SAMPLEBLK_JOURNAL_FUA);
    builder.flush();
    builder.discard(8, 2);
    return builder;
}

TEST(Journal, TheTableTellsTheStory) {
    const DeviceJournal journal(story().done());
    ASSERT_EQ(journal.size(), 5U);
    const Table table = journal.table();
    EXPECT_EQ(table.rows(), 5U);
    EXPECT_EQ(table.find("sector")->values<std::uint64_t>()[2], 12U);
    EXPECT_EQ(table.find("fua")->values<std::uint8_t>()[2], 1);
    EXPECT_EQ(table.find("type")->pool()->at(table.find("type")->values<std::int32_t>()[3]), "flush");
    EXPECT_EQ(table.find("mark")->pool()->at(table.find("mark")->values<std::int32_t>()[1]), "one");
}

TEST(Journal, ReplayGivesEachMoment) {
    const DeviceJournal journal(story().done());
    const auto sector = [&](std::uint64_t sequence, std::uint64_t number) {
        return static_cast<char>(journal.replay(sequence, number, 1)[0]);
    };
    EXPECT_EQ(sector(0, 8), 0);
    EXPECT_EQ(sector(1, 8), 'a');
    EXPECT_EQ(sector(2, 12), 'a');
    EXPECT_EQ(sector(3, 12), 'b');
    EXPECT_EQ(sector(3, 14), 'a');
    EXPECT_EQ(sector(4, 9), 'a');
    EXPECT_EQ(sector(5, 9), 0);
    EXPECT_EQ(sector(5, 10), 'a');
}

std::string exported(const DeviceJournal& journal, std::uint64_t entries) {
    const std::string path = std::filesystem::temp_directory_path() / ("sampleblk-log-" + std::to_string(::getpid()));
    EXPECT_EQ(journal.export_log_writes(path), entries);
    std::string log = read_file(path);
    std::filesystem::remove(path);
    return log;
}

std::uint64_t number(const std::string& log, std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, log.data() + at, sizeof(value));
    return value;
}

TEST(Journal, LogWritesHasItsLayout) {
    const std::string log = exported(DeviceJournal(story().done()), 5);
    // superblock, mark, entry and 8 sectors, entry and 2 sectors over them with FUA, flush, discard
    ASSERT_EQ(log.size(), 512U * (1 + 1 + 1 + 8 + 1 + 2 + 1 + 1));
    EXPECT_EQ(number(log, 0), 0x6a736677736872ULL);
    EXPECT_EQ(number(log, 16), 5U);
    EXPECT_EQ(number(log, 512 + 16), 8U);
    EXPECT_EQ(number(log, 512 + 24), 3U);
    EXPECT_EQ(log.substr(512 + 32, 3), "one");
    EXPECT_EQ(number(log, 512 * 2), 8U);
    EXPECT_EQ(number(log, 512 * 2 + 8), 8U);
    EXPECT_EQ(log[512 * 3], 'a');
    EXPECT_EQ(number(log, 512 * 11), 12U);
    EXPECT_EQ(number(log, 512 * 11 + 8), 2U);
    EXPECT_EQ(number(log, 512 * 11 + 16), 2U);
    EXPECT_EQ(log[512 * 12], 'b');
    EXPECT_EQ(number(log, 512 * 14 + 16), 1U);
    EXPECT_EQ(number(log, 512 * 15 + 16), 4U);
}

// Writes of one sector as the character that they are filled with, flushes as F.
std::string order_in_log(Builder builder, std::uint64_t entries) {
    const std::string log = exported(DeviceJournal(builder.done()), entries);
    std::string order;
    for (std::size_t at = 512; at < log.size(); at += 512) {
        if ((number(log, at + 16) & 1U) != 0) {
            order += 'F';
        } else {
            at += 512;
            order += log[at];
        }
    }
    return order;
}

// Documentation/admin-guide/device-mapper/log-writes.rst: W1,W2,W3,C3,C2,Wflush,C1,Cflush is W3,W2,flush,W1.
TEST(Journal, LogWritesHasTheOrderOfItsDocumentation) {
    Builder builder;
    builder.write(0, 1, '1');
    builder.orders(1, 7);
    builder.write(1, 1, '2');
    builder.orders(2, 5);
    builder.write(2, 1, '3');
    builder.orders(3, 4);
    builder.flush();
    builder.orders(6, 8);
    EXPECT_EQ(order_in_log(builder, 4), "32F1");
}

TEST(Journal, LogWritesKeepsWhatAFailedFlushDidNotFlush) {
    Builder builder;
    builder.write(0, 1, '1');
    builder.orders(1, 2);
    builder.flush();
    builder.orders(3, 6, SAMPLEBLK_JOURNAL_FAILED);
    builder.write(1, 1, '2');
    builder.orders(4, 5);
    builder.write(2, 1, 'f', SAMPLEBLK_JOURNAL_FUA);
    builder.orders(7, 8);
    builder.flush();
    builder.orders(9, 13);
    builder.write(3, 1, '3');
    builder.orders(10, 11);
    builder.write(4, 1, '4');
    builder.orders(12, 0);
    EXPECT_EQ(order_in_log(builder, 6), "f12F34");
}

// Whatever became durable first: a replay of all ends with what the device holds.
TEST(Journal, LogWritesHasTheLowerOneOfTwoWritesFirst) {
    Builder durable;
    durable.write(0, 1, '1');
    durable.write(1, 1, '2');
    durable.write(0, 1, 'f', SAMPLEBLK_JOURNAL_FUA);
    durable.flush();
    EXPECT_EQ(order_in_log(durable, 4), "1f2F");
    Builder on_its_way;
    on_its_way.write(0, 1, '1');
    on_its_way.orders(1, 0);
    on_its_way.write(1, 1, '2');
    on_its_way.orders(2, 8);
    on_its_way.write(0, 1, '3');
    on_its_way.orders(3, 4);
    on_its_way.flush();
    on_its_way.orders(5, 7);
    on_its_way.write(1, 1, '4');
    on_its_way.orders(6, 9);
    EXPECT_EQ(order_in_log(on_its_way, 5), "13F24");
}

TEST(Journal, AMarkThatClaimsSectorsIsStillText) {
    Builder builder;
    builder.mark(std::string(64, '\x7f'));
    std::vector<std::byte> bytes = builder.done();
    const std::uint64_t sectors = 8;
    std::memcpy(bytes.data() + 128 + offsetof(sampleblk_journal_entry, sectors), &sectors, sizeof(sectors));
    EXPECT_EQ(DeviceJournal(bytes).replay(UINT64_MAX, 0, 8), std::vector<std::byte>(8 * 512));
}

// An exported mark shares one sector with its head.
TEST(Journal, AMarkThatTheDriverDoesNotTakeIsRefused) {
    Builder longest;
    longest.mark(std::string(SAMPLEBLK_MARK_BYTES, 'm'));
    const std::string log = exported(DeviceJournal(longest.done()), 1);
    EXPECT_EQ(log.substr(512 + 32, SAMPLEBLK_MARK_BYTES + 1), std::string(SAMPLEBLK_MARK_BYTES, 'm') + '\0');
    Builder longer;
    longer.mark(std::string(1024, 'm'));
    EXPECT_THROW(DeviceJournal{longer.done()}, FormatError);
}

TEST(Journal, WhatCompletedWhileItWasCopiedIsCompletedOrNot) {
    Builder build;
    build.write(0, 1, 'a');
    build.flush();
    build.flush();
    std::vector<std::byte> copy = build.done();
    std::vector<std::byte> mapping = copy;
    const auto entry = [](std::vector<std::byte>& of, std::size_t offset) {
        return reinterpret_cast<sampleblk_journal_entry*>(of.data() + offset);
    };
    const std::size_t write = 128, first = write + entry(copy, write)->bytes,
                      second = first + entry(copy, first)->bytes;
    // One was copied up to its time, one from its order on, and one is not completed yet when it is asked for.
    for (const auto& [at, order] : {std::pair{write, 4U}, std::pair{first, 5U}, std::pair{second, 6U}}) {
        sampleblk_journal_entry* live = entry(mapping, at);
        live->submit_order = entry(copy, at)->submit_order = order - 3;
        live->flags |= SAMPLEBLK_JOURNAL_FAILED;
        live->epoch = 7;
        live->complete_order = order;
        live->complete_ns = at == second ? 0 : 1000 + order;
        entry(copy, at)->complete_order = at == write ? 0 : order;
        entry(copy, at)->complete_ns = 0;
    }
    copy_completions(copy, mapping.data());
    for (const std::size_t at : {write, first}) {
        EXPECT_EQ(std::memcmp(entry(copy, at), entry(mapping, at), sizeof(sampleblk_journal_entry)), 0);
    }
    EXPECT_EQ(entry(copy, second)->flags & SAMPLEBLK_JOURNAL_FAILED, 0U);
    EXPECT_EQ(entry(copy, second)->complete_order, 0U);
    // What is no journal is left to the parser.
    std::vector<std::byte> cut(copy.begin(), copy.begin() + 200);
    copy_completions(cut, mapping.data());
    entry(cut, write)->bytes = 0;
    copy_completions(cut, mapping.data());
}

TEST(Journal, BrokenOnesSayWhere) {
    std::vector<std::byte> bytes = story().done();
    EXPECT_THROW(DeviceJournal(std::vector<std::byte>(10)), FormatError);
    std::vector<std::byte> magic = bytes;
    magic[0] = std::byte{0};
    EXPECT_THROW(DeviceJournal{magic}, FormatError);
    std::vector<std::byte> cut = bytes;
    cut.resize(cut.size() - 8);
    EXPECT_THROW(DeviceJournal{cut}, FormatError);
    // A chunk that claims more than there is.
    std::vector<std::byte> chunk = bytes;
    chunk[128 + sizeof(sampleblk_journal_entry) + 9] = std::byte{0xff};
    try {
        const DeviceJournal journal(chunk, "story");
        FAIL();
    } catch (const FormatError& error) {
        EXPECT_EQ(error.path(), "story");
        EXPECT_EQ(error.offset(), 128U);
    }
}

}  // namespace
}  // namespace sampleblk
