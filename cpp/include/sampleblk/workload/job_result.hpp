// SPDX-License-Identifier: MIT
// What jobs measured, as plain values: to be reported (report.hpp), merged and kept.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sampleblk/workload/job_file.hpp"
#include "sampleblk/workload/job_state.hpp"

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
};

struct JobResult {
    JobOptions options;
    std::uint32_t members = 1;  // jobs summed up in this one
    std::int32_t pid = 0;
    std::uint64_t seed = 0;

    std::int32_t error = 0;
    std::string error_text;  // operation, path and reason
    std::uint64_t error_count = 0;
    bool stopped_early = false;

    std::array<DirectionStats, data_directions> data;
    std::uint64_t sync_ios = 0;
    LatencyStats sync_latency;
    std::array<std::uint64_t, depth_levels> depth_map{};
    std::array<std::uint64_t, depth_levels> submit_map{};
    std::array<std::uint64_t, depth_levels> complete_map{};
    std::uint64_t submits = 0;
    std::uint64_t completes = 0;

    std::uint64_t runtime_ns = 0;
    std::uint64_t user_us = 0;
    std::uint64_t system_us = 0;
    std::uint64_t context_switches = 0;
    std::uint64_t major_faults = 0;
    std::uint64_t minor_faults = 0;

    bool used_tsc = false;
    double clock_drift_ppm = 0;

    std::uint32_t latency_depth = 0;
    bool steady = false;
    double steadystate_criterion = 0;
    double steadystate_slope = 0;
    double steadystate_deviation = 0;
    double steadystate_bw_mean = 0;
    double steadystate_iops_mean = 0;

    std::uint64_t verified_blocks = 0;
    std::uint64_t verify_errors = 0;
    std::vector<VerifyMismatch> mismatches;

    std::shared_ptr<const RateSeries> rates;  // over time; null after a merge
    std::shared_ptr<const HeatSeries> heat;
    std::vector<IoLogEntry> io_log;
    std::uint64_t io_log_lost = 0;
    std::vector<std::string> paths;  // of the job's files, which the log counts

    [[nodiscard]] std::uint64_t total_ios() const noexcept;
    [[nodiscard]] std::uint64_t total_bytes() const noexcept;

    // Adds another job's numbers, as group_reporting does: counts and histograms add up, times take
    // the longest.
    void merge(const JobResult& other);
};

struct RunResult {
    std::string source;
    std::vector<Setting> globals;
    std::vector<Notice> notices;
    std::vector<std::string> messages;  // of the layout
    std::vector<JobResult> jobs;
    std::vector<DiskStats> disks;
    std::string stop_reason;          // "interrupted", "no space left on device"; empty: ran to its end
    std::int64_t finished_at_s = 0;   // wall clock
    std::int64_t finished_at_ms = 0;  // the same
    std::string clock_note;           // why the TSC was not used

    // The jobs as they are reported: with group_reporting, those of a group summed up.
    [[nodiscard]] std::vector<JobResult> reported() const;
};

// A job's numbers out of the shared memory.
[[nodiscard]] JobResult read_state(const JobOptions& options, std::uint64_t seed, const JobState& state);

}  // namespace sampleblk::workload
