// SPDX-License-Identifier: MIT
// A run's result as tables of typed columns.
#pragma once

#include "sampleblk/table.hpp"
#include "sampleblk/workload/job_result.hpp"

namespace sampleblk::workload {

// One row per job and direction that moved data: counts, rates, latencies, percentiles.
[[nodiscard]] Table summary_table(const RunResult& result);

// One row per job, direction and slot of time: ios, bytes, rates, mean latency.
[[nodiscard]] Table series_table(const RunResult& result);

// One row per job, direction, kind of latency and bin of its histogram that is not empty.
[[nodiscard]] Table histogram_table(const RunResult& result);

// Completion latencies by time: one row per job, direction, slot and bin that is not empty.
[[nodiscard]] Table heat_table(const RunResult& result);

// One row per I/O, for jobs with io_log_entries; the metadata says how many were lost.
[[nodiscard]] Table io_log_table(const RunResult& result);

}  // namespace sampleblk::workload
