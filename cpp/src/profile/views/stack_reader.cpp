// SPDX-License-Identifier: MIT
#include "views/stack_reader.hpp"

#include <algorithm>
#include <array>

namespace sampleblk::profile {

namespace {

template <std::size_t N>
bool starts_with_any(std::string_view name, const std::array<std::string_view, N>& prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(),
                       [name](std::string_view prefix) { return name.starts_with(prefix); });
}

// Functions of Linux 5.10 to 7.2 that stand for a wait for I/O: kernel/sched/core.c, mm/filemap.c, block/, fs/.
constexpr std::array<std::string_view, 17> kIo = {"io_schedule",
                                                  "bit_wait_io",
                                                  "folio_wait_",
                                                  "wait_on_page_",
                                                  "__wait_on_buffer",
                                                  "blk_mq_get_tag",
                                                  "rq_qos_wait",
                                                  "submit_bio_wait",
                                                  "blk_execute_rq",
                                                  "wbt_wait",
                                                  "iomap_dio_rw",
                                                  "__iomap_dio_rw",
                                                  "jbd2_log_wait_commit",
                                                  "io_cqring_wait",
                                                  "read_events",
                                                  "dio_await_one",
                                                  "blk_mq_freeze_queue_wait"};

// kernel/locking/, kernel/futex/.
constexpr std::array<std::string_view, 14> kLocks = {
    "mutex_lock",   "__mutex_lock",  "rwsem_down_", "down_read", "down_write", "__down",      "down_",
    "percpu_down_", "percpu_rwsem_", "__percpu_",   "rt_mutex_", "futex_",     "__rt_mutex_", "ww_mutex_lock"};

// schedule_hrtimeout() is none: poll(2) and its like wait by it for something else, with a timeout or without.
constexpr std::array<std::string_view, 4> kSleeps = {"do_nanosleep", "hrtimer_nanosleep", "msleep", "usleep_range"};

// With what a trace point's own code leaves on top of a stack.
constexpr std::array<std::string_view, 9> kScheduler = {
    "__schedule",   "schedule",     "preempt_schedule", "__cond_resched",     "__traceiter_",
    "trace_event_", "ftrace_trace", "perf_trace_",      "__perf_event_task_",
};

// What a thread that never was in user space begins with: kernel/kthread.c, io_uring/.
constexpr std::array<std::string_view, 4> kThreads = {"kthread", "io_wq_worker", "io_wqe_worker", "io_sq_thread"};

// What spins or queues for a lock on the CPU.
constexpr std::array<std::string_view, 15> kSpins = {
    "osq_lock",         "mutex_spin_on_owner", "__mutex_lock",     "mutex_lock",        "rwsem_optimistic_spin",
    "rwsem_spin_on_",   "rwsem_down_",         "down_read",        "down_write",        "native_queued_spin_lock",
    "queued_spin_lock", "_raw_spin_lock",      "queued_read_lock", "queued_write_lock", "__pv_queued_spin_lock"};

}  // namespace

std::string_view syscall_of_function(std::string_view function) noexcept {
    constexpr std::array<std::string_view, 10> prefixes = {
        "__x64_sys_", "__ia32_sys_", "__arm64_sys_", "__riscv_sys_",      "__s390x_sys_",
        "__se_sys_",  "__do_sys_",   "ksys_",        "__x32_compat_sys_", "__ia32_compat_sys_"};
    // Calls whose wrapper jumps to another function, which is then the first of the stack.
    struct Alias {
        std::string_view function;
        std::string_view call;
    };
    constexpr std::array<Alias, 12> aliases = {{{"do_sys_open", "openat"},
                                                {"do_sys_openat2", "openat"},
                                                {"do_sys_poll", "poll"},
                                                {"do_fsync", "fsync"},
                                                {"do_sys_ftruncate", "ftruncate"},
                                                {"ksys_fadvise64_64", "fadvise64"},
                                                {"ksys_pread64", "pread64"},
                                                {"ksys_pwrite64", "pwrite64"},
                                                {"ksys_mmap_pgoff", "mmap"},
                                                {"vfs_fallocate", "fallocate"},
                                                {"do_preadv", "preadv"},
                                                {"do_pwritev", "pwritev"}}};
    for (const Alias& alias : aliases) {
        if (function == alias.function) {
            return alias.call;
        }
    }
    for (const std::string_view prefix : prefixes) {
        if (function.starts_with(prefix) && function.size() > prefix.size()) {
            function.remove_prefix(prefix.size());
            return function.substr(0, function.find('.'));  // .isra.0, .constprop.0
        }
    }
    return {};
}

// A program may name its functions as it likes.
bool StackReader::is_of_kernel(std::uint32_t node) const {
    const FrameKind kind = profile_.frames()[profile_.stacks()[node].frame].kind;
    return kind == FrameKind::kernel || kind == FrameKind::module;
}

const std::string& StackReader::name(std::uint32_t node) const {
    return profile_.names().at(profile_.frames()[profile_.stacks()[node].frame].name);
}

Wait StackReader::wait(std::uint32_t leaf) {
    const auto [found, fresh] = waits_.emplace(leaf, Wait::other);
    if (!fresh) {
        return found->second;
    }
    for (std::uint32_t node = leaf; node != 0; node = profile_.stacks()[node].parent) {
        if (!is_of_kernel(node)) {
            continue;
        }
        const std::string& function = name(node);
        if (starts_with_any(function, kIo)) {
            found->second = Wait::io;
            break;
        }
        if (starts_with_any(function, kLocks)) {
            found->second = Wait::lock;
            break;
        }
        if (starts_with_any(function, kSleeps)) {
            found->second = Wait::sleep;
            break;
        }
    }
    return found->second;
}

const std::string& StackReader::syscall(std::uint32_t leaf) {
    const auto known = syscalls_.find(leaf);
    if (known != syscalls_.end()) {
        return known->second;
    }
    // The outermost one: a call may use another's code (ksys_read below sendfile).
    std::string call;
    for (std::uint32_t node = leaf; node != 0; node = profile_.stacks()[node].parent) {
        const Frame& frame = profile_.frames()[profile_.stacks()[node].frame];
        if (frame.kind == FrameKind::kernel) {
            if (const auto found = syscall_of_function(name(node)); !found.empty()) {
                call = found;
            }
        }
    }
    return syscalls_.emplace(leaf, std::move(call)).first->second;
}

bool StackReader::of_kernel_thread(std::uint32_t leaf) {
    const auto [found, fresh] = threads_.emplace(leaf, false);
    if (!fresh) {
        return found->second;
    }
    for (std::uint32_t node = leaf; node != 0; node = profile_.stacks()[node].parent) {
        const Frame& frame = profile_.frames()[profile_.stacks()[node].frame];
        if (frame.kind == FrameKind::kernel && std::ranges::find(kThreads, name(node)) != kThreads.end()) {
            found->second = true;
            break;
        }
    }
    return found->second;
}

std::int32_t StackReader::caller(std::uint32_t leaf) {
    for (std::uint32_t node = leaf; node != 0; node = profile_.stacks()[node].parent) {
        if (!starts_with_any(name(node), kScheduler)) {
            return profile_.frames()[profile_.stacks()[node].frame].name;
        }
    }
    return -1;
}

StackReader::Lock StackReader::lock(std::uint32_t leaf) {
    const auto [found, fresh] = locks_.emplace(leaf, Lock{});
    if (!fresh) {
        return found->second;
    }
    // From the inside: past what the lock calls, then the outermost of the lock's functions that lie together.
    for (std::uint32_t node = leaf; node != 0; node = profile_.stacks()[node].parent) {
        const std::string& function = name(node);
        const bool is_lock =
            is_of_kernel(node) && (starts_with_any(function, kSpins) || starts_with_any(function, kLocks));
        if (is_lock) {
            found->second.lock = profile_.frames()[profile_.stacks()[node].frame].name;
        } else if (found->second.lock >= 0) {
            found->second.caller = profile_.frames()[profile_.stacks()[node].frame].name;
            break;
        } else if (!starts_with_any(function, kScheduler) && profile_.stacks()[node].parent == 0) {
            break;
        }
    }
    return found->second;
}

}  // namespace sampleblk::profile
