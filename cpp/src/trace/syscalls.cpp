// SPDX-License-Identifier: MIT
#include "sampleblk/trace/syscalls.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "field_reader.hpp"
#include "sampleblk/trace/decode.hpp"

namespace sampleblk::trace {

namespace {

constexpr std::uint32_t kArgs = 6;
// The largest errno that a system call returns as its negative (include/linux/err.h).
constexpr std::int64_t kMaxErrno = 4095;

struct NumberedName {
    std::uint32_t number;
    const char* name;
};

constexpr NumberedName kX86[] = {
#include "syscall_names_x86_64.inc"
};
constexpr NumberedName kGeneric[] = {
#include "syscall_names_generic.inc"
};

template <std::size_t N>
const char* look_up(const NumberedName (&names)[N], std::uint64_t number) {
    const auto* found = std::lower_bound(std::begin(names), std::end(names), number,
                                         [](const NumberedName& a, std::uint64_t b) { return a.number < b; });
    return found != std::end(names) && found->number == number ? found->name : nullptr;
}

// The kernel's names of the functions behind some calls differ from the calls' names, which people know.
std::string_view known_name(std::string_view name) {
    static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
        {"newstat", "stat"},        {"newfstat", "fstat"},
        {"newlstat", "lstat"},      {"newuname", "uname"},
        {"sendfile64", "sendfile"}, {"umount", "umount2"},
        {"sysctl", "_sysctl"},      {"fadvise64_64", "fadvise64"},
        {"prlimit64", "prlimit64"}, {"sync_file_range2", "sync_file_range"},
    };
    for (const auto& [kernel, ours] : kNames) {
        if (name == kernel) {
            return ours;
        }
    }
    return name;
}

std::string machine_of(const TraceFile& file) {
    const std::string& uname = file.uname();
    const auto space = uname.rfind(' ');
    return space == std::string::npos ? "x86_64" : uname.substr(space + 1);
}

// One call on its way to a table.
struct Call {
    std::uint64_t time = 0;
    std::uint64_t duration = 0;
    std::int64_t ret = 0;
    std::array<std::uint64_t, kArgs> args{};
    std::int32_t pid = 0;
    std::int32_t name = 0;
    std::uint32_t cpu = 0;
};

// What an event id means to us.
struct Role {
    enum class Kind : std::uint8_t { none, enter, exit, raw_enter, raw_exit, fork } kind = Kind::none;
    std::int32_t name = 0;
    std::uint32_t count = 0;  // arguments
    std::uint32_t fixed_size = 0;
    FieldReader pid;
    std::array<FieldReader, kArgs> args;
    FieldReader value;  // ret; id of raw events; child_pid of a fork
    FieldReader ret;    // of raw_exit
};

template <typename Take>
class SyscallSink {
  public:
    SyscallSink(const TraceFile& file, const SyscallRequest& request, bool raw, Take take)
        : swap_(swap_needed(file.big_endian())),
          machine_(machine_of(file)),
          pids_(request.pids.begin(), request.pids.end()),
          children_(request.children),
          all_(request.pids.empty()),
          take_(std::move(take)),
          roles_(std::size_t{1} << 16) {
        for (const EventFormat& format : file.formats()) {
            if (file.find_event(format.id) == &format) {
                add_role(format, raw);
            }
        }
    }

    void record(const Event& event) {
        if (event.size < 2) [[unlikely]] {
            return;
        }
        const Role* role = roles_[load<std::uint16_t>(event.data, swap_)].get();
        if (role == nullptr || event.size < role->fixed_size) {
            return;
        }
        const auto pid = static_cast<std::int32_t>(role->pid.get(event.data));
        if (role->kind == Role::Kind::fork) {
            if (children_ && pids_.contains(pid)) {
                pids_.insert(static_cast<std::int32_t>(role->value.get(event.data)));
            }
            return;
        }
        if (!all_ && !pids_.contains(pid)) {
            return;
        }
        switch (role->kind) {
            case Role::Kind::enter:
            case Role::Kind::raw_enter: {
                Open& open = open_[pid];
                unfinished_ += open.live ? 1 : 0;
                open.live = true;
                open.call.time = event.time;
                open.call.cpu = event.cpu;
                open.call.pid = pid;
                open.call.name = role->kind == Role::Kind::enter ? role->name : raw_name(role->value.get(event.data));
                open.call.args.fill(0);
                for (std::uint32_t i = 0; i < role->count; ++i) {
                    open.call.args[i] = role->args[i].get(event.data, role->kind == Role::Kind::raw_enter ? i : 0);
                }
                break;
            }
            default: {
                const std::int32_t name =
                    role->kind == Role::Kind::exit ? role->name : raw_name(role->value.get(event.data));
                const auto found = open_.find(pid);
                if (found == open_.end() || !found->second.live || found->second.call.name != name) {
                    ++unpaired_;
                    break;
                }
                found->second.live = false;
                Call& call = found->second.call;
                call.duration = event.time - call.time;
                call.ret = static_cast<std::int64_t>(
                    (role->kind == Role::Kind::exit ? role->value : role->ret).get(event.data));
                take_(call);
                break;
            }
        }
    }

    void missed(std::uint32_t cpu, std::uint64_t time, std::uint64_t count) const {
        (void)cpu;
        (void)time;
        (void)count;
    }
    void flush() const {}

    [[nodiscard]] const std::shared_ptr<StringPool>& names() const noexcept { return names_; }
    [[nodiscard]] std::uint64_t unpaired() const noexcept { return unpaired_; }
    [[nodiscard]] std::uint64_t unfinished() const noexcept {
        return unfinished_ + static_cast<std::uint64_t>(std::count_if(
                                 open_.begin(), open_.end(), [](const auto& entry) { return entry.second.live; }));
    }

  private:
    struct Open {
        Call call;
        bool live = false;
    };

    void add_role(const EventFormat& format, bool raw) {
        Role role;
        const std::string_view name = format.name;
        if (!raw && format.system == "syscalls" && name.starts_with("sys_enter_")) {
            role.kind = Role::Kind::enter;
            role.name = names_->intern(known_name(name.substr(10)));
            // The arguments follow the call's number.
            for (std::size_t i = format.common_fields; i < format.fields.size() && role.count < kArgs; ++i) {
                const Field& field = format.fields[i];
                // 6.19 and later add the text behind a user pointer as "__NAME_val".
                if (field.name != "__syscall_nr" && field.name != "nr" && field.kind == FieldKind::number) {
                    role.args[role.count++] = FieldReader(format, field.name, swap_);
                }
            }
        } else if (!raw && format.system == "syscalls" && name.starts_with("sys_exit_")) {
            role.kind = Role::Kind::exit;
            role.name = names_->intern(known_name(name.substr(9)));
            role.value = FieldReader(format, "ret", swap_);
        } else if (raw && format.system == "raw_syscalls" && name == "sys_enter") {
            role.kind = Role::Kind::raw_enter;
            role.value = FieldReader(format, "id", swap_);
            role.count = kArgs;
            role.args.fill(FieldReader(format, "args", swap_));
            const Field* args = format.find("args");
            if (args == nullptr || args->size < kArgs * args->element_size) {
                return;
            }
        } else if (raw && format.system == "raw_syscalls" && name == "sys_exit") {
            role.kind = Role::Kind::raw_exit;
            role.value = FieldReader(format, "id", swap_);
            role.ret = FieldReader(format, "ret", swap_);
        } else if (format.system == "sched" && name == "sched_process_fork") {
            role.kind = Role::Kind::fork;
            role.value = FieldReader(format, "child_pid", swap_);
        } else {
            return;
        }
        role.fixed_size = format.fixed_size;
        role.pid = FieldReader(format, "common_pid", swap_);
        roles_[format.id] = std::make_unique<Role>(role);
    }

    std::int32_t raw_name(std::uint64_t number) {
        const auto [entry, fresh] = raw_names_.try_emplace(number, 0);
        if (fresh) {
            entry->second = names_->intern(known_name(syscall_name(machine_, number)));
        }
        return entry->second;
    }

    bool swap_;
    std::string machine_;
    std::unordered_set<std::int32_t> pids_;
    bool children_;
    bool all_;
    Take take_;
    std::vector<std::unique_ptr<Role>> roles_;
    std::shared_ptr<StringPool> names_ = std::make_shared<StringPool>();
    std::unordered_map<std::uint64_t, std::int32_t> raw_names_;
    std::unordered_map<std::int32_t, Open> open_;
    std::uint64_t unpaired_ = 0;
    std::uint64_t unfinished_ = 0;
};

// Whether the recording has only raw_syscalls: where it has both, the calls must not count twice.
bool only_raw(const TraceFile& file, const Selection& selection) {
    bool has_raw = false;
    for (const EventFormat& format : file.formats()) {
        has_raw = has_raw || format.system == "raw_syscalls";
    }
    if (!has_raw) {
        return false;
    }
    const Table counts = count_events(file, selection);
    const Column* events = counts.find("event");
    bool raw = false;
    for (std::size_t i = 0; i < counts.rows(); ++i) {
        const std::string& name = events->pool()->at(events->values<std::int32_t>()[i]);
        if (name.starts_with("syscalls:")) {
            return false;
        }
        raw = raw || name.starts_with("raw_syscalls:");
    }
    return raw;
}

template <typename Take>
std::pair<std::shared_ptr<StringPool>, std::map<std::string, std::string>> each_call(const TraceFile& file,
                                                                                     const SyscallRequest& request,
                                                                                     Take take) {
    SyscallSink<Take> sink(file, request, only_raw(file, request.selection), std::move(take));
    const WalkStats stats = walk(file, request.selection, sink);
    auto metadata = loss_metadata(file, stats);
    if (sink.unpaired() != 0) {
        metadata["unpaired"] = std::to_string(sink.unpaired());
    }
    if (sink.unfinished() != 0) {
        metadata["unfinished"] = std::to_string(sink.unfinished());
    }
    return {sink.names(), std::move(metadata)};
}

std::int32_t error_of(std::int64_t ret) {
    return ret < 0 && ret >= -kMaxErrno ? static_cast<std::int32_t>(-ret) : 0;
}

// The pool also holds calls that never occurred; a table's dictionary should not.
Column name_column(const std::string& name, std::vector<std::int32_t> codes, const StringPool& all) {
    auto pool = std::make_shared<StringPool>();
    for (std::int32_t& code : codes) {
        code = pool->intern(all.at(code));
    }
    return {name, std::move(codes), std::move(pool)};
}

}  // namespace

std::string syscall_name(std::string_view machine, std::uint64_t number) {
    const char* name = nullptr;
    if (machine == "x86_64") {
        name = look_up(kX86, number);
    } else if (machine == "aarch64" || machine == "riscv64" || machine == "loongarch64") {
        name = look_up(kGeneric, number);
    }
    return name != nullptr ? name : "syscall_" + std::to_string(number);
}

Table syscall_table(const TraceFile& file, const SyscallRequest& request) {
    std::vector<std::uint64_t> time;
    std::vector<std::uint64_t> duration;
    std::vector<std::int32_t> pid;
    std::vector<std::uint16_t> cpu;
    std::vector<std::int32_t> name;
    std::array<std::vector<std::uint64_t>, kArgs> args;
    std::vector<std::int64_t> ret;
    std::vector<std::int32_t> error;
    auto [names, metadata] = each_call(file, request, [&](const Call& call) {
        time.push_back(call.time);
        duration.push_back(call.duration);
        pid.push_back(call.pid);
        cpu.push_back(static_cast<std::uint16_t>(call.cpu));
        name.push_back(call.name);
        for (std::uint32_t i = 0; i < kArgs; ++i) {
            args[i].push_back(call.args[i]);
        }
        ret.push_back(call.ret);
        error.push_back(error_of(call.ret));
    });
    std::vector<Column> columns;
    columns.emplace_back("time", std::move(time), "ns");
    columns.emplace_back("duration", std::move(duration), "ns");
    columns.emplace_back("pid", std::move(pid));
    columns.emplace_back("cpu", std::move(cpu));
    columns.push_back(name_column("syscall", std::move(name), *names));
    for (std::uint32_t i = 0; i < kArgs; ++i) {
        columns.emplace_back("arg" + std::to_string(i), std::move(args[i]));
    }
    columns.emplace_back("ret", std::move(ret));
    columns.emplace_back("errno", std::move(error));
    return Table(std::move(columns), std::move(metadata));
}

Table syscall_summary(const TraceFile& file, const SyscallRequest& request) {
    struct Sum {
        std::uint64_t calls = 0;
        std::uint64_t errors = 0;
        std::uint64_t ns = 0;
        std::int32_t name = 0;
    };
    std::vector<Sum> sums;
    auto [names, metadata] = each_call(file, request, [&sums](const Call& call) {
        const auto index = static_cast<std::size_t>(call.name);
        if (index >= sums.size()) {
            sums.resize(index + 1);
        }
        Sum& sum = sums[index];
        sum.name = call.name;
        ++sum.calls;
        sum.errors += error_of(call.ret) != 0 ? 1 : 0;
        sum.ns += call.duration;
    });
    std::erase_if(sums, [](const Sum& sum) { return sum.calls == 0; });
    std::ranges::stable_sort(sums, std::greater{}, &Sum::ns);
    std::uint64_t total = 0;
    for (const Sum& sum : sums) {
        total += sum.ns;
    }
    std::vector<double> percent;
    std::vector<double> seconds;
    std::vector<double> each;
    std::vector<std::uint64_t> calls;
    std::vector<std::uint64_t> errors;
    std::vector<std::int32_t> name;
    for (const Sum& sum : sums) {
        percent.push_back(total == 0 ? 0 : 100.0 * static_cast<double>(sum.ns) / static_cast<double>(total));
        seconds.push_back(static_cast<double>(sum.ns) / 1e9);
        each.push_back(static_cast<double>(sum.ns) / 1e3 / static_cast<double>(sum.calls));
        calls.push_back(sum.calls);
        errors.push_back(sum.errors);
        name.push_back(sum.name);
    }
    std::vector<Column> columns;
    columns.emplace_back("percent_time", std::move(percent), "%");
    columns.emplace_back("seconds", std::move(seconds), "s");
    columns.emplace_back("usecs_per_call", std::move(each), "us");
    columns.emplace_back("calls", std::move(calls));
    columns.emplace_back("errors", std::move(errors));
    columns.push_back(name_column("syscall", std::move(name), *names));
    return Table(std::move(columns), std::move(metadata));
}

}  // namespace sampleblk::trace
