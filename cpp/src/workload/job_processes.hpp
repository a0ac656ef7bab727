// SPDX-License-Identifier: MIT
// The processes of a run: forked, called back, reaped.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "sampleblk/workload/files.hpp"
#include "shared_memory.hpp"

namespace sampleblk::workload {

// One process for each job, and one for all that want to be threads (thread=1). A job that only creates its files has
// none: it is finished as it stands.
class JobProcesses {
  public:
    // Both must outlive this.
    JobProcesses(const std::vector<JobPlan>& plans, const SharedMemory& shared);

    // Forks them all; each runs its jobs and exits, at the latest when the calling thread ends. 0, or the errno of the
    // fork that failed: the jobs that were forked before it are told to stop.
    [[nodiscard]] int fork();

    // Marks the jobs of processes that are gone as finished, with an error where they were not.
    void reap();
    [[nodiscard]] bool all_gone() const;

    // Interrupts the system calls that jobs sleep in.
    void nudge() const;
    void kill() const;

  private:
    struct Process {
        pid_t pid = -1;
        bool gone = false;
        std::vector<std::size_t> jobs;
    };

    void run(const Process& process) const;
    void send(int signal) const;

    const std::vector<JobPlan>& plans_;
    const SharedMemory& shared_;
    std::vector<Process> processes_;
};

}  // namespace sampleblk::workload
