// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "fuzz_replay_log.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk::workload {
namespace {

TEST(Iolog, VersionTwoWaitsBetweenItsLines) {
    const ReplayLog log = parse_iolog(
        "fio version 2 iolog\n/dev/a add\n/dev/a open\n/dev/a read 4096 512\n/dev/a wait 250\n/dev/a write 0 1024\n"
        "/dev/a trim 8192 4096\n/dev/a sync\n/dev/a datasync\n/dev/a close\n",
        "log");
    ASSERT_EQ(log.paths, std::vector<std::string>{"/dev/a"});
    ASSERT_EQ(log.records.size(), 7U);
    EXPECT_EQ(log.records[1].operation, ReplayOperation::read);
    EXPECT_EQ(log.records[1].offset_bytes, 4096U);
    EXPECT_EQ(log.records[1].length_bytes, 512U);
    EXPECT_EQ(log.records[2].time_ns, 250'000U);
    EXPECT_EQ(log.records[3].operation, ReplayOperation::trim);
    EXPECT_EQ(log.records[4].operation, ReplayOperation::fsync);
    EXPECT_EQ(log.records[5].operation, ReplayOperation::fdatasync);
    EXPECT_EQ(log.records[6].operation, ReplayOperation::close);
}

TEST(Iolog, VersionThreeHasTimeStamps) {
    const ReplayLog log =
        parse_iolog("fio version 3 iolog\n7 a add\n1000 a read 0 4096\n3500 b write 4096 4096\n", "log");
    ASSERT_EQ(log.records.size(), 2U);
    EXPECT_EQ(log.records[0].time_ns, 993'000U);
    EXPECT_EQ(log.records[1].time_ns, 3'493'000U);
    EXPECT_EQ(log.paths[log.records[1].file], "b");
}

// A log may be stamped with the time of day, or be of two that were joined.
TEST(Iolog, TimeStampsAreRelativeToTheLineBefore) {
    const ReplayLog log = parse_iolog(
        "fio version 3 iolog\n1790000000000000 a read 0 1\n1790000000000500 a read 1 1\n20 a read 2 1\n320 a read 3 "
        "1\n",
        "log");
    std::vector<std::uint64_t> times;
    for (const ReplayRecord& record : log.records) {
        times.push_back(record.time_ns);
    }
    EXPECT_EQ(times, (std::vector<std::uint64_t>{0, 500'000, 500'000, 800'000}));
    EXPECT_THROW((void)parse_iolog("fio version 3 iolog\n0 a read 0 1\n18446744073709551615 a read 0 1\n", "log"),
                 FormatError);
}

// A discard of a whole disk is one record.
TEST(Iolog, LengthsMayBeLongerThan32Bits) {
    const ReplayLog log = parse_iolog("fio version 2 iolog\na trim 0 2147483647\na trim 4096 1099511627776\n", "log");
    ASSERT_EQ(log.records.size(), 2U);
    EXPECT_EQ(log.records[0].length_bytes, 2147483647U);
    EXPECT_EQ(log.records[1].length_bytes, std::uint64_t{1} << 40);
    EXPECT_THROW((void)parse_iolog("fio version 2 iolog\na read 0 9223372036854775807\n", "log"), FormatError);
    EXPECT_THROW((void)parse_iolog("fio version 2 iolog\na wait 18446744073709551615\na read 0 1\n", "log"),
                 FormatError);
}

TEST(Iolog, AnErrorNamesTheOffset) {
    try {
        (void)parse_iolog("fio version 2 iolog\n/dev/a read 4096\n", "log");
        FAIL() << "a read without a length was taken";
    } catch (const FormatError& error) {
        EXPECT_NE(std::string(error.what()).find("log"), std::string::npos);
        EXPECT_NE(std::string(error.what()).find("20"), std::string::npos) << error.what();
    }
}

// A record of include/uapi/linux/blktrace_api.h.
std::string record(std::uint64_t time_ns, std::uint64_t sector, std::uint32_t bytes, std::uint32_t action) {
    std::string out(48, '\0');
    const auto put = [&](std::size_t at, auto value) { std::memcpy(out.data() + at, &value, sizeof(value)); };
    put(0, std::uint32_t{0x65617407});
    put(8, time_ns);
    put(16, sector);
    put(24, bytes);
    put(28, action);
    put(36, std::uint32_t{(259U << 20) | 3U});
    return out;
}

TEST(Blktrace, TakesWhatWasQueued) {
    constexpr std::uint32_t queue = 1;
    constexpr std::uint32_t complete = 8;
    constexpr std::uint32_t read = 1U << 16;
    constexpr std::uint32_t write = 2U << 16;
    constexpr std::uint32_t flush = 4U << 16;
    constexpr std::uint32_t discard = 1U << 29;
    const std::string bytes = record(5000, 8, 4096, queue | write) + record(1000, 16, 512, queue | read) +
                              record(6000, 8, 4096, complete | write) +
                              record(7000, 64, 65536, queue | discard | write) +
                              record(8000, 0, 0, queue | flush | write) + "cut";
    const ReplayLog log = parse_blktrace(std::as_bytes(std::span(bytes)), "trace");
    ASSERT_EQ(log.records.size(), 4U);
    EXPECT_EQ(log.paths, std::vector<std::string>{"/dev/block/259:3"});
    EXPECT_EQ(log.records[0].operation, ReplayOperation::read);
    EXPECT_EQ(log.records[0].time_ns, 0U);
    EXPECT_EQ(log.records[0].offset_bytes, 16U * 512);
    EXPECT_EQ(log.records[1].operation, ReplayOperation::write);
    EXPECT_EQ(log.records[1].time_ns, 4000U);
    EXPECT_EQ(log.records[2].operation, ReplayOperation::trim);
    EXPECT_EQ(log.records[3].operation, ReplayOperation::fsync);
    ASSERT_EQ(log.skipped.size(), 1U);
    EXPECT_EQ(log.skipped[0].second, 1U);
    EXPECT_THROW((void)parse_blktrace(std::as_bytes(std::span(bytes).subspan(4)), "trace"), FormatError);
}

// Numbers that no file or clock has are skipped by reason, or bounded.
TEST(ReplayTable, HostileNumbersDoNotOverflow) {
    constexpr double huge = 1e300;
    std::vector<Column> columns;
    columns.emplace_back("time", std::vector<double>{0, huge, 1}, "s");
    auto pool = std::make_shared<StringPool>();
    columns.emplace_back("rwbs", std::vector<std::int32_t>(3, pool->intern("W")), pool);
    columns.emplace_back("sector", std::vector<std::int64_t>{0, INT64_MAX, 8});
    columns.emplace_back("nr_sector", std::vector<std::int64_t>{8, 8, INT64_MAX});
    const ReplayLog log = replay_of_requests(Table(std::move(columns)));
    ASSERT_EQ(log.records.size(), 1U);
    ASSERT_EQ(log.skipped.size(), 1U);
    EXPECT_EQ(log.skipped[0].second, 2U);
}

// Every input that fuzzing found worth keeping, once more.
TEST(ReplayLogCorpus, IsReadOrRefused) {
    std::size_t inputs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(SAMPLEBLK_SOURCE_DIR "/cpp/fuzz/corpus/replay_log")) {
        const std::string text = read_file(entry.path().string());
        fuzz_replay_log(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
        ++inputs;
    }
    EXPECT_GE(inputs, 5U);
}

}  // namespace
}  // namespace sampleblk::workload
