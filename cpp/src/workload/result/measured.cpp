// SPDX-License-Identifier: MIT
#include "sampleblk/workload/measured.hpp"

#include <algorithm>

namespace sampleblk::workload {

namespace {

void add_each(DepthMap& to, const DepthMap& from) noexcept {
    for (std::size_t i = 0; i < to.size(); ++i) {
        to[i] += from[i];
    }
}

}  // namespace

void RateSamples::merge(const RateSamples& other, Together together) noexcept {
    if (together == Together::one_after_the_other) {
        if (count == 0 || other.count == 0) {
            *this = count == 0 ? other : *this;
            return;
        }
        const auto mine = static_cast<double>(count);
        const auto more = static_cast<double>(other.count);
        const double delta = other.mean - mean;
        min = std::min(min, other.min);
        max = std::max(max, other.max);
        mean += delta * more / (mine + more);
        sum_of_deviations += other.sum_of_deviations + delta * delta * mine * more / (mine + more);
        count += other.count;
        return;
    }
    min += other.min;
    max += other.max;
    count += other.count;
    mean += other.mean;
    sum_of_deviations += other.sum_of_deviations;
}

void DirectionStats::merge(const DirectionStats& other, Together together) noexcept {
    ios += other.ios;
    bytes += other.bytes;
    runtime_ns =
        together == Together::side_by_side ? std::max(runtime_ns, other.runtime_ns) : runtime_ns + other.runtime_ns;
    short_ios += other.short_ios;
    slat.merge(other.slat);
    clat.merge(other.clat);
    lat.merge(other.lat);
    response.merge(other.response);
    bw_kib.merge(other.bw_kib, together);
    iops.merge(other.iops, together);
}

void Measured::merge(const Measured& other, Together together) noexcept {
    for (std::size_t d = 0; d < data_directions; ++d) {
        data[d].merge(other.data[d], together);
    }
    sync_ios += other.sync_ios;
    sync_latency.merge(other.sync_latency);
    add_each(depth_map, other.depth_map);
    add_each(submit_map, other.submit_map);
    add_each(complete_map, other.complete_map);
    submits += other.submits;
    completes += other.completes;
    // fio adds run times up too: the CPU shares are of the time of all jobs together.
    runtime_ns += other.runtime_ns;
    user_us += other.user_us;
    system_us += other.system_us;
    context_switches += other.context_switches;
    major_faults += other.major_faults;
    minor_faults += other.minor_faults;
    clock_gettime_jobs += other.clock_gettime_jobs;
    clock_drift_ppm =
        std::abs(other.clock_drift_ppm) > std::abs(clock_drift_ppm) ? other.clock_drift_ppm : clock_drift_ppm;
    first_error = first_error == 0 ? other.first_error : first_error;
    error_count += other.error_count;
    stopped_early += other.stopped_early;
    io_log_lost += other.io_log_lost;
    verified_blocks += other.verified_blocks;
    verify_errors += other.verify_errors;
    if (jobs == 0) {
        latency_depth = other.latency_depth;
        steady = other.steady;
        steadystate_criterion = other.steadystate_criterion;
        steadystate_slope = other.steadystate_slope;
        steadystate_deviation = other.steadystate_deviation;
        steadystate_bw_mean = other.steadystate_bw_mean;
        steadystate_iops_mean = other.steadystate_iops_mean;
    }
    jobs += other.jobs;
}

void Measured::settle(bool without_lat) noexcept {
    for (DirectionStats& stats : data) {
        if (stats.bytes != 0 && stats.runtime_ns == 0) {
            stats.runtime_ns = runtime_ns;  // an error ended the first pass
        }
        if (!without_lat && stats.lat.count == 0 && stats.clat.count != 0) {
            stats.lat = stats.clat;  // nothing lies between the start of an I/O and its issue
        }
    }
    if (submits == 0) {
        // Known without counting: one at a time, each submitted and completed alone.
        submits = completes = total_ios() + sync_ios;
        submit_map[1] = complete_map[1] = submits;
    }
}

const char* VerifyMismatch::what() const noexcept {
    switch (kind) {
        case Kind::pattern:
            return "pattern";
        case Kind::contents:
            return "contents";
        case Kind::header:
            return "header";
        case Kind::other_block:
            return "header of another block or write";
        case Kind::missing:
            return "the file ends";
    }
    return "";
}

}  // namespace sampleblk::workload
