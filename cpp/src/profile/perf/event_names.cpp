// SPDX-License-Identifier: MIT
#include "perf/event_names.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <string_view>

#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk::profile {

namespace {

struct Known {
    std::string_view name;
    std::uint32_t type;
    std::uint64_t config;
};

// The first name of each is the one that perf shows.
constexpr std::array kKnown = {
    Known{"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    Known{"cpu-cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    Known{"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    Known{"cache-references", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES},
    Known{"cache-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
    Known{"branches", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS},
    Known{"branch-instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS},
    Known{"branch-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES},
    Known{"bus-cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BUS_CYCLES},
    Known{"stalled-cycles-frontend", PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_FRONTEND},
    Known{"stalled-cycles-backend", PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_BACKEND},
    Known{"ref-cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_REF_CPU_CYCLES},
    Known{"cpu-clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK},
    Known{"task-clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
    Known{"page-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS},
    Known{"faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS},
    Known{"minor-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MIN},
    Known{"major-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MAJ},
    Known{"context-switches", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES},
    Known{"cs", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES},
    Known{"cpu-migrations", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS},
    Known{"migrations", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS},
    Known{"alignment-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_ALIGNMENT_FAULTS},
    Known{"emulation-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_EMULATION_FAULTS},
    Known{"cgroup-switches", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CGROUP_SWITCHES},
};

// Met in recordings, but nothing that find_event() would ask for.
constexpr std::array kOnlyRead = {
    Known{"dummy", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY},
    Known{"bpf-output", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_BPF_OUTPUT},
};

// The name that perf shows; empty for an event that `table` lacks.
std::string_view shown_name(std::span<const Known> table, std::uint32_t type, std::uint64_t config) {
    const auto found =
        std::ranges::find_if(table, [&](const Known& event) { return event.type == type && event.config == config; });
    return found == table.end() ? std::string_view{} : found->name;
}

struct Part {
    std::string_view name;
    std::uint64_t code;
};
constexpr std::array kCaches = {
    Part{"L1-dcache-", PERF_COUNT_HW_CACHE_L1D}, Part{"L1-icache-", PERF_COUNT_HW_CACHE_L1I},
    Part{"LLC-", PERF_COUNT_HW_CACHE_LL},        Part{"dTLB-", PERF_COUNT_HW_CACHE_DTLB},
    Part{"iTLB-", PERF_COUNT_HW_CACHE_ITLB},     Part{"branch-", PERF_COUNT_HW_CACHE_BPU},
    Part{"node-", PERF_COUNT_HW_CACHE_NODE},
};
constexpr std::array kOperations = {
    Part{"load", PERF_COUNT_HW_CACHE_OP_READ},
    Part{"store", PERF_COUNT_HW_CACHE_OP_WRITE},
    Part{"prefetch", PERF_COUNT_HW_CACHE_OP_PREFETCH},
};

// "L1-dcache-loads", "L1-dcache-load-misses", "node-prefetches", …
std::optional<std::uint64_t> cache_event(std::string_view name) {
    for (const Part& cache : kCaches) {
        for (const Part& operation : kOperations) {
            if (!name.starts_with(cache.name) || !name.substr(cache.name.size()).starts_with(operation.name)) {
                continue;
            }
            const auto rest = name.substr(cache.name.size() + operation.name.size());
            const std::uint64_t code = cache.code | operation.code << 8U;
            if (rest == "s" || rest == "es") {
                return code | std::uint64_t{PERF_COUNT_HW_CACHE_RESULT_ACCESS} << 16U;
            }
            if (rest == "-misses") {
                return code | std::uint64_t{PERF_COUNT_HW_CACHE_RESULT_MISS} << 16U;
            }
        }
    }
    return std::nullopt;
}

std::uint64_t trace_point_id(const std::string& name, const std::string& tracefs) {
    const auto colon = name.find(':');
    std::string path = tracefs;
    path.append("/events/").append(name, 0, colon).append("/").append(name, colon + 1).append("/id");
    const bool plain = name.find('/') == std::string::npos && name.find("..") == std::string::npos;
    try {
        std::uint64_t id = 0;
        const std::string text = plain ? read_file(path) : "";
        const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), id);
        if (code == std::errc()) {
            return id;
        }
    } catch (const SystemError& error) {
        if (error.code() != ENOENT) {
            throw;
        }
    }
    throw InputError("trace point '" + name + "'", "events", 0,
                     "one that this kernel has, see " + tracefs + "/available_events");
}

bool modifiers(std::string_view text) {
    return !text.empty() && text.find_first_not_of("uk") == std::string_view::npos;
}

}  // namespace

NamedEvent find_event(const std::string& name, const std::string& tracefs) {
    NamedEvent out;
    out.name = name;
    std::string_view plain = name;
    if (const auto colon = name.rfind(':'); colon != std::string::npos) {
        const auto after = plain.substr(colon + 1);
        if (!modifiers(after)) {
            out.type = PERF_TYPE_TRACEPOINT;
            out.config = trace_point_id(name, tracefs);
            return out;
        }
        out.exclude_kernel = after.find('k') == std::string_view::npos;
        out.exclude_user = after.find('u') == std::string_view::npos;
        plain = plain.substr(0, colon);
    }
    const Known* same = nullptr;
    for (const Known& event : kKnown) {
        if (event.name == plain) {
            same = &event;
        }
    }
    if (same != nullptr) {
        out.name = std::string(shown_name(kKnown, same->type, same->config)) + name.substr(plain.size());
        out.type = same->type;
        out.config = same->config;
        return out;
    }
    if (const auto code = cache_event(plain)) {
        out.type = PERF_TYPE_HW_CACHE;
        out.config = *code;
        return out;
    }
    if (plain.size() > 1 && plain[0] == 'r') {
        const auto [end, code] = std::from_chars(plain.data() + 1, plain.data() + plain.size(), out.config, 16);
        if (code == std::errc() && end == plain.data() + plain.size()) {
            out.type = PERF_TYPE_RAW;
            return out;
        }
    }
    std::string all;
    for (const Known& event : kKnown) {
        all.append(all.empty() ? "" : ", ").append(event.name);
    }
    throw InputError("event '" + name + "'", "event", 0,
                     "one of " + all +
                         ", a cache's (L1-dcache-load-misses), a raw code (r01c2) or a trace point "
                         "(system:name)");
}

std::string_view event_name(std::uint32_t type, std::uint64_t config) {
    const auto name = shown_name(kKnown, type, config);
    return name.empty() ? shown_name(kOnlyRead, type, config) : name;
}

}  // namespace sampleblk::profile
