// SPDX-License-Identifier: MIT
// Events by the names that perf list gives them: hardware, software and cache events, raw codes and trace points.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sampleblk/linux_headers.hpp"

namespace sampleblk::profile {

struct NamedEvent {
    std::string name;  // as perf calls it, with its modifiers
    std::uint32_t type = 0;
    std::uint64_t config = 0;
    bool exclude_kernel = false;  // ":u"
    bool exclude_user = false;    // ":k"

    [[nodiscard]] bool trace_point() const noexcept { return type == PERF_TYPE_TRACEPOINT; }
    // Counts nanoseconds.
    [[nodiscard]] bool clock() const noexcept {
        return type == PERF_TYPE_SOFTWARE && (config == PERF_COUNT_SW_CPU_CLOCK || config == PERF_COUNT_SW_TASK_CLOCK);
    }
};

// "cycles", "page-faults", "L1-dcache-load-misses", "r01c2", "block:block_rq_issue"; ":u" and ":k" behind all but the
// last. `tracefs` is where trace points are looked up. Throws InputError naming what there is.
[[nodiscard]] NamedEvent find_event(const std::string& name, const std::string& tracefs);

// What perf calls a hardware or software event; empty for those of other types and those that we do not know.
[[nodiscard]] std::string_view event_name(std::uint32_t type, std::uint64_t config);

}  // namespace sampleblk::profile
