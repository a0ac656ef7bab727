// SPDX-License-Identifier: MIT
// What a job measures: one plain struct of numbers that are all zero at the start. The job fills it in shared memory,
// a result holds a copy, and merge() is the only place where two of them become one.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "sampleblk/histogram.hpp"
#include "sampleblk/workload/options.hpp"

namespace sampleblk::workload {

// How jobs ran whose numbers are summed up.
enum class Together : std::uint8_t { side_by_side, one_after_the_other };

// Samples of a rate, taken every bwavgtime or iopsavgtime.
struct RateSamples {
    std::uint64_t count = 0;
    double min = 0;
    double max = 0;
    double mean = 0;
    double sum_of_deviations = 0;  // Welford's S

    void add(double value) noexcept {
        min = count == 0 || value < min ? value : min;
        max = count == 0 || value > max ? value : max;
        ++count;
        const double delta = value - mean;
        mean += delta / static_cast<double>(count);
        sum_of_deviations += delta * (value - mean);
    }
    // Rates of jobs that run side by side add up, so their samples do too; of those one after the other there are more.
    void merge(const RateSamples& other, Together together) noexcept;
    [[nodiscard]] double stddev() const noexcept {
        return count < 2 ? 0.0 : std::sqrt(sum_of_deviations / static_cast<double>(count - 1));
    }
};

struct DirectionStats {
    std::uint64_t ios = 0;
    std::uint64_t bytes = 0;
    std::uint64_t runtime_ns = 0;
    std::uint64_t short_ios = 0;
    LatencyStats slat;
    LatencyStats clat;
    LatencyStats lat;
    // From when the I/O was due to when it completed, for jobs whose rate is limited: what a user waiting in line would
    // see (coordinated omission).
    LatencyStats response;
    RateSamples bw_kib;  // KiB/s
    RateSamples iops;

    void merge(const DirectionStats& other, Together together = Together::side_by_side) noexcept;
};

inline constexpr std::size_t depth_levels = 7;
using DepthMap = std::array<std::uint64_t, depth_levels>;

// A clock that drifted by more is told of.
inline constexpr double kMostDriftPpm = 1000;

struct Measured {
    std::uint64_t jobs = 0;  // summed up in this
    PerDirection<DirectionStats> data;
    std::uint64_t sync_ios = 0;
    LatencyStats sync_latency;
    // I/Os that count, by the depth at their submission, see depth_level(); syncs at 1, as in fio.
    DepthMap depth_map{};
    DepthMap submit_map{};    // submissions by their I/Os, see batch_level()
    DepthMap complete_map{};  // the same for completions
    std::uint64_t submits = 0;
    std::uint64_t completes = 0;

    std::uint64_t runtime_ns = 0;
    std::uint64_t user_us = 0;
    std::uint64_t system_us = 0;
    std::uint64_t context_switches = 0;
    std::uint64_t major_faults = 0;
    std::uint64_t minor_faults = 0;

    std::uint64_t clock_gettime_jobs = 0;  // jobs that were not timed by the TSC
    double clock_drift_ppm = 0;            // the worst

    std::uint64_t error_count = 0;    // I/Os that failed, or differed, in a way that continue_on_error names
    std::uint64_t first_error = 0;    // errno of the first of these
    std::uint64_t stopped_early = 0;  // jobs that were told to stop
    std::uint64_t io_log_lost = 0;    // rows of logs that found no room

    std::uint64_t verified_blocks = 0;
    std::uint64_t verify_errors = 0;

    // Of the first job, where there are several.
    std::uint64_t latency_depth = 0;  // the depth that latency_target settled on
    std::uint64_t steady = 0;
    double steadystate_criterion = 0;
    double steadystate_slope = 0;
    double steadystate_deviation = 0;
    double steadystate_bw_mean = 0;
    double steadystate_iops_mean = 0;

    // An error of a kind that continue_on_error names, let pass or not.
    void count_error(int code) noexcept {
        if (error_count++ == 0) {
            first_error = static_cast<std::uint64_t>(code);
        }
    }

    // Adds another job's numbers, as group_reporting does. Into zeroes it makes a copy, which leaves alone the
    // histograms that are empty: shared memory that nobody touched takes none.
    void merge(const Measured& other, Together together = Together::side_by_side) noexcept;

    // What follows from the rest, which is not counted I/O by I/O.
    void settle(bool without_lat) noexcept;

    [[nodiscard]] std::uint64_t total_ios() const noexcept { return data[0].ios + data[1].ios + data[2].ios; }
};

// A block whose contents are not what was written there.
struct VerifyMismatch {
    enum class Kind : std::uint8_t { pattern, contents, header, other_block, missing };

    std::uint64_t offset_bytes = 0;  // of the first wrong byte, in the file
    std::uint64_t block_offset_bytes = 0;
    std::uint64_t block_length_bytes = 0;
    std::array<std::uint8_t, 16> expected{};  // from the first wrong byte on
    std::array<std::uint8_t, 16> found{};
    std::uint32_t shown_bytes = 0;  // none where the file ends
    std::uint32_t file = 0;         // its number among the job's
    Kind kind = Kind::pattern;

    [[nodiscard]] const char* what() const noexcept;
};

// How many of a job are kept; verify_errors counts them all.
inline constexpr std::size_t mismatches_kept = 16;
struct MismatchList {
    std::uint32_t count = 0;
    std::array<VerifyMismatch, mismatches_kept> entries{};
};

// fio's levels for queue depths: 1, 2, 4, … 32, >= 64.
[[nodiscard]] constexpr std::size_t depth_level(std::uint32_t depth) noexcept {
    if (depth >= 64) {
        return 6;
    }
    return depth <= 1 ? 0 : static_cast<std::size_t>(std::bit_width(depth)) - 1;
}

// And for batches: 0, 1-4, 5-8, 9-16, 17-32, 33-64, more.
[[nodiscard]] constexpr std::size_t batch_level(std::uint32_t count) noexcept {
    if (count > 64) {
        return 6;
    }
    if (count <= 4) {
        return count == 0 ? 0 : 1;
    }
    return static_cast<std::size_t>(std::bit_width(count - 1)) - 1;
}

}  // namespace sampleblk::workload
