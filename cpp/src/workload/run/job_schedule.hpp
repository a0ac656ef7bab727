// SPDX-License-Identifier: MIT
// Which job of a run begins and ends when: stonewall, wait_for, startdelay, exitall, a full device, an order from
// outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "pattern/plan.hpp"
#include "run/shared_memory.hpp"

namespace sampleblk::workload {

class JobSchedule {
  public:
    // Both must outlive this.
    JobSchedule(const std::vector<JobPlan>& plans, const SharedMemory& shared);

    // From here on jobs begin as their time comes.
    void start();
    [[nodiscard]] bool start_asked() const noexcept { return start_asked_; }

    // Tells all jobs to end; the first reason is kept.
    void stop(const std::string& reason);
    [[nodiscard]] bool stopping() const noexcept { return stopping_; }
    [[nodiscard]] const std::string& stop_reason() const noexcept { return stop_reason_; }
    // Whether a job that has not ended was told to.
    [[nodiscard]] bool someone_is_to_stop() const;
    // Whether all had enough time to return from the system call that they are in.
    [[nodiscard]] bool grace_expired() const;

    // Acts on what has ended, and starts the jobs whose time has come.
    void step();
    // How long nothing changes but by an event; UINT64_MAX: for ever.
    [[nodiscard]] std::uint64_t next_wait_ns() const;

  private:
    void start_due(std::uint64_t now);
    void stop_others(std::size_t ended) const;
    [[nodiscard]] bool wait_is_over(std::size_t i) const;
    [[nodiscard]] std::uint64_t delay_of(std::size_t i) const;

    const std::vector<JobPlan>& plans_;
    const SharedMemory& shared_;
    const bool exitall_;  // as in fio, of every job where one has it: it need not be the one that ends first
    bool start_asked_ = false;
    bool stopping_ = false;
    std::string stop_reason_;
    std::uint64_t stop_at_ns_ = 0;
    std::vector<bool> started_;
    std::vector<bool> ended_;                 // and acted upon
    std::vector<std::uint64_t> begin_at_ns_;  // at the earliest: startdelay counts from start(), as in fio
};

}  // namespace sampleblk::workload
