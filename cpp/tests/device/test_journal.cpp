// SPDX-License-Identifier: MIT
// Journals made by hand, as the driver lays them out.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

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
    void mark(std::string_view text) {
        const auto* begin = reinterpret_cast<const std::byte*>(text.data());
        append(SAMPLEBLK_JOURNAL_MARK, 0, 0, 0, {begin, begin + text.size()});
    }
    std::vector<std::byte> done() {
        header_.first = 128;
        header_.head = bytes_.size();
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
        entry.type = type;
        entry.flags = flags;
        entry.sector = sector;
        entry.sectors = sectors;
        entry.redo_bytes = static_cast<std::uint32_t>(redo.size());
        redo.resize((redo.size() + 7) / 8 * 8);
        entry.bytes = static_cast<std::uint32_t>(sizeof(entry) + redo.size());
        const auto* begin = reinterpret_cast<const std::byte*>(&entry);
        bytes_.insert(bytes_.end(), begin, begin + sizeof(entry));
        bytes_.insert(bytes_.end(), redo.begin(), redo.end());
    }

    sampleblk_journal_header header_{};
    std::vector<std::byte> bytes_;
    std::uint64_t sequence_ = 0;
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

TEST(Journal, LogWritesHasItsLayout) {
    const std::string path = std::filesystem::temp_directory_path() / ("sampleblk-log-" + std::to_string(::getpid()));
    const DeviceJournal journal(story().done());
    EXPECT_EQ(journal.export_log_writes(path), 5U);
    const std::string log = read_file(path);
    std::filesystem::remove(path);
    // superblock, entry and 8 sectors, mark, entry and 2 sectors, flush, discard
    ASSERT_EQ(log.size(), 512U * (1 + 1 + 8 + 1 + 1 + 2 + 1 + 1));
    const auto number = [&](std::size_t at) {
        std::uint64_t value = 0;
        std::memcpy(&value, log.data() + at, sizeof(value));
        return value;
    };
    EXPECT_EQ(number(0), 0x6a736677736872ULL);
    EXPECT_EQ(number(16), 5U);
    EXPECT_EQ(number(512), 8U);
    EXPECT_EQ(number(512 + 8), 8U);
    EXPECT_EQ(log[1024], 'a');
    const std::size_t mark = 512 * 10;
    EXPECT_EQ(number(mark + 16), 8U);
    EXPECT_EQ(number(mark + 24), 3U);
    EXPECT_EQ(log.substr(mark + 32, 3), "one");
    EXPECT_EQ(number(mark + 512 + 16), 2U);
    EXPECT_EQ(number(512 * 14 + 16), 1U);
    EXPECT_EQ(number(512 * 15 + 16), 4U);
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
