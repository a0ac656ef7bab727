// SPDX-License-Identifier: MIT
// Function graphs as call trees: funcgraph_entry and funcgraph_exit joined a task.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sampleblk/table.hpp"
#include "sampleblk/trace/file.hpp"
#include "sampleblk/trace/walk.hpp"

namespace sampleblk::trace {

struct GraphRequest {
    Selection selection;
    std::vector<std::int32_t> pids;      // empty: all
    std::vector<std::string> functions;  // only trees whose root is one of these (globs); empty: all
};

// A forest of calls in the order of their entries (so a call's descendants follow it).
struct CallGraph {
    std::vector<std::uint64_t> time;      // of the entry, in time_unit
    std::vector<std::uint64_t> duration;  // ns; 0 where there is no exit
    std::vector<std::uint64_t> self;      // ns, without the callees
    std::vector<std::int64_t> parent;     // row; -1: a root
    std::vector<std::int32_t> depth;      // 0 at a root
    std::vector<std::int32_t> function;   // code in `names`
    std::vector<std::int32_t> module;     // code in `names`; -1: of the kernel itself
    std::vector<std::int32_t> pid;
    std::vector<std::uint16_t> cpu;
    std::vector<std::uint16_t> buffer;   // number in `buffers`; empty where those are not several
    std::vector<std::uint8_t> complete;  // 1 where entry and exit were both recorded
    std::shared_ptr<StringPool> names = std::make_shared<StringPool>();
    std::vector<std::string> buffers;
    std::string time_unit = "ns";
    std::string duration_unit = "ns";  // of duration and self
    std::map<std::string, std::string> metadata;

    [[nodiscard]] std::size_t size() const noexcept { return time.size(); }
};

[[nodiscard]] CallGraph call_graph(const TraceFile& file, const GraphRequest& request);

// The columns above, under those names. "module" is missing for functions of the kernel itself; "buffer" is there where
// the calls are of several.
[[nodiscard]] Table graph_table(const CallGraph& graph);

// How deep calls can nest: the kernel's own stack of return addresses ends before (SHADOW_STACK_SIZE).
constexpr std::int32_t kDeepestCall = 4096;

// The kernel's text form, with its marks for long durations ($ > 1 s, @ > 100 ms, * > 10 ms, # > 1 ms, ! > 100 us,
// + > 10 us): the rows from `first`, at most `rows` calls, down to `depth` levels below a root.
[[nodiscard]] std::string graph_text(const CallGraph& graph, std::size_t first, std::size_t rows, std::int32_t depth);

// The mark of a duration, ' ' for a short one.
[[nodiscard]] char duration_mark(std::uint64_t nanoseconds) noexcept;
// "0.895 us    ", twelve wide, as the kernel's trace_print_graph_duration() prints it.
[[nodiscard]] std::string duration_text(std::uint64_t nanoseconds);

}  // namespace sampleblk::trace
