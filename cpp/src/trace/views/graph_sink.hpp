// SPDX-License-Identifier: MIT
// Function calls joined of ftrace's funcgraph_entry and funcgraph_exit.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "events/sinks.hpp"
#include "file/field_reader.hpp"
#include "sampleblk/trace/graph.hpp"

namespace sampleblk::trace {

// Adds calls to `out` in the order in which they are seen; arrange() makes a CallGraph of them.
class GraphSink : public PlainSink {
  public:
    GraphSink(const TraceFile& file, const GraphRequest& request, CallGraph& out);

    void record(const Event& event);
    // Depth first, roots by time, with self times; to be called once, after the walk.
    void arrange();

  private:
    struct Entry {  // funcgraph_entry, or fgraph_retaddr_entry
        std::uint32_t fixed_size = 0;
        FieldReader func, depth, pid;
    };
    struct Exit {
        std::uint32_t fixed_size = 0;
        FieldReader func, depth, pid, call, ret;
    };
    struct Frame {
        std::size_t row;
        std::int32_t depth;
        std::uint64_t function;
    };
    struct Task {
        std::vector<Frame> stack;
        // Rows made of an exit alone, whose caller is still to come (tracing_thresh records no entries).
        std::vector<Frame> orphans;
    };
    struct Name {
        std::int32_t function = 0;
        std::int32_t module = -1;
    };

    [[nodiscard]] Task& task(std::int32_t pid, Place place);
    [[nodiscard]] Name name_of(std::uint64_t address);
    std::size_t add_row(std::uint64_t time, Place place, std::int32_t pid, std::uint64_t function, std::int64_t parent,
                        std::int32_t depth);
    void enter(const Event& event, const Entry& entry);
    void leave(const Event& event);
    // Whether calls can nest so deep; else it is damage.
    [[nodiscard]] bool plausible(std::int32_t depth, const Event& event);

    bool swap_;
    std::unordered_set<std::int32_t> pids_;
    std::vector<std::string> functions_;
    CallGraph& out_;
    bool several_;  // buffers
    bool ns_;       // the clock counts ns, as calltime and rettime do
    std::int32_t entry_id_ = -1;
    std::int32_t retaddr_id_ = -1;
    std::int32_t exit_id_ = -1;
    Entry entry_, retaddr_;
    Exit exit_;
    std::unordered_map<std::uint64_t, Task> tasks_;
    std::uint64_t last_key_ = 0;
    Task* last_ = nullptr;
    std::unordered_map<std::uint64_t, Name> names_;
};

// Brings rows that come in the order of their entries, each behind its caller, into that of a CallGraph: depth first,
// roots by time. Roots where `keep` is 0 go, with all below them. Adds self times and the count of incomplete calls.
void arrange_graph(CallGraph& graph, const std::vector<std::uint8_t>& keep);

}  // namespace sampleblk::trace
