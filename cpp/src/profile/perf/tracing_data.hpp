// SPDX-License-Identifier: MIT
// The header feature that describes trace points: what `perf record -e sched:…` copies of tracefs, in the layout of
// trace.dat version 0.6 (tools/perf/util/trace-event-info.c).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sampleblk/trace/format.hpp"

namespace sampleblk::profile {

struct TracingData {
    std::vector<trace::EventFormat> formats;
    std::string kallsyms;
    bool damaged = false;
    std::string expected;  // what was missing, when damaged
};

[[nodiscard]] TracingData parse_tracing_data(std::span<const std::byte> bytes, const std::string& source,
                                             std::uint64_t base);

// The same for writing, of the running kernel with the formats of `events` ("sched:sched_switch").
[[nodiscard]] std::vector<std::byte> make_tracing_data(const std::string& tracefs,
                                                       const std::vector<std::string>& events);

}  // namespace sampleblk::profile
