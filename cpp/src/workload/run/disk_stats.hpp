// SPDX-License-Identifier: MIT
// The devices under a set of files, and their counters before and after.
#pragma once

#include <string>
#include <vector>

#include "sampleblk/workload/job_result.hpp"

namespace sampleblk::workload {

// The directory in /sys of the whole disk under `path`, a file, a directory or a device; empty where
// there is none, as for tmpfs.
[[nodiscard]] std::string disk_directory(const std::string& path);

// Other I/O schedulers for disks, until undo() or the destructor.
class SchedulerChanges {
  public:
    SchedulerChanges() = default;
    SchedulerChanges(const SchedulerChanges&) = delete;
    SchedulerChanges& operator=(const SchedulerChanges&) = delete;
    ~SchedulerChanges() { undo(); }

    // Of the disk under a file. Throws UnsupportedError where there is none or it has no schedulers, InputError for a
    // name that the kernel does not know, SystemError.
    void change(const std::string& path, const std::string& scheduler);
    // The same by the disk's directory in /sys.
    void change_disk(const std::string& directory, const std::string& scheduler);

    // The last change first, so that a disk that was changed twice gets back what it had before both.
    void undo() noexcept;

  private:
    struct Change {
        std::string file;
        std::string before;
    };
    std::vector<Change> changes_;
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
