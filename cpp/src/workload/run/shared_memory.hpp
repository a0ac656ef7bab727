// SPDX-License-Identifier: MIT
// The memory that all processes of a run have in common, and the event by which jobs wake the parent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "result/job_state.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/mapping.hpp"

namespace sampleblk::workload {

class SharedMemory {
  public:
    // `log_entries` counts the per-I/O log of each job. Throws SystemError.
    explicit SharedMemory(const std::vector<std::uint64_t>& log_entries);
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    // An eventfd that counts what the supervising thread must look at: changes of phase, requests from outside.
    [[nodiscard]] int event() const noexcept { return event_.get(); }
    void wake_supervisor() const noexcept;

    [[nodiscard]] JobShared& job(std::size_t i) const noexcept { return jobs_[i]; }
    [[nodiscard]] JobState& state(std::size_t i) const noexcept { return jobs_[i].state; }
    [[nodiscard]] bool finished(std::size_t i) const noexcept;
    [[nodiscard]] std::span<IoLogEntry> log(std::size_t i) const noexcept;

  private:
    Fd event_;
    Mapping memory_;
    JobShared* jobs_ = nullptr;
    std::vector<std::pair<std::size_t, std::size_t>> logs_;  // offset, entries
};

[[nodiscard]] inline Phase phase_of(const JobState& state) noexcept {
    return static_cast<Phase>(state.phase.load(std::memory_order_acquire));
}

// Starts a job that is ready.
void tell_to_start(JobState& state) noexcept;

// Tells a job to end after the I/O that it is in, or not to begin.
void tell_to_stop(JobState& state) noexcept;
[[nodiscard]] inline bool told_to_stop(const JobState& state) noexcept {
    return state.stop.load(std::memory_order_relaxed) != 0;
}

}  // namespace sampleblk::workload
