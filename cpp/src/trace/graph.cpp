// SPDX-License-Identifier: MIT
#include "sampleblk/trace/graph.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "field_reader.hpp"
#include "sampleblk/trace/decode.hpp"

namespace sampleblk::trace {

namespace {

class GraphSink {
  public:
    GraphSink(const TraceFile& file, const GraphRequest& request, CallGraph& out)
        : file_(file),
          swap_(swap_needed(file.big_endian())),
          pids_(request.pids.begin(), request.pids.end()),
          out_(out) {
        if (const EventFormat* entry = file.find_event("ftrace:funcgraph_entry")) {
            entry_id_ = static_cast<std::int32_t>(entry->id);
            entry_size_ = entry->fixed_size;
            entry_func_ = FieldReader(*entry, "func", swap_);
            entry_depth_ = FieldReader(*entry, "depth", swap_);
            entry_pid_ = FieldReader(*entry, "common_pid", swap_);
        }
        if (const EventFormat* exit = file.find_event("ftrace:funcgraph_exit")) {
            exit_id_ = static_cast<std::int32_t>(exit->id);
            exit_size_ = exit->fixed_size;
            exit_func_ = FieldReader(*exit, "func", swap_);
            exit_depth_ = FieldReader(*exit, "depth", swap_);
            exit_pid_ = FieldReader(*exit, "common_pid", swap_);
            exit_call_ = FieldReader(*exit, "calltime", swap_);
            exit_ret_ = FieldReader(*exit, "rettime", swap_);
        }
        // 6.14 added an entry with the return address in it, for funcgraph-retaddr.
        if (const EventFormat* retaddr = file.find_event("ftrace:fgraph_retaddr_entry")) {
            retaddr_id_ = static_cast<std::int32_t>(retaddr->id);
            retaddr_size_ = retaddr->fixed_size;
            retaddr_func_ = FieldReader(*retaddr, "func", swap_);
            retaddr_depth_ = FieldReader(*retaddr, "depth", swap_);
            retaddr_pid_ = FieldReader(*retaddr, "common_pid", swap_);
        }
    }

    void record(const Event& event) {
        if (event.size < 2) [[unlikely]] {
            return;
        }
        const auto id = static_cast<std::int32_t>(load<std::uint16_t>(event.data, swap_));
        if (id == entry_id_ && event.size >= entry_size_) {
            enter(event, entry_pid_, entry_func_, entry_depth_);
        } else if (id == exit_id_ && event.size >= exit_size_) {
            leave(event);
        } else if (id == retaddr_id_ && event.size >= retaddr_size_) {
            enter(event, retaddr_pid_, retaddr_func_, retaddr_depth_);
        }
    }

    void missed(std::uint32_t cpu, std::uint64_t time, std::uint64_t count) const {
        (void)cpu;
        (void)time;
        (void)count;
    }
    void flush() const {}

  private:
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

    // The idle task has pid 0 on every CPU.
    Task& task(std::int32_t pid, std::uint32_t cpu) {
        const std::int64_t key = pid != 0 ? pid : -1 - static_cast<std::int64_t>(cpu);
        if (key != last_key_ || last_ == nullptr) {
            last_key_ = key;
            last_ = &tasks_[key];
        }
        return *last_;
    }

    std::int32_t name_of(std::uint64_t address) {
        const auto [entry, fresh] = names_.try_emplace(address, 0);
        if (fresh) {
            const std::string name = file_.symbols().describe(address);
            entry->second = out_.names->intern(name);
            const Symbol* symbol = file_.symbols().find(address);
            if (symbol != nullptr && !symbol->module.empty()) {
                out_.modules[name] = std::string(symbol->module);
            }
        }
        return entry->second;
    }

    std::size_t add_row(const Event& event, std::int32_t pid, std::uint64_t function, std::int64_t parent,
                        std::int32_t depth) {
        out_.time.push_back(event.time);
        out_.duration.push_back(0);
        out_.self.push_back(0);
        out_.parent.push_back(parent);
        out_.depth.push_back(depth);
        out_.function.push_back(name_of(function));
        out_.pid.push_back(pid);
        out_.cpu.push_back(static_cast<std::uint16_t>(event.cpu));
        out_.complete.push_back(0);
        return out_.time.size() - 1;
    }

    void enter(const Event& event, const FieldReader& pid_field, const FieldReader& func,
               const FieldReader& depth_field) {
        const auto pid = static_cast<std::int32_t>(pid_field.get(event.data));
        if (!pids_.empty() && !pids_.contains(pid)) {
            return;
        }
        Task& here = task(pid, event.cpu);
        const auto depth = static_cast<std::int32_t>(depth_field.get(event.data));
        // A frame as deep as this one, or deeper, has ended; its exit was lost.
        while (!here.stack.empty() && here.stack.back().depth >= depth) {
            here.stack.pop_back();
        }
        const std::uint64_t function = func.get(event.data);
        const std::int64_t parent = here.stack.empty() ? -1 : static_cast<std::int64_t>(here.stack.back().row);
        const std::int32_t shown = parent < 0 ? 0 : out_.depth[static_cast<std::size_t>(parent)] + 1;
        const std::size_t row = add_row(event, pid, function, parent, shown);
        here.stack.push_back({row, depth, function});
    }

    void leave(const Event& event) {
        const auto pid = static_cast<std::int32_t>(exit_pid_.get(event.data));
        if (!pids_.empty() && !pids_.contains(pid)) {
            return;
        }
        Task& here = task(pid, event.cpu);
        const auto depth = static_cast<std::int32_t>(exit_depth_.get(event.data));
        const std::uint64_t function = exit_func_.get(event.data);
        while (!here.stack.empty() && here.stack.back().depth > depth) {
            here.stack.pop_back();
        }
        std::uint64_t duration = 0;
        if (exit_call_ && exit_ret_) {
            duration = exit_ret_.get(event.data) - exit_call_.get(event.data);
        }
        if (!here.stack.empty() && here.stack.back().depth == depth && here.stack.back().function == function) {
            const std::size_t row = here.stack.back().row;
            here.stack.pop_back();
            out_.duration[row] = exit_call_ && exit_ret_ ? duration : event.time - out_.time[row];
            out_.complete[row] = 1;
            return;
        }
        Event began = event;
        began.time = event.time - duration;
        const std::size_t row = add_row(began, pid, function, -1, 0);
        out_.duration[row] = duration;
        // Callees end before their caller does: those one level down since it began are its own.
        while (!here.orphans.empty() && here.orphans.back().depth > depth &&
               out_.time[here.orphans.back().row] >= began.time) {
            if (here.orphans.back().depth == depth + 1) {
                out_.parent[here.orphans.back().row] = static_cast<std::int64_t>(row);
            }
            here.orphans.pop_back();
        }
        here.orphans.push_back({row, depth, function});
        has_orphans_ = true;
    }

  public:
    [[nodiscard]] bool has_orphans() const noexcept { return has_orphans_; }

  private:
    const TraceFile& file_;
    bool swap_;
    std::unordered_set<std::int32_t> pids_;
    CallGraph& out_;
    std::int32_t entry_id_ = -1;
    std::int32_t exit_id_ = -1;
    std::int32_t retaddr_id_ = -1;
    std::uint32_t entry_size_ = 0;
    std::uint32_t exit_size_ = 0;
    std::uint32_t retaddr_size_ = 0;
    FieldReader entry_func_, entry_depth_, entry_pid_;
    FieldReader exit_func_, exit_depth_, exit_pid_, exit_call_, exit_ret_;
    FieldReader retaddr_func_, retaddr_depth_, retaddr_pid_;
    std::unordered_map<std::int64_t, Task> tasks_;
    std::int64_t last_key_ = 0;
    Task* last_ = nullptr;
    std::unordered_map<std::uint64_t, std::int32_t> names_;
    bool has_orphans_ = false;
};

template <typename T>
void reorder(std::vector<T>& values, const std::vector<std::size_t>& order) {
    std::vector<T> out;
    out.reserve(order.size());
    for (const std::size_t row : order) {
        out.push_back(values[row]);
    }
    values = std::move(out);
}

// Depth first, roots by time: tasks that ran side by side are taken apart, and callers come before their callees.
// Rows outside `keep` are left out.
void sort_depth_first(CallGraph& graph, const std::vector<std::uint8_t>& keep) {
    const std::size_t size = graph.size();
    std::vector<std::int64_t> first(size, -1);
    std::vector<std::int64_t> next(size, -1);
    std::vector<std::size_t> roots;
    // From the back, so that each list of children begins with the earliest.
    for (std::size_t i = size; i-- > 0;) {
        if (graph.parent[i] >= 0) {
            const auto parent = static_cast<std::size_t>(graph.parent[i]);
            next[i] = first[parent];
            first[parent] = static_cast<std::int64_t>(i);
        } else if (keep[i] != 0) {
            roots.push_back(i);
        }
    }
    std::ranges::reverse(roots);
    std::ranges::stable_sort(roots, {}, [&graph](std::size_t root) { return graph.time[root]; });
    std::vector<std::size_t> order;
    order.reserve(size);
    std::vector<std::int64_t> place(size, -1);
    for (const std::size_t root : roots) {
        std::size_t at = root;
        std::int32_t depth = 0;
        for (;;) {
            place[at] = static_cast<std::int64_t>(order.size());
            order.push_back(at);
            graph.depth[at] = depth;
            if (first[at] >= 0) {
                at = static_cast<std::size_t>(first[at]);
                ++depth;
                continue;
            }
            while (at != root && next[at] < 0) {
                at = static_cast<std::size_t>(graph.parent[at]);
                --depth;
            }
            if (at == root) {
                break;
            }
            at = static_cast<std::size_t>(next[at]);
        }
    }
    for (std::int64_t& parent : graph.parent) {
        parent = parent < 0 ? -1 : place[static_cast<std::size_t>(parent)];
    }
    reorder(graph.time, order);
    reorder(graph.duration, order);
    reorder(graph.parent, order);
    reorder(graph.depth, order);
    reorder(graph.function, order);
    reorder(graph.pid, order);
    reorder(graph.cpu, order);
    reorder(graph.complete, order);
}

}  // namespace

CallGraph call_graph(const TraceFile& file, const GraphRequest& request) {
    CallGraph out;
    GraphSink sink(file, request, out);
    const WalkStats stats = walk(file, request.selection, sink);
    out.metadata = loss_metadata(file, stats);
    std::vector<std::uint8_t> keep(out.size(), 1);
    if (!request.functions.empty()) {
        for (std::size_t i = 0; i < out.size(); ++i) {
            const std::string& name = out.names->at(out.function[i]);
            keep[i] = std::ranges::any_of(request.functions,
                                          [&name](const std::string& glob) { return glob_match(glob, name); })
                          ? 1
                          : 0;
        }
    }
    sort_depth_first(out, keep);
    out.self = out.duration;
    std::uint64_t incomplete = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
        incomplete += out.complete[i] == 0 ? 1 : 0;
        if (out.parent[i] >= 0) {
            std::uint64_t& self = out.self[static_cast<std::size_t>(out.parent[i])];
            // Clocks of two readings may cross by some nanoseconds.
            self -= std::min(self, out.duration[i]);
        }
    }
    if (incomplete != 0) {
        out.metadata["incomplete_calls"] = std::to_string(incomplete);
    }
    return out;
}

Table graph_table(const CallGraph& graph) {
    std::vector<Column> columns;
    columns.emplace_back("time", graph.time, "ns");
    columns.emplace_back("duration", graph.duration, "ns");
    columns.emplace_back("self", graph.self, "ns");
    columns.emplace_back("parent", graph.parent);
    columns.emplace_back("depth", graph.depth);
    columns.emplace_back("function", graph.function, graph.names);
    columns.emplace_back("pid", graph.pid);
    columns.emplace_back("cpu", graph.cpu);
    columns.emplace_back("complete", graph.complete);
    return Table(std::move(columns), graph.metadata);
}

char duration_mark(std::uint64_t nanoseconds) noexcept {
    if (nanoseconds > 1'000'000'000) {
        return '$';
    }
    if (nanoseconds > 100'000'000) {
        return '@';
    }
    if (nanoseconds > 10'000'000) {
        return '*';
    }
    if (nanoseconds > 1'000'000) {
        return '#';
    }
    if (nanoseconds > 100'000) {
        return '!';
    }
    return nanoseconds > 10'000 ? '+' : ' ';
}

std::string duration_text(std::uint64_t nanoseconds) {
    std::string out = std::to_string(nanoseconds / 1000);
    std::size_t length = out.size();
    if (length < 7) {
        // At most seven digits in all: the fraction gives way to large numbers.
        std::string fraction = std::to_string(nanoseconds % 1000);
        fraction.insert(0, 3 - fraction.size(), '0');
        fraction.resize(std::min<std::size_t>(3, 7 - length));
        out += "." + fraction;
        length += fraction.size() + 1;
    }
    out += " us ";
    out.append(length < 8 ? 8 - length : 0, ' ');
    return out;
}

std::string graph_text(const CallGraph& graph, std::size_t first, std::size_t rows, std::int32_t depth) {
    std::string out;
    const std::size_t end = std::min(graph.size(), first + std::min(rows, graph.size()));
    std::uint16_t highest = 0;
    for (const std::uint16_t cpu : graph.cpu) {
        highest = std::max(highest, cpu);
    }
    const std::size_t width = std::to_string(highest).size();
    const auto head = [&](std::size_t row) {
        const std::string cpu = std::to_string(graph.cpu[row]);
        out += " ";
        out.append(width - cpu.size(), ' ');
        out += cpu + ") ";
    };
    const auto timed = [&](std::size_t row, std::string_view text) {
        head(row);
        if (graph.complete[row] != 0 || graph.duration[row] != 0) {
            out += duration_mark(graph.duration[row]);
            out += ' ';
            out += duration_text(graph.duration[row]);
        } else {
            out.append(14, ' ');
        }
        out += "|  ";
        out.append(static_cast<std::size_t>(graph.depth[row]) * 2, ' ');
        out += text;
        out += '\n';
    };
    // Functions of modules carry their module, as %ps prints them.
    std::vector<std::string> display;
    for (std::size_t code = 0; code < graph.names->size(); ++code) {
        const std::string& name = graph.names->at(static_cast<std::int32_t>(code));
        const auto module = graph.modules.find(name);
        display.push_back(module == graph.modules.end() ? name : name + " [" + module->second + "]");
    }
    const auto shown = [&display](std::int32_t code) -> const std::string& {
        return display[static_cast<std::size_t>(code)];
    };
    std::vector<std::size_t> open;
    const auto close_to = [&](std::int32_t level) {
        while (!open.empty() && graph.depth[open.back()] >= level) {
            timed(open.back(), "}");
            open.pop_back();
        }
    };
    std::int32_t last_pid = -1;
    for (std::size_t row = first; row < end; ++row) {
        if (graph.depth[row] >= depth) {
            continue;
        }
        close_to(graph.depth[row]);
        if (graph.pid[row] != last_pid && last_pid != -1) {
            out += " ------------------------------------------\n";
            head(row);
            out += " task-" + std::to_string(last_pid) + "  =>  task-" + std::to_string(graph.pid[row]) + "\n";
            out += " ------------------------------------------\n\n";
        }
        last_pid = graph.pid[row];
        const std::string& name = shown(graph.function[row]);
        const bool has_callees =
            row + 1 < end && graph.depth[row + 1] > graph.depth[row] && graph.depth[row] + 1 < depth;
        if (has_callees) {
            head(row);
            out.append(14, ' ');
            out += "|  ";
            out.append(static_cast<std::size_t>(graph.depth[row]) * 2, ' ');
            out += name + "() {\n";
            open.push_back(row);
        } else {
            timed(row, name + "();");
        }
    }
    close_to(0);
    return out;
}

}  // namespace sampleblk::trace
