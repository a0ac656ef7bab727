// SPDX-License-Identifier: MIT
#include "sampleblk/trace/timeline.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <tuple>

#include "events/dictionary.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/trace/decode.hpp"
#include "views/block_sink.hpp"
#include "views/graph_sink.hpp"
#include "views/syscall_sink.hpp"

namespace sampleblk::trace {

namespace {

constexpr std::size_t kInterruptRows = 1 << 16;

void check_row(std::size_t row) {
    if (row % kInterruptRows == 0) {
        check_interrupt();
    }
}

// What each CPU was switched to.
class SwitchSink : public PlainSink {
  public:
    struct Switch {
        std::uint64_t time = 0;
        std::int32_t pid = 0;
        std::int32_t comm = -1;  // code in names
        Place place;
    };

    explicit SwitchSink(const TraceFile& file) : PlainSink(file), swap_(swap_needed(file.big_endian())) {
        const EventFormat* format = file.find_event("sched:sched_switch");
        if (format == nullptr) {
            return;
        }
        fixed_size_ = format->fixed_size;
        const Field* pid = format->find("next_pid");
        if (pid == nullptr || pid->kind != FieldKind::number || pid->size != 4) {
            return;  // a format without a task to switch to says nothing about CPUs
        }
        id_ = static_cast<std::int32_t>(format->id);
        pid_ = FieldReader(*format, "next_pid", swap_);
        if (const Field* comm = format->find("next_comm"); comm != nullptr && comm->kind == FieldKind::text) {
            comm_offset_ = comm->offset;
            comm_size_ = comm->size;
        }
    }

    void record(const Event& event) {
        if (!whole(event, kTypeSize) || static_cast<std::int32_t>(load<std::uint16_t>(event.data, swap_)) != id_ ||
            !whole(event, fixed_size_)) {
            return;
        }
        Switch one{event.time, static_cast<std::int32_t>(pid_.get(event.data)), -1, event.place};
        if (comm_size_ != 0) {
            one.comm = names.code({reinterpret_cast<const char*>(event.data + comm_offset_), comm_size_});
        }
        switches.push_back(one);
    }
    // Who ran before, and until when, may be among what was lost.
    void missed(Place place, std::uint64_t time, std::uint64_t /*count*/) {
        if (id_ >= 0) {
            switches.push_back({time, kUnknown, -1, place});
        }
    }

    static constexpr std::int32_t kUnknown = -1;
    std::vector<Switch> switches;
    Dictionary names;

  private:
    bool swap_;
    std::int32_t id_ = -1;
    std::uint32_t fixed_size_ = 0;
    FieldReader pid_;
    std::uint32_t comm_offset_ = 0;
    std::uint32_t comm_size_ = 0;
};

class Builder {
  public:
    Builder(const TraceFile& file, const SyscallRequest& request)
        : file_(file), buffers_(file, request.selection.buffer) {
        GraphRequest functions;
        functions.selection = request.selection;
        CallGraph graph;
        SwitchSink switches(file);
        std::vector<SyscallRow> calls;
        SyscallSink syscalls(file, request, [&calls](const SyscallRow& call) { calls.push_back(call); });
        GraphSink calls_of_functions(file, functions, graph);
        BlockSink block(file);
        Together all(switches, syscalls, calls_of_functions, block);
        WalkStats stats = walk(file, request.selection, all);
        for (const Damage* damage :
             {&switches.damage(), &syscalls.damage(), &calls_of_functions.damage(), &block.damage()}) {
            stats.damage.add(*damage);
        }
        out_.metadata = loss_metadata(file, request.selection, stats);
        cpus(switches);
        for (const SyscallRow& call : calls) {
            check_row(row_++);
            if (syscalls.counts(call.place.buffer, call.raw)) {
                slice("system calls", call.pid, call.place.buffer, call.time, call.duration,
                      syscalls.names()->at(call.name));
            }
        }
        tasks_.clear();
        calls_of_functions.arrange();
        for (std::size_t row = 0; row < graph.size(); ++row) {
            check_row(row);
            slice("functions", graph.pid[row], graph.buffer.empty() ? std::uint16_t{0} : graph.buffer[row],
                  graph.time[row], graph.duration[row], graph.names->at(graph.function[row]));
        }
        devices(block);
    }

    [[nodiscard]] Timeline take() { return std::move(out_); }

  private:
    Track& add(std::string group, std::string name) {
        Track& track = out_.tracks.emplace_back();
        track.group = std::move(group);
        track.name = std::move(name);
        return track;
    }

    // What ran on each CPU, from one switch to the next; the idle task is the gaps.
    void cpus(SwitchSink& sink) {
        std::map<std::pair<std::uint16_t, std::uint16_t>, std::pair<std::size_t, std::size_t>>
            last;  // to track and row
        for (std::size_t row = 0; row < sink.switches.size(); ++row) {
            check_row(row);
            const SwitchSink::Switch& now = sink.switches[row];
            const auto [entry, fresh] =
                last.try_emplace({now.place.buffer, now.place.cpu}, std::pair(out_.tracks.size(), row));
            if (fresh) {
                (void)add("CPUs" + buffers_.suffix(now.place.buffer), "CPU " + std::to_string(now.place.cpu));
                continue;
            }
            auto& [index, before] = entry->second;
            const SwitchSink::Switch& was = sink.switches[before];
            const bool known = was.pid != SwitchSink::kUnknown && now.pid != SwitchSink::kUnknown;
            if (known && was.pid != 0 && now.time >= was.time) {  // else of a damaged page, whose time nobody can tell
                Track& track = out_.tracks[index];
                const std::string who =
                    (was.comm < 0 ? std::string("?") : sink.names.pool()->at(was.comm)) + "-" + std::to_string(was.pid);
                track.slices.push_back({was.time, now.time - was.time, track.names->intern(who)});
            }
            before = row;
        }
        // The switches come in time order, CPUs are looked for in their own.
        std::ranges::sort(out_.tracks, {},
                          [](const Track& track) { return std::tuple(track.group, track.name.size(), track.name); });
    }

    void slice(std::string_view kind, std::int32_t pid, std::uint16_t buffer, std::uint64_t time,
               std::uint64_t duration, const std::string& name) {
        const auto [entry, fresh] = tasks_.try_emplace({buffer, pid}, out_.tracks.size());
        if (fresh) {
            const auto command = file_.commands().find(pid);
            const std::string comm = command == file_.commands().end() ? (pid == 0 ? "<idle>" : "?") : command->second;
            (void)add("Tasks" + buffers_.suffix(buffer), comm + "-" + std::to_string(pid) + " " + std::string(kind));
        }
        Track& track = out_.tracks[entry->second];
        track.slices.push_back({time, duration, track.names->intern(name)});
    }

    // Whether what has one end in the recording was in flight as it began or ended.
    [[nodiscard]] bool has_all(std::string_view begin, std::string_view end) const {
        const auto said = [this](const char* name) { return out_.metadata.contains(name); };
        return out_.metadata.at("lost_events") == "0" && !said("gaps") && !said("unread") &&
               file_.find_event(begin) != nullptr && file_.find_event(end) != nullptr;
    }

    // Of parts of a bio Linux 5.10 tells the end of the last alone: by row the end of what follows, else 0.
    [[nodiscard]] std::vector<std::uint64_t> ends_of_parts(const std::vector<BlockRequest>& bios) const {
        std::vector<std::uint64_t> ends(bios.size());
        const std::size_t release = file_.uname().find(' ', file_.uname().find(' ') + 1) + 1;
        if (std::atoi(file_.uname().c_str() + release) >= 6) {
            return ends;
        }
        std::map<std::tuple<std::uint16_t, std::uint32_t, char, std::int32_t, std::uint64_t>, std::uint64_t> known;
        for (std::size_t row = bios.size(); row-- > 0;) {
            const BlockRequest& bio = bios[row];
            const auto end = [&](std::uint64_t sector) -> std::uint64_t& {
                return known[{bio.buffer, bio.dev, bio.operation, bio.pid, sector}];
            };
            check_row(bios.size() - row);
            const bool begun = bio.queued != 0 && bio.completed == 0;
            ends[row] = begun ? end(bio.sector + bio.sectors) : 0;
            end(bio.sector) = begun ? ends[row] : bio.completed;
        }
        return ends;
    }

    using Steps = std::vector<std::pair<std::uint64_t, std::int64_t>>;
    struct Device {
        // Those that were issued and completed, by when the driver got them; of one that makes no requests its bios.
        std::vector<std::pair<std::uint64_t, const BlockRequest*>> requests;
        Steps halves;  // of those with one end
        Steps unsure;  // the same of appends and flushes
        bool of_bios = true;
        bool has_bios = false;  // one that was queued and completed
    };

    void devices(const BlockSink& sink) {
        std::map<std::pair<std::uint16_t, std::uint32_t>, Device> devices;
        std::vector<std::pair<std::uint16_t, std::uint32_t>> order;  // in which they appear
        const bool all = has_all("block:block_rq_issue", "block:block_rq_complete");
        const bool all_bios = has_all("block:block_bio_queue", "block:block_bio_complete");
        const bool bios = file_.find_event("block:block_bio_queue") != nullptr &&
                          file_.find_event("block:block_bio_complete") != nullptr;
        for (const BlockRequest& request : sink.requests) {
            Device& device = devices[{request.buffer, request.dev}];
            device.of_bios = device.of_bios && bios && (request.gotten | request.inserted | request.issued) == 0;
            device.has_bios = device.has_bios || (request.queued != 0 && request.completed != 0);
        }
        const bool begun_bios =
            all_bios && std::ranges::any_of(devices, [](const auto& one) { return one.second.of_bios; });
        const std::vector<std::uint64_t> ends =
            begun_bios ? ends_of_parts(sink.requests) : std::vector<std::uint64_t>(sink.requests.size());
        for (std::size_t row = 0; row < sink.requests.size(); ++row) {
            const BlockRequest& request = sink.requests[row];
            const auto place = std::pair(request.buffer, request.dev);
            Device& device = devices.at(place);
            const std::uint64_t begin = device.of_bios ? request.queued : request.issued;
            const bool whole = begin != 0 && request.completed >= begin;
            const bool half = (device.of_bios ? all_bios && device.has_bios : all) &&
                              (begin != 0 ? request.completed == 0 : request.only_completed());
            if (request.swallowed || !(whole || half)) {
                continue;
            }
            if (device.requests.empty() && device.halves.empty() && device.unsure.empty()) {
                order.emplace_back(place);
            }
            if (whole) {
                device.requests.emplace_back(begin, &request);
            } else {
                const bool paired = std::string_view("RWD").find(request.operation) != std::string_view::npos;
                const std::uint64_t end = device.of_bios ? ends[row] : 0;
                Steps& steps = paired && end == 0 ? device.halves : device.unsure;
                steps.emplace_back(begin + request.completed, begin != 0 ? 1 : -1);
                if (end >= begin && end != 0) {
                    steps.emplace_back(end, -1);
                }
            }
        }
        for (const auto& place : order) {
            check_interrupt();
            Device& device = devices.at(place);
            auto& own = device.requests;
            const std::string name = device_name(place.second);
            const std::string group = "Device " + name + buffers_.suffix(place.first);
            std::ranges::stable_sort(own, {}, [](const auto& one) { return one.first; });
            // Requests overlap, slices of one line must not: each goes to the first line that is free.
            std::vector<std::pair<std::uint64_t, std::size_t>> lanes;  // until when it is taken, its track
            Steps steps;
            const std::string what = device.of_bios ? " bios " : " requests ";
            for (const auto& [begin, request] : own) {
                auto lane =
                    std::ranges::find_if(lanes, [from = begin](const auto& taken) { return taken.first <= from; });
                if (lane == lanes.end()) {
                    lane = lanes.insert(lane, {0, out_.tracks.size()});
                    (void)add(group, name + what + std::to_string(lanes.size() - 1));
                }
                Track& track = out_.tracks[lane->second];
                const std::string text = sink.names->at(request->rwbs) + " " + std::to_string(request->sector) + " + " +
                                         std::to_string(request->sectors);
                track.slices.push_back({begin, request->completed - begin, track.names->intern(text)});
                lane->first = request->completed;
                steps.emplace_back(begin, 1);
                steps.emplace_back(request->completed, -1);
            }
            depth(group, name, std::move(steps), device.halves, device.unsure);
        }
    }

    // As Block.queue_depth() of analysis/block.py counts.
    void depth(const std::string& group, const std::string& device, Steps steps, const Steps& halves, Steps unsure) {
        // At one moment completions go first, so that the depth is never overstated.
        std::ranges::sort(unsure);
        std::int64_t value = 0;
        std::int64_t lowest = 0;
        for (const auto& [time, step] : unsure) {
            lowest = std::min(lowest, value += step);
        }
        value = std::ranges::count_if(halves, [](const auto& half) { return half.second < 0; }) - lowest;
        steps.insert(steps.end(), halves.begin(), halves.end());
        steps.insert(steps.end(), unsure.begin(), unsure.end());
        std::ranges::sort(steps);
        for (auto& [time, step] : steps) {
            step = value += step;
        }
        add(group, device + " queue depth").counter = std::move(steps);
    }

    const TraceFile& file_;
    BufferNames buffers_;
    std::size_t row_ = 0;
    std::map<std::pair<std::uint16_t, std::int32_t>, std::size_t> tasks_;  // to track, of one kind
    Timeline out_;
};

}  // namespace

Timeline make_timeline(const TraceFile& file, const SyscallRequest& syscalls) {
    file.require_ns(syscalls.selection.buffer, "a timeline");
    Timeline out = Builder(file, syscalls).take();
    for (Track& track : out.tracks) {
        // A caller before what it calls, where both begin at one moment.
        std::ranges::stable_sort(track.slices, [](const Slice& a, const Slice& b) {
            return a.start != b.start ? a.start < b.start : a.duration > b.duration;
        });
    }
    return out;
}

}  // namespace sampleblk::trace
