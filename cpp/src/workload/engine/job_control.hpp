// SPDX-License-Identifier: MIT
// What a running job and its parent say to each other: the phase, the order to stop, the first error.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string>

#include "engine/futex.hpp"
#include "result/job_state.hpp"

namespace sampleblk::workload {

struct JobError {
    std::string operation;
    std::string path;
    int code = 0;
    std::string detail;
};

class JobControl {
  public:
    // The parent watches `event`, an eventfd, and the process. It is told only what it waits for and cannot see: a
    // system call between the job's own would be counted as the job's. `shares_process`: the job's end is not the
    // process's.
    JobControl(JobState& state, int event, bool shares_process) noexcept
        : state_(state), event_(event), shares_process_(shares_process) {}

    [[nodiscard]] bool stopping() const noexcept { return state_.stop.load(std::memory_order_relaxed) != 0; }

    void set_phase(Phase phase) noexcept {
        state_.phase.store(static_cast<std::uint32_t>(phase), std::memory_order_release);
        if (phase == Phase::ready || (phase == Phase::finished && shares_process_)) {
            const std::uint64_t one = 1;
            (void)!::write(event_, &one, sizeof(one));  // it cannot fail before 2^64 - 1 changes
        }
    }

    // False when the job is to stop instead.
    [[nodiscard]] bool wait_for_start() noexcept {
        set_phase(Phase::ready);
        while (state_.go.load(std::memory_order_acquire) == 0) {
            futex_wait(state_.go, 0, UINT64_MAX);
        }
        return !stopping();
    }

    // Sleeps for `ns`, less if the job is told to stop.
    void sleep(std::uint64_t ns) const noexcept { futex_wait(state_.stop, 0, ns); }

    // Ends the job. The first error is the one that is reported.
    void fail(const JobError& error) noexcept {
        failed_ = true;
        if (state_.error == 0) {
            state_.error = error.code != 0 ? error.code : EIO;
            state_.error_operation.set(error.operation);
            state_.error_path.set(error.path);
            state_.error_detail.set(error.detail);
        }
    }
    // A criterion of its own, such as a steady state, ends the job.
    void finish() noexcept { finished_ = true; }

    [[nodiscard]] bool failed() const noexcept { return failed_; }
    // Whether no further pass begins.
    [[nodiscard]] bool ending() const noexcept { return failed_ || finished_ || stopping(); }

  private:
    JobState& state_;
    int event_;
    bool shares_process_;
    bool failed_ = false;
    bool finished_ = false;
};

}  // namespace sampleblk::workload
