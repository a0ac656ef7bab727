// SPDX-License-Identifier: MIT
#include "shared_memory.hpp"

#include <sys/mman.h>

#include "futex.hpp"
#include "sampleblk/error.hpp"

namespace sampleblk::workload {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);

SharedMemory::SharedMemory(const std::vector<std::uint64_t>& log_entries) {
    const std::size_t states = sizeof(Head) + alignof(JobShared) + log_entries.size() * sizeof(JobShared);
    bytes_ = (states + alignof(IoLogEntry) - 1) / alignof(IoLogEntry) * alignof(IoLogEntry);
    for (const std::uint64_t entries : log_entries) {
        logs_.emplace_back(bytes_, static_cast<std::size_t>(entries));
        bytes_ += static_cast<std::size_t>(entries) * sizeof(IoLogEntry);
    }
    // Without a reservation: a log takes memory as it fills, not before.
    base_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base_ == MAP_FAILED) {
        throw_errno("mmap");
    }
    // Anonymous memory is zero, which is what every member starts as: constructing the large
    // arrays would only touch pages that a job may never use. The atomics are lock-free.
    head_ = static_cast<Head*>(base_);
    auto address = reinterpret_cast<std::uintptr_t>(head_ + 1);
    address = (address + alignof(JobShared) - 1) / alignof(JobShared) * alignof(JobShared);
    jobs_ = reinterpret_cast<JobShared*>(address);
}

SharedMemory::~SharedMemory() {
    (void)::munmap(base_, bytes_);
}

void SharedMemory::call_supervisor() const noexcept {
    head_->event.fetch_add(1, std::memory_order_release);
    futex_wake(head_->event);
}

bool SharedMemory::finished(std::size_t i) const noexcept {
    return phase_of(state(i)) == Phase::finished;
}

std::span<IoLogEntry> SharedMemory::log(std::size_t i) const noexcept {
    auto* first = reinterpret_cast<IoLogEntry*>(static_cast<std::byte*>(base_) + logs_[i].first);
    return {first, logs_[i].second};
}

void tell_to_start(JobState& state) noexcept {
    state.go.fetch_or(1, std::memory_order_release);
    futex_wake(state.go);
}

void tell_to_stop(JobState& state) noexcept {
    state.stop.store(1, std::memory_order_release);
    futex_wake(state.stop);
    // A job that never got the word waits on the other futex.
    state.go.fetch_or(2, std::memory_order_release);
    futex_wake(state.go);
}

}  // namespace sampleblk::workload
