// SPDX-License-Identifier: MIT
// Where threads were when they did not run: sched:sched_switch with stacks tells when and where each stopped, its next
// switch in when it went on, and sched:sched_waking (or sched_wakeup) since when it could have.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sampleblk/profile/profile.hpp"
#include "sampleblk/profile/stack_tree.hpp"

namespace sampleblk::profile {

enum class Wait : std::uint8_t {
    runnable,  // it could have run: preempted, or woken and waiting for a CPU
    io,        // below io_schedule() and its like
    lock,      // a mutex, semaphore or futex
    sleep,     // a timer that it asked for
    other,     // a pipe, a child, a poll, …
};

[[nodiscard]] std::string_view wait_name(Wait wait) noexcept;

// One stretch off the CPU.
struct OffCpu {
    std::uint64_t from_ns = 0;
    std::uint64_t blocked_ns = 0;   // until it was woken
    std::uint64_t runnable_ns = 0;  // from then until it ran
    std::int32_t pid = 0;
    std::int32_t tid = 0;
    std::int32_t comm = 0;
    std::uint32_t leaf = 0;   // its stack
    Wait wait = Wait::other;  // what the blocked part waited for
    bool finished = true;     // false: it was off until the recording's end
    bool across_gap = false;  // records were lost meanwhile: it may be two
};

// In order of their beginning. Throws UnsupportedError when the recording has no sched_switch with stacks. missed: how
// many switches in the recording lacks; such a stretch ends when its thread was woken.
[[nodiscard]] std::vector<OffCpu> off_cpu(const Profile& profile, const SampleSelection& selection,
                                          std::size_t* missed = nullptr);

// time, duration, runnable [ns], tid, pid, comm, wait, syscall, function (the caller of the scheduler). Metadata:
// unfinished (stretches off until the recording's end), missed_switches, across_gaps where there are any.
[[nodiscard]] Table off_cpu_table(const Profile& profile, const SampleSelection& selection);
// Stacks by time off the CPU, each ending in what it waited for.
[[nodiscard]] StackTree off_cpu_tree(const Profile& profile, const SampleSelection& selection);
// Stacks by time on the CPU (samples) and off it, in ns.
[[nodiscard]] StackTree wall_clock_tree(const Profile& profile, const SampleSelection& selection);

// By system call: on_cpu, runnable, io, lock, sleep, other [ns], on_cpu_percent of all selected samples, samples. The
// rows "(user)" and "(kernel thread)" are code outside any call. Columns of times off the CPU are 0 without
// sched_switch in the recording, and the metadata "off_cpu" says so.
[[nodiscard]] Table syscall_split(const Profile& profile, const SampleSelection& selection);
// By lock function and who called it: spin (on the CPU), blocked [ns], samples, waits.
[[nodiscard]] Table lock_table(const Profile& profile, const SampleSelection& selection);

// "write" for __x64_sys_write, ksys_write, __se_sys_write, …; empty for other functions.
[[nodiscard]] std::string_view syscall_of_function(std::string_view function) noexcept;

}  // namespace sampleblk::profile
