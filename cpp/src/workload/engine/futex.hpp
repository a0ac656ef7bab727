// SPDX-License-Identifier: MIT
// Waiting on a word of shared memory, between processes.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

#include "sampleblk/linux_headers.hpp"

namespace sampleblk::workload {

// Sleeps until the word is no longer `expected`, a wake-up, a signal or the timeout.
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                       std::uint64_t timeout_ns) noexcept {
    timespec timeout{};
    timeout.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000);
    timeout.tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000);
    (void)::syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(&word), FUTEX_WAIT, expected,
                    timeout_ns == UINT64_MAX ? nullptr : &timeout, nullptr, 0);
}

inline void futex_wake(std::atomic<std::uint32_t>& word) noexcept {
    (void)::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace sampleblk::workload
