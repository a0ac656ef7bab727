// SPDX-License-Identifier: MIT
// What jobs measured, as plain values: to be reported (report.hpp), merged and kept.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sampleblk/workload/job_file.hpp"
#include "sampleblk/workload/measured.hpp"
#include "sampleblk/workload/series.hpp"

namespace sampleblk::workload {

// The numbers of a device while the jobs ran, from /sys/dev/block/*/stat.
struct DiskStats {
    std::string name;
    std::array<std::uint64_t, 2> ios{};  // read, write
    std::array<std::uint64_t, 2> merges{};
    std::array<std::uint64_t, 2> sectors{};
    std::array<std::uint64_t, 2> ticks_ms{};
    std::uint64_t in_queue_ms = 0;
    std::uint64_t busy_ms = 0;
    std::uint64_t elapsed_ms = 0;

    // Percent of the time that the device was busy.
    [[nodiscard]] double utilization() const noexcept {
        const double share =
            elapsed_ms == 0 ? 0 : 100.0 * static_cast<double>(busy_ms) / static_cast<double>(elapsed_ms);
        return share < 100 ? share : 100;
    }
};

// How many I/Os of one slot of time fell into one bin of the histogram.
struct HeatCell {
    std::uint64_t begin_ns = 0;  // of the slot, since the job began
    std::uint64_t end_ns = 0;
    std::uint32_t count = 0;
    std::uint16_t bin = 0;
    std::uint8_t direction = 0;
};

struct FileMismatch : VerifyMismatch {
    std::string path;
};

struct JobResult {
    JobOptions options;
    std::int32_t pid = 0;
    std::uint64_t seed = 0;
    std::int32_t error = 0;  // the first one's errno
    std::string error_text;  // operation, path and reason, as UTF-8

    Measured measured;
    std::vector<FileMismatch> mismatches;  // at most mismatches_kept of each job
    std::vector<SeriesPoint> rates;        // over time; none after a merge, as of the two below
    std::vector<HeatCell> heat;
    std::vector<IoLogEntry> io_log;
    std::vector<std::string> paths;  // of the job's files, which the log counts

    // Sums up with another job, as group_reporting does.
    void merge(const JobResult& other, Together together = Together::side_by_side);
};

struct RunResult {
    std::string source;
    std::vector<Setting> globals;
    std::vector<Notice> notices;
    std::vector<std::string> messages;  // of the layout
    std::vector<std::shared_ptr<const JobResult>> jobs;
    std::vector<DiskStats> disks;
    std::string stop_reason;          // "interrupted", "no space left on device"; empty: ran to its end
    std::int64_t finished_at_ms = 0;  // wall clock
    std::uint64_t elapsed_ns = 0;     // from the start of all jobs
    std::string clock_note;           // why the TSC was not used

    // The jobs as they are reported: with group_reporting, those of a group summed up.
    [[nodiscard]] std::vector<std::shared_ptr<const JobResult>> reported() const;
    // All jobs summed up in one. Those from one stonewall to the next ran side by side.
    [[nodiscard]] RunResult total() const;
    // Runs as one: all their jobs, one run after another, as if there were a stonewall between them. At least one.
    [[nodiscard]] static RunResult joined(const std::vector<std::shared_ptr<RunResult>>& runs);
};

}  // namespace sampleblk::workload
