// SPDX-License-Identifier: MIT
#include "sampleblk/profile/off_cpu.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <unordered_set>

#include "sampleblk/error.hpp"
#include "views/stack_reader.hpp"
#include "views/switches.hpp"

namespace sampleblk::profile {

namespace {

bool is_clock(const perf_event_attr& attr) {
    return attr.type == PERF_TYPE_SOFTWARE &&
           (attr.config == PERF_COUNT_SW_CPU_CLOCK || attr.config == PERF_COUNT_SW_TASK_CLOCK);
}

// How long one sample of an event stands for; 0 where each is of so many of something that is no time.
std::uint64_t sample_ns(const Profile& profile, std::size_t event, std::uint32_t sample) {
    const perf_event_attr& attr = profile.file().events()[event].attr;
    if (is_clock(attr)) {
        return profile.periods()[sample];
    }
    return attr.freq != 0 && attr.sample_freq != 0 ? 1000000000U / attr.sample_freq : 0;
}

// The event whose samples tell how long a CPU was where: trace points, page faults and their like tell how often.
std::optional<std::size_t> cpu_event(const Profile& profile) {
    const auto& events = profile.file().events();
    for (std::size_t i = 0; i < events.size(); ++i) {
        const perf_event_attr& attr = events[i].attr;
        const bool counts = attr.type == PERF_TYPE_TRACEPOINT || attr.type == PERF_TYPE_BREAKPOINT ||
                            (attr.type == PERF_TYPE_SOFTWARE && !is_clock(attr));
        if (!counts) {
            return i;
        }
    }
    return std::nullopt;
}

// Whether its samples tell how long: not those of every so many cycles.
bool tells_time(const Profile& profile, std::size_t event) {
    const perf_event_attr& attr = profile.file().events()[event].attr;
    return is_clock(attr) || (attr.freq != 0 && attr.sample_freq != 0);
}

void note_unknown_time(const Profile& profile, std::map<std::string, std::string>& metadata) {
    if (const auto event = cpu_event(profile); event && !tells_time(profile, *event)) {
        metadata["on_cpu"] =
            "not known: a sample is of so many " + profile.file().events()[*event].name + ", not of a time";
    }
}

// Its samples, whatever event the selection names.
std::vector<std::uint32_t> on_cpu(const Profile& profile, std::size_t event, SampleSelection selection) {
    selection.event = profile.file().events()[event].name;
    return profile.select(selection);
}

// Whether a sample is of a thread and a CPU that were asked for: a thread goes off the CPU that its sample is of.
class Taken {
  public:
    Taken(const Profile& profile, const SampleSelection& selection)
        : profile_(profile),
          cpus_(selection.cpus),
          comm_(selection.comm ? profile.names().find(*selection.comm).value_or(-2) : -1) {
        const auto pids = profile.with_children(selection.pids, selection.children);
        pids_.insert(pids.begin(), pids.end());
    }
    bool operator()(std::uint32_t sample) const {
        return (pids_.empty() || pids_.contains(profile_.pids()[sample])) &&
               (cpus_.empty() || std::ranges::find(cpus_, profile_.cpus()[sample]) != cpus_.end()) &&
               (comm_ == -1 || profile_.comms()[sample] == comm_);
    }

  private:
    const Profile& profile_;
    const decltype(SampleSelection::cpus)& cpus_;
    std::unordered_set<std::int32_t> pids_;
    std::int32_t comm_;
};

// How many of them are of a length in doubt.
void note_gaps(const std::vector<OffCpu>& stretches, std::map<std::string, std::string>& metadata) {
    if (const auto count = std::ranges::count_if(stretches, &OffCpu::across_gap); count != 0) {
        metadata["across_gaps"] = std::to_string(count);
    }
}

}  // namespace

std::string_view wait_name(Wait wait) noexcept {
    switch (wait) {
        case Wait::runnable:
            return "runnable";
        case Wait::io:
            return "blocked on I/O";
        case Wait::lock:
            return "blocked on a lock";
        case Wait::sleep:
            return "sleeping";
        case Wait::other:
            break;
    }
    return "waiting";
}

std::vector<OffCpu> off_cpu(const Profile& profile, const SampleSelection& selection, std::size_t* missed) {
    const auto switches = Switches::find(profile);
    if (!switches) {
        throw UnsupportedError("time off the CPU", profile.file().path() + " has no sched:sched_switch",
                               "record it: profile(offcpu=True), or perf record -e sched:sched_switch -g");
    }
    const Taken taken(profile, selection);
    std::vector<OffCpu> out;
    StackReader reader(profile);
    const std::size_t missing = switches->replay(
        [&](const Switches::Off& off) {
            OffCpu stretch;
            stretch.from_ns = off.since;
            stretch.tid = off.tid;
            stretch.pid = profile.pids()[off.sample];
            stretch.comm = profile.comms()[off.sample];
            stretch.leaf = profile.leaves()[off.sample];
            stretch.finished = off.finished;
            stretch.across_gap = off.across_gap;
            if (!taken(off.sample) || off.since < selection.from || off.since >= selection.to) {
                return;
            }
            if (off.preempted) {
                stretch.wait = Wait::runnable;
                stretch.runnable_ns = off.until - off.since;
            } else {
                stretch.wait = reader.wait(stretch.leaf);
                stretch.runnable_ns = off.woken >= off.since && off.woken <= off.until ? off.until - off.woken : 0;
                stretch.blocked_ns = off.until - off.since - stretch.runnable_ns;
            }
            out.push_back(stretch);
        },
        [](const Switches::On&) {});
    if (missed != nullptr) {
        *missed = missing;
    }
    std::ranges::sort(out, [](const OffCpu& a, const OffCpu& b) {
        return std::pair(a.from_ns, a.tid) < std::pair(b.from_ns, b.tid);
    });
    return out;
}

Table off_cpu_table(const Profile& profile, const SampleSelection& selection) {
    std::size_t missed = 0;
    const auto stretches = off_cpu(profile, selection, &missed);
    StackReader reader(profile);
    auto pool = std::make_shared<StringPool>();
    std::vector<std::uint64_t> time;
    std::vector<std::uint64_t> duration;
    std::vector<std::uint64_t> runnable;
    std::vector<std::int32_t> tid;
    std::vector<std::int32_t> pid;
    std::vector<std::int32_t> comm;
    std::vector<std::int32_t> wait;
    std::vector<std::int32_t> call;
    std::vector<std::int32_t> function;
    std::size_t unfinished = 0;
    for (const OffCpu& stretch : stretches) {
        unfinished += stretch.finished ? 0 : 1;
        time.push_back(stretch.from_ns);
        duration.push_back(stretch.blocked_ns + stretch.runnable_ns);
        runnable.push_back(stretch.runnable_ns);
        tid.push_back(stretch.tid);
        pid.push_back(stretch.pid);
        comm.push_back(pool->intern(profile.names().at(stretch.comm)));
        wait.push_back(pool->intern(wait_name(stretch.wait)));
        const std::string& name = reader.syscall(stretch.leaf);
        call.push_back(name.empty() ? -1 : pool->intern(name));
        const std::int32_t caller = reader.caller(stretch.leaf);
        function.push_back(caller < 0 ? -1 : pool->intern(profile.names().at(caller)));
    }
    std::vector<Column> columns;
    columns.emplace_back("time", std::move(time), "ns");
    columns.emplace_back("duration", std::move(duration), "ns");
    columns.emplace_back("runnable", std::move(runnable), "ns");
    columns.emplace_back("tid", std::move(tid));
    columns.emplace_back("pid", std::move(pid));
    columns.emplace_back("comm", std::move(comm), pool);
    columns.emplace_back("wait", std::move(wait), pool);
    columns.emplace_back("syscall", std::move(call), pool);
    columns.emplace_back("function", std::move(function), pool);
    auto metadata = profile.metadata();
    metadata["unfinished"] = std::to_string(unfinished);
    metadata["missed_switches"] = std::to_string(missed);
    note_gaps(stretches, metadata);
    return Table(std::move(columns), std::move(metadata));
}

namespace {

void add_off_cpu(const Profile& profile, const SampleSelection& selection, StackTree& tree) {
    TreeBuilder builder(profile, tree);
    for (const OffCpu& stretch : off_cpu(profile, selection)) {
        const std::uint32_t node = builder.node(stretch.comm, stretch.leaf);
        const auto add = [&](Wait wait, std::uint64_t ns) {
            if (ns != 0) {
                std::string label = "[";
                label.append(wait_name(wait)).append("]");
                tree.add(tree.child(node, label, FrameKind::note), ns);
            }
        };
        add(stretch.wait, stretch.blocked_ns);
        add(Wait::runnable, stretch.runnable_ns);
    }
}

}  // namespace

namespace {

// Without samples of the CPUs, the switches still tell how long each thread was on one, though not where in its code.
void add_on_cpu(const Profile& profile, const SampleSelection& selection, StackTree& tree) {
    const auto switches = Switches::find(profile);
    if (!switches) {
        return;
    }
    const Taken taken(profile, selection);
    switches->replay([](const Switches::Off&) {},
                     [&](const Switches::On& on) {
                         if (taken(on.sample) && on.until >= selection.from && on.until < selection.to) {
                             const std::string& comm = profile.names().at(profile.comms()[on.sample]);
                             const std::uint32_t thread = tree.child(0, comm, FrameKind::note);
                             tree.add(tree.child(thread, "[on CPU]", FrameKind::note), on.until - on.since);
                         }
                     });
}

}  // namespace

StackTree off_cpu_tree(const Profile& profile, const SampleSelection& selection) {
    StackTree tree("ns");
    add_off_cpu(profile, selection, tree);
    tree.finish();
    return tree;
}

StackTree wall_clock_tree(const Profile& profile, const SampleSelection& selection) {
    StackTree tree("ns");
    add_off_cpu(profile, selection, tree);
    if (const auto event = cpu_event(profile); event && tells_time(profile, *event)) {
        TreeBuilder builder(profile, tree);
        SampleSelection busy = selection;
        busy.idle = false;
        for (const std::uint32_t i : on_cpu(profile, *event, busy)) {
            const std::uint32_t node = builder.node(profile.comms()[i], profile.leaves()[i]);
            tree.add(tree.child(node, "[on CPU]", FrameKind::note), sample_ns(profile, *event, i));
        }
    } else {
        add_on_cpu(profile, selection, tree);
    }
    tree.finish();
    return tree;
}

Table syscall_split(const Profile& profile, const SampleSelection& selection) {
    struct Row {
        std::uint64_t samples = 0;
        std::uint64_t on_cpu = 0;
        std::array<std::uint64_t, 5> off{};  // by Wait
    };
    std::map<std::string, Row> rows;
    StackReader reader(profile);
    const auto name_of = [&reader](std::uint32_t leaf) {
        if (const std::string& call = reader.syscall(leaf); !call.empty()) {
            return call;
        }
        return std::string(reader.of_kernel_thread(leaf) ? "(kernel thread)" : "(user)");
    };
    std::uint64_t samples = 0;
    if (const auto event = cpu_event(profile)) {
        for (const std::uint32_t i : on_cpu(profile, *event, selection)) {
            Row& row = rows[profile.tids()[i] == 0 ? "(idle)" : name_of(profile.leaves()[i])];
            ++row.samples;
            ++samples;
            row.on_cpu += sample_ns(profile, *event, i);
        }
    }
    auto metadata = profile.metadata();
    note_unknown_time(profile, metadata);
    try {
        const auto stretches = off_cpu(profile, selection);
        note_gaps(stretches, metadata);
        for (const OffCpu& stretch : stretches) {
            Row& row = rows[name_of(stretch.leaf)];
            row.off.at(static_cast<std::size_t>(stretch.wait)) += stretch.blocked_ns;
            row.off.at(static_cast<std::size_t>(Wait::runnable)) += stretch.runnable_ns;
        }
        metadata["off_cpu"] = "from sched:sched_switch";
    } catch (const UnsupportedError& error) {
        metadata["off_cpu"] = "not recorded: " + error.reason();
    }
    std::vector<std::pair<std::string, Row>> order(rows.begin(), rows.end());
    std::ranges::stable_sort(order, std::ranges::greater{}, [](const auto& row) { return row.second.on_cpu; });
    auto pool = std::make_shared<StringPool>();
    std::vector<std::int32_t> names;
    std::vector<std::uint64_t> counts;
    std::vector<double> share;
    std::vector<std::uint64_t> on_cpu;
    std::array<std::vector<std::uint64_t>, 5> off;
    for (const auto& [name, row] : order) {
        names.push_back(pool->intern(name));
        counts.push_back(row.samples);
        share.push_back(samples == 0 ? 0.0 : 100.0 * static_cast<double>(row.samples) / static_cast<double>(samples));
        on_cpu.push_back(row.on_cpu);
        for (std::size_t i = 0; i < off.size(); ++i) {
            off.at(i).push_back(row.off.at(i));
        }
    }
    std::vector<Column> columns;
    columns.emplace_back("syscall", std::move(names), pool);
    columns.emplace_back("on_cpu_percent", std::move(share), "%");
    columns.emplace_back("on_cpu", std::move(on_cpu), "ns");
    columns.emplace_back("runnable", std::move(off[0]), "ns");
    columns.emplace_back("blocked_io", std::move(off[1]), "ns");
    columns.emplace_back("blocked_lock", std::move(off[2]), "ns");
    columns.emplace_back("sleeping", std::move(off[3]), "ns");
    columns.emplace_back("waiting", std::move(off[4]), "ns");
    columns.emplace_back("samples", std::move(counts));
    return Table(std::move(columns), std::move(metadata));
}

Table lock_table(const Profile& profile, const SampleSelection& selection) {
    struct Row {
        std::uint64_t spin = 0;
        std::uint64_t blocked = 0;
        std::uint64_t samples = 0;
        std::uint64_t waits = 0;
    };
    std::map<std::pair<std::int32_t, std::int32_t>, Row> rows;
    StackReader reader(profile);
    if (const auto event = cpu_event(profile)) {
        for (const std::uint32_t i : on_cpu(profile, *event, selection)) {
            if (const auto lock = reader.lock(profile.leaves()[i]); lock.lock >= 0) {
                Row& row = rows[{lock.lock, lock.caller}];
                row.spin += sample_ns(profile, *event, i);
                ++row.samples;
            }
        }
    }
    auto metadata = profile.metadata();
    note_unknown_time(profile, metadata);
    try {
        auto stretches = off_cpu(profile, selection);
        std::erase_if(stretches, [](const OffCpu& stretch) { return stretch.wait != Wait::lock; });
        note_gaps(stretches, metadata);
        for (const OffCpu& stretch : stretches) {
            if (const auto lock = reader.lock(stretch.leaf); lock.lock >= 0) {
                Row& row = rows[{lock.lock, lock.caller}];
                row.blocked += stretch.blocked_ns;
                ++row.waits;
            }
        }
        metadata["off_cpu"] = "from sched:sched_switch";
    } catch (const UnsupportedError& error) {
        metadata["off_cpu"] = "not recorded: " + error.reason();
    }
    using Entry = std::pair<std::pair<std::int32_t, std::int32_t>, Row>;
    std::vector<Entry> order(rows.begin(), rows.end());
    std::ranges::stable_sort(order, [](const Entry& a, const Entry& b) {
        return a.second.spin + a.second.blocked > b.second.spin + b.second.blocked;
    });
    auto pool = std::make_shared<StringPool>();
    std::vector<std::int32_t> locks;
    std::vector<std::int32_t> callers;
    std::vector<std::uint64_t> spin;
    std::vector<std::uint64_t> blocked;
    std::vector<std::uint64_t> samples;
    std::vector<std::uint64_t> waits;
    for (const auto& [key, row] : order) {
        locks.push_back(pool->intern(profile.names().at(key.first)));
        callers.push_back(key.second < 0 ? -1 : pool->intern(profile.names().at(key.second)));
        spin.push_back(row.spin);
        blocked.push_back(row.blocked);
        samples.push_back(row.samples);
        waits.push_back(row.waits);
    }
    std::vector<Column> columns;
    columns.emplace_back("lock", std::move(locks), pool);
    columns.emplace_back("caller", std::move(callers), pool);
    columns.emplace_back("spin", std::move(spin), "ns");
    columns.emplace_back("blocked", std::move(blocked), "ns");
    columns.emplace_back("samples", std::move(samples));
    columns.emplace_back("waits", std::move(waits));
    return Table(std::move(columns), std::move(metadata));
}

}  // namespace sampleblk::profile
