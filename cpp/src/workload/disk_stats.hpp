// SPDX-License-Identifier: MIT
// The devices under a set of files, and their counters before and after.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sampleblk/workload/job_result.hpp"

namespace sampleblk::workload {

// The directory in /sys of the whole disk under `path`, a file, a directory or a device; empty where
// there is none, as for tmpfs.
[[nodiscard]] std::string disk_directory(const std::string& path);

// Another I/O scheduler for the disk under a file, until the end of this object's life.
class SchedulerChange {
  public:
    SchedulerChange(const std::string& path, const std::string& scheduler);
    SchedulerChange(SchedulerChange&& other) noexcept
        : file_(std::exchange(other.file_, {})), before_(std::exchange(other.before_, {})) {}
    SchedulerChange& operator=(SchedulerChange&&) = delete;
    SchedulerChange(const SchedulerChange&) = delete;
    SchedulerChange& operator=(const SchedulerChange&) = delete;
    ~SchedulerChange();

  private:
    std::string file_;
    std::string before_;
};

class DiskWatch {
  public:
    // Remembers the whole disk under `path`, if it has one.
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
