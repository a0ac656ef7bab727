// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perf/record_maker.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/profile/perf_file.hpp"

namespace sampleblk::profile {
namespace {

using Bytes = std::vector<std::byte>;

void add(Bytes& to, std::span<const std::byte> bytes) {
    to.insert(to.end(), bytes.begin(), bytes.end());
}

// A pipe's recording of one event, and `record` as the last thing in it.
Bytes recording_that_ends_with(std::span<const std::byte> record) {
    Bytes bytes;
    add(bytes, std::as_bytes(std::span(std::string_view("PERFILE2"))));
    const std::uint64_t header = 16;
    add(bytes, std::as_bytes(std::span(&header, 1)));
    perf_event_attr attr{};
    attr.size = sizeof(attr);
    attr.type = PERF_TYPE_SOFTWARE;
    attr.sample_type = PERF_SAMPLE_TIME;
    add(bytes, RecordMaker(kRecordHeaderAttr, 0).put_bytes(&attr, sizeof(attr)).finish(0));
    add(bytes, record);
    bytes.shrink_to_fit();  // so that a byte read behind it is one that AddressSanitizer sees
    return bytes;
}

TEST(PerfFile, TracingDataWithoutASizeAreCorrupt) {
    const auto bytes = recording_that_ends_with(RecordMaker(kRecordTracingData, 0).finish(0));
    try {
        const PerfFile file(bytes, "made up");
        FAIL();
    } catch (const FormatError& error) {
        EXPECT_EQ(error.offset(), bytes.size() - sizeof(perf_event_header));
    }
    const PerfFile file(bytes, "made up", OnDamage::skip);
    EXPECT_EQ(file.damage(), (std::map<std::string, std::uint64_t>{{"corrupt records", 1}}));
    EXPECT_EQ(file.events().size(), 1U);
}

// Without PERF_SAMPLE_IDENTIFIER, as of perf before 3.12: the id lies behind the address, and what is left of the
// sample is as its own event wants it.
TEST(PerfFile, ASampleIsReadByItsOwnEvent) {
    constexpr std::uint64_t type =
        PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID | PERF_SAMPLE_READ | PERF_SAMPLE_CALLCHAIN;
    Bytes bytes;
    add(bytes, std::as_bytes(std::span(std::string_view("PERFILE2"))));
    const std::uint64_t header = 16;
    add(bytes, std::as_bytes(std::span(&header, 1)));
    const auto event = [&](std::uint64_t id, std::uint64_t period, std::uint64_t read_format) {
        perf_event_attr attr{};
        attr.size = sizeof(attr);
        attr.type = PERF_TYPE_SOFTWARE;
        attr.sample_type = type;
        attr.sample_period = period;
        attr.read_format = read_format;
        add(bytes, RecordMaker(kRecordHeaderAttr, 0).put_bytes(&attr, sizeof(attr)).put(id).finish(0));
    };
    event(10, 1000, 0);
    event(20, 7, PERF_FORMAT_GROUP | PERF_FORMAT_ID);
    const auto sample = [&](std::uint64_t id, const std::vector<std::uint64_t>& counts) {
        RecordMaker record(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_KERNEL);
        record.put(std::uint64_t{0x1234}).put(std::int32_t{3}).put(std::int32_t{4}).put(5 * id).put(id);
        record.put_bytes(counts.data(), counts.size() * sizeof(counts[0]));
        add(bytes, record.put(std::uint64_t{1}).put(std::uint64_t{0x5678}).finish(0));
    };
    sample(10, {99});
    sample(20, {2, 99, 10, 98, 20});
    const PerfFile file(bytes, "made up");
    ASSERT_EQ(file.records().size(), 2U);
    const std::vector<std::uint64_t> periods = {1000, 7};
    for (std::size_t i = 0; i < 2; ++i) {
        const auto read = file.sample(file.records()[i]);
        ASSERT_TRUE(read.has_value());
        EXPECT_EQ(read->event, i);
        EXPECT_EQ(read->period, periods[i]);
        ASSERT_EQ(read->chain.size(), 8U);
        EXPECT_EQ(load<std::uint64_t>(read->chain.data()), 0x5678U);
    }
}

// As perf records a trace point beside another event without -a: only its samples have a CPU, so that the time lies
// elsewhere in the trailer of other records, whose last field tells of which event they are.
TEST(PerfFile, EventsOfDifferentLayoutsAreToldApartByTheirIds) {
    constexpr std::uint64_t shared =
        PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_PERIOD;
    Bytes bytes;
    add(bytes, std::as_bytes(std::span(std::string_view("PERFILE2"))));
    const std::uint64_t header = 16;
    add(bytes, std::as_bytes(std::span(&header, 1)));
    const auto event = [&](std::uint64_t id, std::uint64_t type) {
        perf_event_attr attr{};
        attr.size = sizeof(attr);
        attr.type = PERF_TYPE_SOFTWARE;
        attr.sample_type = type;
        attr.sample_id_all = 1;
        add(bytes, RecordMaker(kRecordHeaderAttr, 0).put_bytes(&attr, sizeof(attr)).put(id).finish(0));
    };
    event(10, shared);
    event(20, shared | PERF_SAMPLE_CPU);
    const auto sample = [&](std::uint64_t id, std::uint64_t time, bool with_cpu) {
        RecordMaker record(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER);
        record.put(id).put(std::uint64_t{0x1234}).put(std::int32_t{3}).put(std::int32_t{4}).put(time);
        if (with_cpu) {
            record.put(std::uint32_t{5}).put(std::uint32_t{0});
        }
        add(bytes, record.put(std::uint64_t{7}).finish(0));
    };
    const auto lost = [&](std::uint64_t id, std::uint64_t time, bool with_cpu) {
        RecordMaker record(PERF_RECORD_LOST, 0);
        record.put(id).put(std::uint64_t{1});
        record.put(std::int32_t{3}).put(std::int32_t{4}).put(time);
        if (with_cpu) {
            record.put(std::uint32_t{5}).put(std::uint32_t{0});
        }
        add(bytes, record.put(id).finish(0));
    };
    lost(20, 400, true);
    sample(20, 300, true);
    lost(10, 200, false);
    sample(10, 100, false);
    const PerfFile file(bytes, "made up");
    ASSERT_EQ(file.records().size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(file.records()[i].time_ns, 100 * (i + 1));
    }
    const auto first = file.sample(file.records()[0]);
    const auto second = file.sample(file.records()[2]);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first->event, 0U);
    EXPECT_EQ(second->event, 1U);
    EXPECT_EQ(second->cpu, 5U);
    EXPECT_EQ(first->period, 7U);
    EXPECT_EQ(second->period, 7U);
}

TEST(PerfFile, ASampleOfNoKnownEventIsOfNone) {
    constexpr std::uint64_t type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TIME;
    Bytes bytes;
    add(bytes, std::as_bytes(std::span(std::string_view("PERFILE2"))));
    const std::uint64_t header = 16;
    add(bytes, std::as_bytes(std::span(&header, 1)));
    for (const std::uint64_t id : {10, 20}) {
        perf_event_attr attr{};
        attr.size = sizeof(attr);
        attr.type = PERF_TYPE_SOFTWARE;
        attr.sample_type = type;
        add(bytes, RecordMaker(kRecordHeaderAttr, 0).put_bytes(&attr, sizeof(attr)).put(id).finish(0));
    }
    add(bytes, RecordMaker(PERF_RECORD_SAMPLE, 0).put(std::uint64_t{30}).put(std::uint64_t{1}).finish(0));
    add(bytes, RecordMaker(PERF_RECORD_SAMPLE, 0).put(std::uint64_t{20}).put(std::uint64_t{2}).finish(0));
    const PerfFile file(bytes, "made up", OnDamage::skip);
    ASSERT_EQ(file.records().size(), 2U);
    EXPECT_FALSE(file.sample(file.records()[0]));
    EXPECT_EQ(file.sample(file.records()[1]).value().event, 1U);
    const PerfFile strict(bytes, "made up");
    EXPECT_THROW((void)strict.sample(strict.records()[0]), FormatError);
}

}  // namespace
}  // namespace sampleblk::profile
