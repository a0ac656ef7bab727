// SPDX-License-Identifier: MIT
#include "run/shared_memory.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/futex.hpp"
#include "sampleblk/error.hpp"

namespace sampleblk::workload {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);

SharedMemory::SharedMemory(const std::vector<std::uint64_t>& log_entries)
    : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!event_) {
        throw_errno("eventfd");
    }
    std::size_t bytes = log_entries.size() * sizeof(JobShared);
    static_assert(sizeof(JobShared) % alignof(IoLogEntry) == 0);
    for (const std::uint64_t entries : log_entries) {
        logs_.emplace_back(bytes, static_cast<std::size_t>(entries));
        bytes += static_cast<std::size_t>(entries) * sizeof(IoLogEntry);
    }
    // Without a reservation: a log takes memory as it fills, not before.
    memory_ = Mapping(bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0,
                      "what the jobs and their supervisor share");
    // Anonymous memory is zero, which is what every member starts as: constructing the large arrays would only touch
    // pages that a job may never use. The atomics are lock-free.
    jobs_ = reinterpret_cast<JobShared*>(memory_.data());
}

void SharedMemory::wake_supervisor() const noexcept {
    const std::uint64_t one = 1;
    (void)!::write(event_.get(), &one, sizeof(one));
}

bool SharedMemory::finished(std::size_t i) const noexcept {
    return phase_of(state(i)) == Phase::finished;
}

std::span<IoLogEntry> SharedMemory::log(std::size_t i) const noexcept {
    auto* first = reinterpret_cast<IoLogEntry*>(memory_.data() + logs_[i].first);
    return {first, logs_[i].second};
}

void tell_to_start(JobState& state) noexcept {
    state.go.fetch_or(1, std::memory_order_release);
    futex_wake(state.go);
}

void tell_to_stop(JobState& state) noexcept {
    state.stop.store(1, std::memory_order_release);
    futex_wake(state.stop);
    // A job that was never started waits on the other futex.
    state.go.fetch_or(2, std::memory_order_release);
    futex_wake(state.go);
}

}  // namespace sampleblk::workload
