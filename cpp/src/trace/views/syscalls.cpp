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

#include "sampleblk/trace/decode.hpp"
#include "views/syscall_sink.hpp"

namespace sampleblk::trace {

namespace {

// The largest errno that a system call returns as its negative (include/linux/err.h).
constexpr std::int64_t kMaxErrno = 4095;

struct NumberedName {
    std::uint32_t number;
    const char* name;
};

constexpr NumberedName kX86[] = {
#include "views/syscall_names_x86_64.inc"
};
constexpr NumberedName kGeneric[] = {
#include "views/syscall_names_generic.inc"
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

SyscallRoles::SyscallRoles(const TraceFile& file)
    : swap_(swap_needed(file.big_endian())), machine_(machine_of(file)), roles_(std::size_t{1} << 16U) {
    for (const EventFormat& format : file.formats()) {
        if (file.find_event(format.id) == &format) {
            add(format);
        }
    }
}

void SyscallRoles::add(const EventFormat& format) {
    SyscallRole role;
    const std::string_view name = format.name;
    if (format.system == "syscalls" && name.starts_with("sys_enter_")) {
        role.kind = SyscallRole::Kind::enter;
        role.name = names_->intern(known_name(name.substr(10)));
        // The arguments follow the call's number.
        for (std::size_t i = format.common_fields; i < format.fields.size() && role.count < kSyscallArgs; ++i) {
            const Field& field = format.fields[i];
            // 6.19 and later add the text behind a user pointer as "__NAME_val".
            if (field.name != "__syscall_nr" && field.name != "nr" && field.kind == FieldKind::number) {
                role.args.at(role.count++) = FieldReader(format, field.name, swap_);
            }
        }
    } else if (format.system == "syscalls" && name.starts_with("sys_exit_")) {
        role.kind = SyscallRole::Kind::exit;
        role.name = names_->intern(known_name(name.substr(9)));
        role.value = FieldReader(format, "ret", swap_);
    } else if (format.system == "raw_syscalls" && name == "sys_enter") {
        role.kind = SyscallRole::Kind::enter;
        role.raw = true;
        role.id = FieldReader(format, "id", swap_);
        role.count = kSyscallArgs;
        role.args.fill(FieldReader(format, "args", swap_));
        const Field* args = format.find("args");
        if (args == nullptr || args->size < kSyscallArgs * args->element_size) {
            return;
        }
    } else if (format.system == "raw_syscalls" && name == "sys_exit") {
        role.kind = SyscallRole::Kind::exit;
        role.raw = true;
        role.id = FieldReader(format, "id", swap_);
        role.value = FieldReader(format, "ret", swap_);
    } else if (format.system == "sched" && name == "sched_process_fork") {
        role.kind = SyscallRole::Kind::fork;
        role.id = FieldReader(format, "child_pid", swap_);
    } else {
        return;
    }
    role.fixed_size = format.fixed_size;
    role.pid = FieldReader(format, "common_pid", swap_);
    roles_[format.id] = std::make_unique<SyscallRole>(role);
}

std::int32_t SyscallRoles::raw_name(std::uint64_t number) {
    const auto [entry, fresh] = raw_names_.try_emplace(number, 0);
    if (fresh) {
        entry->second = names_->intern(known_name(syscall_name(machine_, number)));
    }
    return entry->second;
}

namespace {

// The rows of syscall_table(), by column.
struct SyscallColumns {
    std::vector<std::uint64_t> time;
    std::vector<std::uint64_t> duration;
    std::vector<std::int32_t> pid;
    std::vector<std::uint16_t> cpu;
    std::vector<std::uint16_t> buffer;
    std::vector<std::int32_t> name;
    std::array<std::vector<std::uint64_t>, kSyscallArgs> args;
    std::vector<std::int64_t> ret;
    std::vector<std::int32_t> error;
    std::vector<std::uint8_t> raw;

    void add(const SyscallRow& call) {
        time.push_back(call.time);
        duration.push_back(call.duration);
        pid.push_back(call.pid);
        cpu.push_back(call.place.cpu);
        buffer.push_back(call.place.buffer);
        name.push_back(call.name);
        for (std::uint32_t i = 0; i < kSyscallArgs; ++i) {
            args.at(i).push_back(call.args.at(i));
        }
        ret.push_back(call.ret);
        error.push_back(error_of(call.ret));
        raw.push_back(call.raw ? 1 : 0);
    }

    template <typename Keep>
    void erase_unless(Keep keep) {
        std::vector<std::size_t> rows;
        for (std::size_t row = 0; row < time.size(); ++row) {
            if (keep(buffer[row], raw[row] != 0)) {
                rows.push_back(row);
            }
        }
        const auto pick = [&rows](auto& column) {
            for (std::size_t to = 0; to < rows.size(); ++to) {
                column[to] = column[rows[to]];
            }
            column.resize(rows.size());
        };
        pick(time);
        pick(duration);
        pick(pid);
        pick(cpu);
        pick(buffer);
        pick(name);
        std::ranges::for_each(args, pick);
        pick(ret);
        pick(error);
        pick(raw);
    }
};

}  // namespace

Table syscall_table(const TraceFile& file, const SyscallRequest& request) {
    SyscallColumns rows;
    SyscallSink sink(file, request, [&rows](const SyscallRow& call) { rows.add(call); });
    WalkStats stats = walk(file, request.selection, sink);
    stats.damage.add(sink.damage());
    if (sink.mixed()) {
        rows.erase_unless([&sink](std::uint16_t buffer, bool raw) { return sink.counts(buffer, raw); });
    }
    const std::string unit(file.time_unit(request.selection.buffer));
    std::vector<Column> columns;
    columns.emplace_back("time", std::move(rows.time), unit);
    columns.emplace_back("duration", std::move(rows.duration), unit);
    columns.emplace_back("pid", std::move(rows.pid));
    columns.emplace_back("cpu", std::move(rows.cpu));
    BufferNames(file, request.selection.buffer).add_column(columns, rows.buffer);
    columns.push_back(name_column("syscall", std::move(rows.name), *sink.names()));
    for (std::uint32_t i = 0; i < kSyscallArgs; ++i) {
        columns.emplace_back("arg" + std::to_string(i), std::move(rows.args.at(i)));
    }
    columns.emplace_back("ret", std::move(rows.ret));
    columns.emplace_back("errno", std::move(rows.error));
    auto metadata = loss_metadata(file, request.selection, stats);
    sink.describe(metadata);
    return Table(std::move(columns), std::move(metadata));
}

Table syscall_summary(const TraceFile& file, const SyscallRequest& request) {
    file.require_ns(request.selection.buffer, "a summary of system calls in seconds");
    struct Sum {
        std::uint64_t calls = 0;
        std::uint64_t errors = 0;
        std::uint64_t ns = 0;
        std::int32_t name = 0;
        std::uint16_t buffer = 0;
        bool raw = false;
    };
    std::vector<Sum> sums;
    std::map<std::pair<std::uint16_t, bool>, std::vector<std::size_t>> places;  // 1 + the place in sums, by name
    SyscallSink sink(file, request, [&](const SyscallRow& call) {
        auto& own = places[{call.place.buffer, call.raw}];
        const auto name = static_cast<std::size_t>(call.name);
        if (name >= own.size()) {
            own.resize(name + 1);
        }
        if (own[name] == 0) {
            sums.push_back({0, 0, 0, call.name, call.place.buffer, call.raw});
            own[name] = sums.size();
        }
        Sum& sum = sums[own[name] - 1];
        ++sum.calls;
        sum.errors += error_of(call.ret) != 0 ? 1 : 0;
        sum.ns += call.duration;
    });
    WalkStats stats = walk(file, request.selection, sink);
    stats.damage.add(sink.damage());
    std::erase_if(sums, [&sink](const Sum& sum) { return !sink.counts(sum.buffer, sum.raw); });
    std::ranges::sort(sums, {}, [](const Sum& sum) { return std::pair(sum.buffer, sum.name); });
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
    std::vector<std::uint16_t> buffers;
    for (const Sum& sum : sums) {
        percent.push_back(total == 0 ? 0 : 100.0 * static_cast<double>(sum.ns) / static_cast<double>(total));
        seconds.push_back(static_cast<double>(sum.ns) / 1e9);
        each.push_back(static_cast<double>(sum.ns) / 1e3 / static_cast<double>(sum.calls));
        calls.push_back(sum.calls);
        errors.push_back(sum.errors);
        name.push_back(sum.name);
        buffers.push_back(sum.buffer);
    }
    std::vector<Column> columns;
    columns.emplace_back("percent_time", std::move(percent), "%");
    columns.emplace_back("seconds", std::move(seconds), "s");
    columns.emplace_back("usecs_per_call", std::move(each), "us");
    columns.emplace_back("calls", std::move(calls));
    columns.emplace_back("errors", std::move(errors));
    columns.push_back(name_column("syscall", std::move(name), *sink.names()));
    BufferNames(file, request.selection.buffer).add_column(columns, buffers);
    auto metadata = loss_metadata(file, request.selection, stats);
    sink.describe(metadata);
    return Table(std::move(columns), std::move(metadata));
}

}  // namespace sampleblk::trace
