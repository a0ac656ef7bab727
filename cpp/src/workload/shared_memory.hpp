// SPDX-License-Identifier: MIT
// The memory that all processes of a run have in common, and the words that the parent leaves in it for its jobs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sampleblk/workload/job_state.hpp"
#include "sampleblk/workload/series.hpp"

namespace sampleblk::workload {

class SharedMemory {
  public:
    // `log_entries` counts the per-I/O log of each job. Throws SystemError.
    explicit SharedMemory(const std::vector<std::uint64_t>& log_entries);
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;
    ~SharedMemory();

    // A futex that counts what the supervising thread must look at: changes of phase, a word from outside.
    [[nodiscard]] std::atomic<std::uint32_t>& event() const noexcept { return head_->event; }
    void call_supervisor() const noexcept;

    [[nodiscard]] JobShared& job(std::size_t i) const noexcept { return jobs_[i]; }
    [[nodiscard]] JobState& state(std::size_t i) const noexcept { return jobs_[i].state; }
    [[nodiscard]] bool finished(std::size_t i) const noexcept;
    [[nodiscard]] std::span<IoLogEntry> log(std::size_t i) const noexcept;

  private:
    // The jobs follow it, and then their logs.
    struct Head {
        std::atomic<std::uint32_t> event{0};
    };

    std::size_t bytes_ = 0;
    void* base_ = nullptr;
    Head* head_ = nullptr;
    JobShared* jobs_ = nullptr;
    std::vector<std::pair<std::size_t, std::size_t>> logs_;  // offset, entries
};

[[nodiscard]] inline Phase phase_of(const JobState& state) noexcept {
    return static_cast<Phase>(state.phase.load(std::memory_order_acquire));
}

// The word to begin, for a job that is ready.
void tell_to_start(JobState& state) noexcept;

// The word to end after the I/O that the job is in, or not to begin.
void tell_to_stop(JobState& state) noexcept;

}  // namespace sampleblk::workload
