// SPDX-License-Identifier: MIT
#include "sampleblk/trace/timeline.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>

#include "sampleblk/interrupt.hpp"
#include "sampleblk/trace/block.hpp"
#include "sampleblk/trace/decode.hpp"
#include "sampleblk/trace/graph.hpp"

namespace sampleblk::trace {

namespace {

constexpr std::size_t kInterruptRows = 1 << 16;

void check_row(std::size_t row) {
    if (row % kInterruptRows == 0) {
        check_interrupt();
    }
}

template <typename T>
const T* values(const Table& table, std::string_view name) {
    return table.find(name)->values<T>();
}

class Builder {
  public:
    Builder(const TraceFile& file, const SyscallRequest& syscalls) : file_(file), syscalls_(syscalls) {
        const Table counts = count_events(file, syscalls.selection);
        const Column& events = *counts.find("event");
        for (std::size_t row = 0; row < counts.rows(); ++row) {
            occurs_.insert(events.pool()->at(events.values<std::int32_t>()[row]));
        }
        for (const auto& [name, value] : counts.metadata()) {
            if (name != "events") {
                out_.metadata[name] = value;
            }
        }
    }

    Timeline build() {
        if (occurs_.contains("sched:sched_switch")) {
            cpus();
        }
        if (occurs_in("syscalls:") || occurs_in("raw_syscalls:")) {
            system_calls();
        }
        if (occurs_.contains("ftrace:funcgraph_exit")) {
            functions();
        }
        if (occurs_in("block:")) {
            devices();
        }
        return std::move(out_);
    }

  private:
    [[nodiscard]] bool occurs_in(std::string_view system) const {
        const auto first = occurs_.lower_bound(system);
        return first != occurs_.end() && first->starts_with(system);
    }

    Track& add(std::string group, std::string name) {
        Track& track = out_.tracks.emplace_back();
        track.group = std::move(group);
        track.name = std::move(name);
        return track;
    }

    // What ran on each CPU, from one switch to the next; the idle task is the gaps.
    void cpus() {
        DecodeRequest request;
        request.events = {"sched:sched_switch"};
        request.fields = {"next_comm", "next_pid"};
        request.selection = syscalls_.selection;
        const Decoded decoded = decode(file_, request);
        const Table& table = decoded.tables.begin()->second;
        const auto* time = values<std::uint64_t>(table, "time");
        const auto* cpu = values<std::uint16_t>(table, "cpu");
        const auto* pid = values<std::int32_t>(table, "next_pid");
        const Column& comm = *table.find("next_comm");
        std::map<std::uint16_t, std::pair<std::size_t, std::size_t>> last;  // CPU to track and row
        for (std::size_t row = 0; row < table.rows(); ++row) {
            check_row(row);
            const auto [entry, fresh] = last.try_emplace(cpu[row], out_.tracks.size(), row);
            if (fresh) {
                (void)add("CPUs", "CPU " + std::to_string(cpu[row]));
                continue;
            }
            auto& [index, before] = entry->second;
            if (pid[before] != 0) {
                Track& track = out_.tracks[index];
                const std::int32_t code = comm.values<std::int32_t>()[before];
                const std::string who =
                    (code < 0 ? std::string("?") : comm.pool()->at(code)) + "-" + std::to_string(pid[before]);
                track.slices.push_back({time[before], time[row] - time[before], track.names->intern(who)});
            }
            before = row;
        }
        // The switches come in time order, CPUs are looked for in their own.
        std::ranges::sort(out_.tracks, {},
                          [](const Track& track) { return std::tuple(track.name.size(), track.name); });
    }

    std::size_t task(std::map<std::int32_t, std::size_t>& known, std::int32_t pid, std::string_view kind) {
        const auto [entry, fresh] = known.try_emplace(pid, out_.tracks.size());
        if (fresh) {
            const auto command = file_.commands().find(pid);
            const std::string comm = command == file_.commands().end() ? (pid == 0 ? "<idle>" : "?") : command->second;
            (void)add("Tasks", comm + "-" + std::to_string(pid) + " " + std::string(kind));
        }
        return entry->second;
    }

    void by_task(const Table& table, std::string_view name, std::string_view kind) {
        const auto* time = values<std::uint64_t>(table, "time");
        const auto* duration = values<std::uint64_t>(table, "duration");
        const auto* pid = values<std::int32_t>(table, "pid");
        const Column& what = *table.find(name);
        const auto* code = what.values<std::int32_t>();
        std::map<std::int32_t, std::size_t> known;
        for (std::size_t row = 0; row < table.rows(); ++row) {
            check_row(row);
            Track& track = out_.tracks[task(known, pid[row], kind)];
            track.slices.push_back({time[row], duration[row], track.names->intern(what.pool()->at(code[row]))});
        }
    }

    void system_calls() { by_task(syscall_table(file_, syscalls_), "syscall", "system calls"); }

    void functions() {
        GraphRequest request;
        request.selection = syscalls_.selection;
        by_task(graph_table(call_graph(file_, request)), "function", "functions");
    }

    void devices() {
        const Table table = block_table(file_, syscalls_.selection);
        const auto* issued = values<std::uint64_t>(table, "issued");
        const auto* completed = values<std::uint64_t>(table, "completed");
        const auto* sector = values<std::uint64_t>(table, "sector");
        const auto* sectors = values<std::uint32_t>(table, "sectors");
        const Column& device = *table.find("device");
        const Column& rwbs = *table.find("rwbs");
        std::map<std::int32_t, std::vector<std::size_t>> rows;  // of each device
        for (std::size_t row = 0; row < table.rows(); ++row) {
            if (issued[row] != 0 && completed[row] >= issued[row]) {
                rows[device.values<std::int32_t>()[row]].push_back(row);
            }
        }
        for (auto& [code, own] : rows) {
            check_interrupt();
            const std::string name = device.pool()->at(code);
            std::ranges::sort(own, {}, [issued](std::size_t row) { return std::pair(issued[row], row); });
            // Requests overlap, slices of one line must not: each goes to the first line that is free.
            std::vector<std::pair<std::uint64_t, std::size_t>> lanes;  // until when it is taken, its track
            std::vector<std::pair<std::uint64_t, std::int64_t>> steps;
            for (const std::size_t row : own) {
                auto lane = std::ranges::find_if(lanes, [&](const auto& taken) { return taken.first <= issued[row]; });
                if (lane == lanes.end()) {
                    lane = lanes.insert(lane, {0, out_.tracks.size()});
                    (void)add("Device " + name, name + " requests " + std::to_string(lanes.size() - 1));
                }
                Track& track = out_.tracks[lane->second];
                const std::string text = rwbs.pool()->at(rwbs.values<std::int32_t>()[row]) + " " +
                                         std::to_string(sector[row]) + " + " + std::to_string(sectors[row]);
                track.slices.push_back({issued[row], completed[row] - issued[row], track.names->intern(text)});
                lane->first = completed[row];
                steps.emplace_back(issued[row], 1);
                steps.emplace_back(completed[row], -1);
            }
            depth(name, std::move(steps));
        }
    }

    void depth(const std::string& device, std::vector<std::pair<std::uint64_t, std::int64_t>> steps) {
        // At one moment completions go first, so that the depth is never overstated.
        std::ranges::sort(steps);
        std::int64_t value = 0;
        for (auto& [time, step] : steps) {
            step = value += step;
        }
        add("Device " + device, device + " queue depth").counter = std::move(steps);
    }

    const TraceFile& file_;
    const SyscallRequest& syscalls_;
    std::set<std::string, std::less<>> occurs_;
    Timeline out_;
};

}  // namespace

Timeline make_timeline(const TraceFile& file, const SyscallRequest& syscalls) {
    Timeline out = Builder(file, syscalls).build();
    for (Track& track : out.tracks) {
        // A caller before what it calls, where both begin at one moment.
        std::ranges::stable_sort(track.slices, [](const Slice& a, const Slice& b) {
            return a.start != b.start ? a.start < b.start : a.duration > b.duration;
        });
    }
    return out;
}

}  // namespace sampleblk::trace
