// SPDX-License-Identifier: MIT
// What a job asks of its process: CPUs, priorities, locked memory, user, cgroup, commands around it.
#pragma once

#include <string>

#include "sampleblk/workload/options.hpp"

namespace sampleblk::workload {

// Applies them to the calling thread or process. Throws SystemError.
void apply_process_settings(const JobOptions& options);

// The job's cgroup (version 2): made, with its weight, and left again. Empty name: nothing.
class CgroupMembership {
  public:
    explicit CgroupMembership(const JobOptions& options);
    CgroupMembership(const CgroupMembership&) = delete;
    CgroupMembership& operator=(const CgroupMembership&) = delete;
    ~CgroupMembership();

  private:
    std::string directory_;
    std::string parent_;
    bool keep_ = false;
};

// Runs exec_prerun or exec_postrun by the shell, its output in NAME.prerun.txt as fio has it.
// Throws SystemError when it cannot be run or fails.
void run_command(const JobOptions& options, const std::string& command, const char* when);

}  // namespace sampleblk::workload
