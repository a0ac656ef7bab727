// SPDX-License-Identifier: MIT
#include "sampleblk/trace/graph.hpp"

#include <algorithm>
#include <utility>

#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/trace/decode.hpp"
#include "views/graph_sink.hpp"

namespace sampleblk::trace {

namespace {

// ns between a call's time stamp and its event's, with an interrupt between them.
constexpr std::uint64_t kReading = 20'000;

}  // namespace

GraphSink::GraphSink(const TraceFile& file, const GraphRequest& request, CallGraph& out)
    : PlainSink(file),
      swap_(swap_needed(file.big_endian())),
      pids_(request.pids.begin(), request.pids.end()),
      functions_(request.functions),
      out_(out) {
    const BufferNames buffers(file, request.selection.buffer);
    several_ = buffers.several();
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        out_.buffers.push_back(buffers.at(static_cast<std::uint16_t>(i)));
    }
    out_.time_unit = file.time_unit(request.selection.buffer);
    ns_ = out_.time_unit == "ns";
    const auto entry_of = [this](const EventFormat& format) {
        return Entry{format.fixed_size, FieldReader(format, "func", swap_), FieldReader(format, "depth", swap_),
                     FieldReader(format, "common_pid", swap_)};
    };
    if (const EventFormat* entry = file.find_event("ftrace:funcgraph_entry")) {
        entry_id_ = static_cast<std::int32_t>(entry->id);
        entry_ = entry_of(*entry);
    }
    // 6.14 added an entry with the return address in it, for funcgraph-retaddr.
    if (const EventFormat* retaddr = file.find_event("ftrace:fgraph_retaddr_entry")) {
        retaddr_id_ = static_cast<std::int32_t>(retaddr->id);
        retaddr_ = entry_of(*retaddr);
    }
    if (const EventFormat* exit = file.find_event("ftrace:funcgraph_exit")) {
        exit_id_ = static_cast<std::int32_t>(exit->id);
        exit_ = {exit->fixed_size,
                 FieldReader(*exit, "func", swap_),
                 FieldReader(*exit, "depth", swap_),
                 FieldReader(*exit, "common_pid", swap_),
                 FieldReader(*exit, "calltime", swap_),
                 FieldReader(*exit, "rettime", swap_)};
        // Else it is the time between the two events.
        out_.duration_unit = exit_.call && exit_.ret ? "ns" : out_.time_unit;
    }
}

void GraphSink::record(const Event& event) {
    if (!whole(event, kTypeSize)) [[unlikely]] {
        return;
    }
    const auto id = static_cast<std::int32_t>(load<std::uint16_t>(event.data, swap_));
    if (id == entry_id_ && whole(event, entry_.fixed_size)) {
        enter(event, entry_);
    } else if (id == exit_id_ && whole(event, exit_.fixed_size)) {
        leave(event);
    } else if (id == retaddr_id_ && whole(event, retaddr_.fixed_size)) {
        enter(event, retaddr_);
    }
}

// The idle task has pid 0 on every CPU; each buffer has the calls of its own events.
GraphSink::Task& GraphSink::task(std::int32_t pid, const Event& event) {
    const Place place = event.place;
    const std::uint64_t own = pid != 0 ? static_cast<std::uint32_t>(pid) : std::uint64_t{1} << 32U | place.cpu;
    const std::uint64_t key = std::uint64_t{place.buffer} << 33U | own;
    if (key != last_key_ || last_ == nullptr) {
        last_key_ = key;
        last_ = &tasks_[key];
    }
    Task& out = *last_;
    if (gaps_.since(out.last, out.place) || gaps_.since(out.last, place)) [[unlikely]] {
        out.known = out.last;
        out.rows = out_.size();
    }
    out.last = event.time;
    out.place = place;
    return out;
}

GraphSink::Name GraphSink::name_of(std::uint64_t address) {
    const auto [entry, fresh] = names_.try_emplace(address);
    if (fresh) {
        entry->second.function = out_.names->intern(file().symbols().describe(address));
        const Symbol* symbol = file().symbols().find(address);
        if (symbol != nullptr && !symbol->module.empty()) {
            entry->second.module = out_.names->intern(symbol->module);
        }
    }
    return entry->second;
}

std::size_t GraphSink::add_row(std::uint64_t time, Place place, std::int32_t pid, std::uint64_t function,
                               std::int64_t parent, std::int32_t depth) {
    const Name name = name_of(function);
    out_.time.push_back(time);
    out_.duration.push_back(0);
    out_.parent.push_back(parent);
    out_.depth.push_back(depth);
    out_.function.push_back(name.function);
    out_.module.push_back(name.module);
    out_.pid.push_back(pid);
    out_.cpu.push_back(place.cpu);
    if (several_) {
        out_.buffer.push_back(place.buffer);
    }
    out_.complete.push_back(0);
    return out_.time.size() - 1;
}

bool GraphSink::plausible(std::int32_t depth, const Event& event) {
    if (depth >= 0 && depth < kDeepestCall) [[likely]] {
        return true;
    }
    refuse(event, "a call's depth below " + std::to_string(kDeepestCall) + ", not " + std::to_string(depth));
    return false;
}

void GraphSink::enter(const Event& event, const Entry& entry) {
    const auto pid = static_cast<std::int32_t>(entry.pid.get(event.data));
    if (!pids_.empty() && !pids_.contains(pid)) {
        return;
    }
    Task& here = task(pid, event);
    const auto depth = static_cast<std::int32_t>(entry.depth.get(event.data));
    if (!plausible(depth, event)) {
        return;
    }
    // A frame as deep as this one, or deeper, has ended; its exit was lost.
    while (!here.stack.empty() && here.stack.back().depth >= depth) {
        here.stack.pop_back();
    }
    const std::uint64_t function = entry.func.get(event.data);
    const std::int64_t parent = here.stack.empty() ? -1 : static_cast<std::int64_t>(here.stack.back().row);
    const std::int32_t shown = parent < 0 ? 0 : out_.depth[static_cast<std::size_t>(parent)] + 1;
    const std::size_t row = add_row(event.time, event.place, pid, function, parent, shown);
    here.stack.push_back({row, depth, function});
}

void GraphSink::leave(const Event& event) {
    const auto pid = static_cast<std::int32_t>(exit_.pid.get(event.data));
    if (!pids_.empty() && !pids_.contains(pid)) {
        return;
    }
    Task& here = task(pid, event);
    const auto depth = static_cast<std::int32_t>(exit_.depth.get(event.data));
    if (!plausible(depth, event)) {
        return;
    }
    const std::uint64_t function = exit_.func.get(event.data);
    while (!here.stack.empty() && here.stack.back().depth > depth) {
        here.stack.pop_back();
    }
    // The kernel takes both from one clock in ns, whatever the buffer's is. Each is of its CPU: a task that went to
    // another one may be back before it began.
    const bool timed = exit_.call && exit_.ret;
    const std::uint64_t called = timed ? exit_.call.get(event.data) : 0;
    const std::uint64_t returned = timed ? exit_.ret.get(event.data) : 0;
    const std::uint64_t duration = returned > called ? returned - called : 0;
    const std::uint64_t began = ns_ && duration <= event.time ? event.time - duration : event.time;
    const bool open = !here.stack.empty() && here.stack.back().depth == depth;
    const bool same = open && here.stack.back().function == function;
    const bool doubtful = same && here.known >= out_.time[here.stack.back().row];
    // One that began after the last event before the gap is another call, whose entry was lost.
    const bool other = doubtful && timed && ns_ && began > here.known + kReading;
    across_gaps_ += other || (doubtful && !(timed && ns_)) ? 1 : 0;
    if (same && !other) {
        const std::size_t row = here.stack.back().row;
        here.stack.pop_back();
        const bool known = timed ? returned >= called : event.time >= out_.time[row];
        out_.duration[row] = timed || !known ? duration : event.time - out_.time[row];
        out_.complete[row] = known ? 1 : 0;
        return;
    }
    const std::size_t row = add_row(began, event.place, pid, function, -1, 0);
    out_.duration[row] = duration;
    if (open) {
        end_lost(here, began, row);
    }
    if (!here.stack.empty() && here.stack.back().depth == depth - 1) {
        out_.parent[row] = static_cast<std::int64_t>(here.stack.back().row);
    }
    // Callees end before their caller does: those one level down since it began are its own.
    while (!here.orphans.empty() && here.orphans.back().depth > depth &&
           (!ns_ || out_.time[here.orphans.back().row] >= began)) {
        if (here.orphans.back().depth == depth + 1) {
            out_.parent[here.orphans.back().row] = static_cast<std::int64_t>(row);
        }
        here.orphans.pop_back();
    }
    here.orphans.push_back({row, depth, function});
}

void GraphSink::end_lost(Task& task, std::uint64_t began, std::size_t row) {
    const std::size_t ended = task.stack.back().row;
    task.stack.pop_back();
    for (std::size_t i = std::max(ended + 1, task.rows); i < row && ns_; ++i) {
        if (out_.parent[i] == static_cast<std::int64_t>(ended) && out_.time[i] >= began) {
            out_.parent[i] = static_cast<std::int64_t>(row);
        }
    }
}

namespace {

template <typename T>
void reorder(std::vector<T>& values, const std::vector<std::size_t>& order) {
    std::vector<T> out;
    out.reserve(order.size());
    for (const std::size_t row : order) {
        out.push_back(values[row]);
    }
    values = std::move(out);
}

// Tasks that ran side by side are taken apart, and callers come before their callees.
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
    reorder(graph.module, order);
    reorder(graph.pid, order);
    reorder(graph.cpu, order);
    if (!graph.buffer.empty()) {
        reorder(graph.buffer, order);
    }
    reorder(graph.complete, order);
}

}  // namespace

void GraphSink::arrange() {
    std::vector<std::uint8_t> keep(out_.size(), 1);
    if (!functions_.empty()) {
        for (std::size_t i = 0; i < out_.size(); ++i) {
            const std::string& name = out_.names->at(out_.function[i]);
            keep[i] =
                std::ranges::any_of(functions_, [&name](const std::string& glob) { return glob_match(glob, name); })
                    ? 1
                    : 0;
        }
    }
    arrange_graph(out_, keep);
    if (across_gaps_ != 0) {
        out_.metadata["across_gaps"] = std::to_string(across_gaps_);
    }
}

void arrange_graph(CallGraph& graph, const std::vector<std::uint8_t>& keep) {
    sort_depth_first(graph, keep);
    graph.self = graph.duration;
    std::uint64_t incomplete = 0;
    for (std::size_t i = 0; i < graph.size(); ++i) {
        incomplete += graph.complete[i] == 0 ? 1 : 0;
        if (graph.parent[i] >= 0) {
            std::uint64_t& self = graph.self[static_cast<std::size_t>(graph.parent[i])];
            // Clocks of two readings may cross by some nanoseconds.
            self -= std::min(self, graph.duration[i]);
        }
    }
    if (incomplete != 0) {
        graph.metadata["incomplete_calls"] = std::to_string(incomplete);
    }
}

CallGraph call_graph(const TraceFile& file, const GraphRequest& request) {
    CallGraph out;
    GraphSink sink(file, request, out);
    WalkStats stats = walk(file, request.selection, sink);
    stats.damage.add(sink.damage());
    auto losses = loss_metadata(file, request.selection, stats);
    sink.arrange();
    out.metadata.merge(losses);
    return out;
}

Table graph_table(const CallGraph& graph) {
    std::vector<Column> columns;
    columns.emplace_back("time", graph.time, graph.time_unit);
    columns.emplace_back("duration", graph.duration, graph.duration_unit);
    columns.emplace_back("self", graph.self, graph.duration_unit);
    columns.emplace_back("parent", graph.parent);
    columns.emplace_back("depth", graph.depth);
    columns.emplace_back("function", graph.function, graph.names);
    columns.emplace_back("module", graph.module, graph.names);
    columns.emplace_back("pid", graph.pid);
    columns.emplace_back("cpu", graph.cpu);
    columns.emplace_back("complete", graph.complete);
    if (!graph.buffer.empty()) {
        auto pool = std::make_shared<StringPool>();
        std::vector<std::int32_t> codes;
        codes.reserve(graph.size());
        for (const std::uint16_t number : graph.buffer) {
            codes.push_back(pool->intern(graph.buffers.at(number)));
        }
        columns.emplace_back("buffer", std::move(codes), std::move(pool));
    }
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
    const auto shown = [&graph](std::size_t row) {
        const std::string& name = graph.names->at(graph.function[row]);
        return graph.module[row] < 0 ? name : name + " [" + graph.names->at(graph.module[row]) + "]";
    };
    std::vector<std::size_t> open;
    const auto close_to = [&](std::int32_t level) {
        while (!open.empty() && graph.depth[open.back()] >= level) {
            timed(open.back(), "}");
            open.pop_back();
        }
    };
    std::int32_t last_pid = -1;
    std::int32_t last_buffer = -1;
    for (std::size_t row = first; row < end; ++row) {
        if ((row & 0xffff) == 0) {
            check_interrupt();
        }
        if (graph.depth[row] >= depth) {
            continue;
        }
        close_to(graph.depth[row]);
        if (!graph.buffer.empty() && graph.buffer[row] != last_buffer) {
            last_buffer = graph.buffer[row];
            out += "# buffer: " + graph.buffers.at(graph.buffer[row]) + "\n";
        }
        if (graph.pid[row] != last_pid && last_pid != -1) {
            out += " ------------------------------------------\n";
            head(row);
            out += " task-" + std::to_string(last_pid) + "  =>  task-" + std::to_string(graph.pid[row]) + "\n";
            out += " ------------------------------------------\n\n";
        }
        last_pid = graph.pid[row];
        const std::string name = shown(row);
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
