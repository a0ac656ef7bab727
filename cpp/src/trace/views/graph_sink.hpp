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

    void missed(Place place, std::uint64_t time, std::uint64_t /*count*/) { gaps_.add(place, time); }
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
        std::uint64_t last = 0;   // its last event
        Place place;              // where that was
        std::uint64_t known = 0;  // its last event before some were lost
        std::size_t rows = 0;     // those that there were then
    };
    struct Name {
        std::int32_t function = 0;
        std::int32_t module = -1;
    };

    [[nodiscard]] Task& task(std::int32_t pid, const Event& event);
    [[nodiscard]] Name name_of(std::uint64_t address);
    std::size_t add_row(std::uint64_t time, Place place, std::int32_t pid, std::uint64_t function, std::int64_t parent,
                        std::int32_t depth);
    void enter(const Event& event, const Entry& entry);
    void leave(const Event& event);
    // The innermost call ended among lost events: those that it seems to have called since `began` go to `row`.
    void end_lost(Task& task, std::uint64_t began, std::size_t row);
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
    Gaps gaps_;
    std::uint64_t across_gaps_ = 0;
};

// Brings rows that come in the order of their entries, each behind its caller, into that of a CallGraph: depth first,
// roots by time. Roots where `keep` is 0 go, with all below them. Adds self times and the count of incomplete calls.
void arrange_graph(CallGraph& graph, const std::vector<std::uint8_t>& keep);

}  // namespace sampleblk::trace
