// SPDX-License-Identifier: MIT
// System calls out of syscalls:sys_enter_*/sys_exit_* or raw_syscalls:sys_enter/sys_exit, enter and exit joined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sampleblk/table.hpp"
#include "sampleblk/trace/file.hpp"
#include "sampleblk/trace/walk.hpp"

namespace sampleblk::trace {

struct SyscallRequest {
    Selection selection;
    std::vector<std::int32_t> pids;  // thread ids; empty: all
    bool children = false;           // also what those fork, where sched_process_fork was recorded
};

// One row a call, by the time of its exit: "time" (ns, of the enter), "duration" (ns), "pid", "cpu" (of the enter),
// "syscall", "arg0"…"arg5", "ret", "errno" (0: none). Calls whose enter or exit is not in the recording are not rows
// but counts in the metadata ("unfinished", "unpaired").
[[nodiscard]] Table syscall_table(const TraceFile& file, const SyscallRequest& request);

// The table that strace -C prints, by falling time: "percent_time", "seconds", "usecs_per_call", "calls", "errors",
// "syscall". Times are wall-clock from enter to exit.
[[nodiscard]] Table syscall_summary(const TraceFile& file, const SyscallRequest& request);

// The name of a system call of `machine` (uname -m) by its number; "syscall_N" where we do not know it.
[[nodiscard]] std::string syscall_name(std::string_view machine, std::uint64_t number);

}  // namespace sampleblk::trace
