// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "record_maker.hpp"
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

}  // namespace
}  // namespace sampleblk::profile
