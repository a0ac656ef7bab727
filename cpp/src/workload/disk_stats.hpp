// SPDX-License-Identifier: MIT
// The devices under a set of files, and their counters before and after.
#pragma once

#include <string>
#include <vector>

#include "sampleblk/workload/job_result.hpp"

namespace sampleblk::workload {

class DiskWatch {
  public:
    // Remembers the whole disk under `path`, a file, a directory or a device, if it has one: tmpfs
    // and the like have none.
    void add(const std::string& path);
    void begin();
    [[nodiscard]] std::vector<DiskStats> end() const;

  private:
    struct Disk {
        std::string directory;  // in /sys
        DiskStats at_begin;
    };
    std::vector<Disk> disks_;
    std::uint64_t began_ns_ = 0;
};

}  // namespace sampleblk::workload
