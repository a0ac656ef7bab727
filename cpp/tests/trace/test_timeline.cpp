// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "events/grow_buffer.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/trace/timeline.hpp"
#include "synthetic.hpp"

namespace sampleblk::trace::test {
namespace {

Timeline a_timeline() {
    Timeline out;
    Track& track = out.tracks.emplace_back();
    track.group = "Tasks";
    track.name = "a \"task\"\n";
    track.slices = {{1'000'001, 5'000, track.names->intern("outer")}, {1'001'000, 10, track.names->intern("in\\ner")}};
    Track& counter = out.tracks.emplace_back();
    counter.group = "Device 7,0";
    counter.name = "depth";
    counter.counter = {{2'000'000, 1}, {3'000'000, 0}};
    out.metadata["lost_events"] = "3";
    return out;
}

TEST(Timeline, ChromeKeepsNanosecondsAndQuotes) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("x.json");
    write_chrome(a_timeline(), path);
    EXPECT_EQ(read_file(path), R"({"traceEvents": [
{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "Tasks"}},
{"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "a \"task\"\u000a"}},
{"ph": "X", "name": "outer", "ts": 1000.001, "dur": 5.000, "pid": 1, "tid": 1},
{"ph": "X", "name": "in\\ner", "ts": 1001.000, "dur": 0.010, "pid": 1, "tid": 1},
{"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "Device 7,0"}},
{"ph": "M", "name": "thread_name", "pid": 2, "tid": 2, "args": {"name": "depth"}},
{"ph": "C", "name": "depth", "ts": 2000.000, "pid": 2, "tid": 2, "args": {"depth": 1}},
{"ph": "C", "name": "depth", "ts": 3000.000, "pid": 2, "tid": 2, "args": {"depth": 0}}
], "displayTimeUnit": "ns", "otherData": {"lost_events": "3"}}
)");
}

TEST(Timeline, PerfettoEndsWhatItBegins) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("x.pftrace");
    write_perfetto(a_timeline(), path);
    const std::string bytes = read_file(path);
    const auto count = [&bytes](std::string_view part) {
        std::size_t found = 0;
        for (std::size_t at = bytes.find(part); at != std::string::npos; at = bytes.find(part, at + 1)) {
            ++found;
        }
        return found;
    };
    // TrackEvent.type (9) and track_uuid (11) of track 1: begins, ends; of track 2: counters.
    EXPECT_EQ(count(std::string("\x48\x01\x58\x01", 4)), 2U);
    EXPECT_EQ(count(std::string("\x48\x02\x58\x01", 4)), 2U);
    EXPECT_EQ(count(std::string("\x48\x04\x58\x02", 4)), 2U);
    EXPECT_EQ(count("outer"), 1U);
}

TEST(Timeline, APlaceThatCannotBeWrittenIsNamed) {
    try {
        write_chrome({}, "/nonexistent/x.json");
        FAIL() << "no error";
    } catch (const SystemError& error) {
        EXPECT_EQ(error.path(), "/nonexistent/x.json");
    }
}

TEST(GrowBuffer, KeepsItsNumbersThroughEveryKindOfMemory) {
    // Below and above a megabyte, with a right guess, a wrong one and none.
    for (const std::size_t expected : {std::size_t{0}, std::size_t{64} << 20, std::size_t{2} << 20}) {
        for (int round = 0; round < 3; ++round) {  // the second takes what the first gave back
            GrowBuffer buffer;
            buffer.expect(expected);
            constexpr std::uint64_t kCount = 700'000;
            for (std::uint64_t i = 0; i < kCount; ++i) {
                std::memcpy(buffer.extend(sizeof i), &i, sizeof i);
            }
            ASSERT_EQ(buffer.size(), kCount * sizeof(std::uint64_t));
            const auto shared = buffer.share();
            EXPECT_EQ(buffer.size(), 0U);
            const auto* values = static_cast<const std::uint64_t*>(shared.get());
            for (std::uint64_t i = 0; i < kCount; ++i) {
                ASSERT_EQ(values[i], i);
            }
        }
    }
}

TEST(GrowBuffer, TwoThatLiveAtOnceShareNothing) {
    const auto fill = [](std::uint8_t value) {
        GrowBuffer buffer;
        buffer.expect(std::size_t{8} << 20);
        std::memset(buffer.extend(std::size_t{3} << 20), value, std::size_t{3} << 20);
        return buffer.share();
    };
    (void)fill(1);
    const auto a = fill(2);
    const auto b = fill(3);
    EXPECT_NE(a.get(), b.get());
    EXPECT_EQ(static_cast<const std::uint8_t*>(a.get())[(3 << 20) - 1], 2);
    EXPECT_EQ(static_cast<const std::uint8_t*>(b.get())[0], 3);
}

}  // namespace
}  // namespace sampleblk::trace::test
