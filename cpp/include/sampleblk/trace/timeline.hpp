// SPDX-License-Identifier: MIT
// A recording as lines of a timeline, for Perfetto and for Chrome's trace viewer: what ran on each CPU, each task's
// system calls and functions, each device's requests and its queue depth.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sampleblk/table.hpp"
#include "sampleblk/trace/file.hpp"
#include "sampleblk/trace/syscalls.hpp"

namespace sampleblk::trace {

struct Slice {
    std::uint64_t start = 0;     // ns
    std::uint64_t duration = 0;  // ns
    std::int32_t name = 0;       // code in Track::names
};

// One line: slices, each of which lies inside or outside any other, or a counter.
struct Track {
    std::string group;  // "CPUs", "Tasks", "Device 254,0"
    std::string name;
    std::shared_ptr<StringPool> names = std::make_shared<StringPool>();
    std::vector<Slice> slices;
    std::vector<std::pair<std::uint64_t, std::int64_t>> counter;  // time (ns), value from then on
};

struct Timeline {
    std::vector<Track> tracks;
    std::map<std::string, std::string> metadata;  // loss counts
};

// `syscalls` says which tasks' calls are shown, and its selection what part of the recording.
[[nodiscard]] Timeline make_timeline(const TraceFile& file, const SyscallRequest& syscalls);

// A Perfetto trace: protos/perfetto/trace/trace_packet.proto, track_event/{track_event,track_descriptor}.proto.
// Throws SystemError.
void write_perfetto(const Timeline& timeline, const std::string& path);

// Chrome's trace-event JSON, in microseconds; the loss counts are its "otherData". Throws SystemError.
void write_chrome(const Timeline& timeline, const std::string& path);

}  // namespace sampleblk::trace
