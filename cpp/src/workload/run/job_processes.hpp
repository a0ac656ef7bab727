// SPDX-License-Identifier: MIT
// The processes of a run: forked, watched, interrupted, reaped.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "pattern/plan.hpp"
#include "run/shared_memory.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk::workload {

// The operation of a job whose process has ended; with EINTR, by a signal.
inline constexpr std::string_view job_process = "job process";

// One process for each job, and one for all that want to be threads (thread=1). A job that only creates its files has
// none: it is finished from the start.
class JobProcesses {
  public:
    // Both must outlive this.
    JobProcesses(const std::vector<JobPlan>& plans, const SharedMemory& shared);

    // Forks them all; each runs its jobs and exits, at the latest when the calling thread ends. 0, or the errno of the
    // fork that failed: the jobs that were forked before it are told to stop.
    [[nodiscard]] int fork();

    // Sleeps until a process ends, an event is written, or the time is up.
    void wait(std::uint64_t timeout_ns) const;
    // Marks the jobs of processes that have ended as finished, with an error where they were not.
    void reap();
    [[nodiscard]] bool all_gone() const;

    // Interrupts the system calls that jobs which are to stop sleep in.
    void interrupt() const;
    void kill() const;

  private:
    struct Process {
        pid_t pid = -1;
        Fd descriptor;  // pidfd, where the kernel has them
        bool gone = false;
        std::vector<std::size_t> jobs;
    };

    void run(const Process& process) const;

    const std::vector<JobPlan>& plans_;
    const SharedMemory& shared_;
    std::vector<Process> processes_;
};

}  // namespace sampleblk::workload
