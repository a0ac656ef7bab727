// SPDX-License-Identifier: MIT
// What a job's process and its parent share: one zeroed shared mapping per run, a JobState per job.
// The job writes, the parent reads the atomics while it runs and all the rest after it has ended.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sampleblk/histogram.hpp"
#include "sampleblk/workload/options.hpp"
#include "sampleblk/workload/series.hpp"

namespace sampleblk::workload {

enum class Phase : std::uint8_t {
    created,  // forked, setting itself up
    ready,    // waits for the word to start
    delayed,  // startdelay
    ramp,     // ramp_time
    running,
    verifying,
    finished,  // wrote its last number
};

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
    [[nodiscard]] double stddev() const noexcept {
        return count < 2 ? 0.0 : std::sqrt(sum_of_deviations / static_cast<double>(count - 1));
    }
};

struct DirectionStats {
    std::uint64_t ios = 0;
    std::uint64_t bytes = 0;
    std::uint64_t runtime_ns = 0;
    std::uint64_t short_ios = 0;
    std::uint64_t dropped_ios = 0;
    LatencyStats slat;
    LatencyStats clat;
    LatencyStats lat;
    // From when the I/O was due to when it completed, for jobs whose rate is limited: what a user
    // waiting in line would see (coordinated omission).
    LatencyStats response;
    RateSamples bw_kib;  // KiB/s
    RateSamples iops;
};

inline constexpr std::size_t depth_levels = 7;

// A text of bounded length that lies in shared memory.
template <std::size_t Size>
struct SharedText {
    std::array<char, Size> text{};

    void set(std::string_view from) noexcept {
        const std::size_t length = from.size() < Size - 1 ? from.size() : Size - 1;
        from.copy(text.data(), length);
        text[length] = '\0';
    }
    [[nodiscard]] std::string_view view() const noexcept { return text.data(); }
};

// A block whose contents are not what was written there.
struct VerifyMismatch {
    std::uint64_t offset_bytes = 0;  // of the first wrong byte, in the file
    std::uint64_t block_offset_bytes = 0;
    std::uint64_t block_length_bytes = 0;
    std::array<std::uint8_t, 16> expected{};  // from the first wrong byte on
    std::array<std::uint8_t, 16> found{};
    std::uint32_t shown_bytes = 0;
    SharedText<64> what;
    SharedText<256> path;
};
inline constexpr std::size_t mismatches_kept = 16;

struct JobState {
    std::atomic<std::uint32_t> phase{0};  // a Phase
    std::atomic<std::uint32_t> go{0};     // futex: 1 starts the job
    std::atomic<std::uint32_t> stop{0};   // futex: 1 ends it
    std::int32_t pid = 0;
    std::int32_t thread_id = 0;

    // Progress, for the parent to read at any time; verify and ramp included.
    std::atomic<std::uint64_t> done_bytes{0};
    std::atomic<std::uint64_t> done_ios{0};
    std::atomic<std::uint64_t> loop{0};
    std::atomic<std::uint64_t> started_ns{0};  // CLOCK_MONOTONIC when the job phase began
    std::atomic<std::uint64_t> ended_ns{0};

    // What went wrong: the first error, with its errno.
    std::int32_t error = 0;
    SharedText<48> error_operation;
    SharedText<256> error_path;
    SharedText<160> error_detail;
    std::uint64_t error_count = 0;  // with continue_on_error
    std::uint32_t stopped_early = 0;
    std::uint32_t runtime_reached = 0;
    std::uint32_t steady = 0;

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
    std::uint64_t voluntary_switches = 0;
    std::uint64_t involuntary_switches = 0;
    std::uint64_t major_faults = 0;
    std::uint64_t minor_faults = 0;

    std::uint32_t used_tsc = 0;
    double clock_drift_ppm = 0;

    std::uint32_t latency_depth = 0;  // the depth that latency_target settled on
    double steadystate_criterion = 0;
    double steadystate_slope = 0;
    double steadystate_deviation = 0;
    double steadystate_bw_mean = 0;
    double steadystate_iops_mean = 0;

    std::uint64_t verified_blocks = 0;
    std::uint64_t verify_errors = 0;
    std::uint32_t mismatches_shown = 0;
    std::array<VerifyMismatch, mismatches_kept> mismatches{};

    std::uint64_t io_log_lost = 0;
    std::atomic<std::uint64_t> io_log_used{0};
};

// All of a job's part of the shared memory. What a job does not use is never touched, and so takes
// no memory.
struct JobShared {
    JobState state;
    RateSeries rates;
    HeatSeries heat;
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
