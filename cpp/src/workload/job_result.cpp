// SPDX-License-Identifier: MIT
#include "sampleblk/workload/job_result.hpp"

#include <algorithm>
#include <cstring>

namespace sampleblk::workload {

namespace {

// Rates of jobs that run side by side add up, so their samples do too.
void add_samples(RateSamples& to, const RateSamples& from) {
    if (from.count == 0) {
        return;
    }
    if (to.count == 0) {
        to = from;
        return;
    }
    to.min += from.min;
    to.max += from.max;
    to.count += from.count;
    to.mean += from.mean;
    to.sum_of_deviations += from.sum_of_deviations;
}

template <typename Array>
void add_each(Array& to, const Array& from) {
    for (std::size_t i = 0; i < to.size(); ++i) {
        to[i] += from[i];
    }
}

}  // namespace

std::uint64_t JobResult::total_ios() const noexcept {
    return data[0].ios + data[1].ios + data[2].ios;
}

std::uint64_t JobResult::total_bytes() const noexcept {
    return data[0].bytes + data[1].bytes + data[2].bytes;
}

void JobResult::merge(const JobResult& other) {
    members += other.members;
    if (error == 0) {
        error = other.error;
        error_text = other.error_text;
    }
    error_count += other.error_count;
    stopped_early = stopped_early || other.stopped_early;
    for (std::size_t d = 0; d < data_directions; ++d) {
        DirectionStats& to = data[d];
        const DirectionStats& from = other.data[d];
        to.ios += from.ios;
        to.bytes += from.bytes;
        to.runtime_ns = std::max(to.runtime_ns, from.runtime_ns);
        to.short_ios += from.short_ios;
        to.dropped_ios += from.dropped_ios;
        to.slat.merge(from.slat);
        to.clat.merge(from.clat);
        to.lat.merge(from.lat);
        to.response.merge(from.response);
        add_samples(to.bw_kib, from.bw_kib);
        add_samples(to.iops, from.iops);
    }
    sync_ios += other.sync_ios;
    sync_latency.merge(other.sync_latency);
    add_each(depth_map, other.depth_map);
    add_each(submit_map, other.submit_map);
    add_each(complete_map, other.complete_map);
    submits += other.submits;
    completes += other.completes;
    // fio adds run times up here too: the CPU shares are of the time of all jobs together.
    runtime_ns += other.runtime_ns;
    user_us += other.user_us;
    system_us += other.system_us;
    context_switches += other.context_switches;
    major_faults += other.major_faults;
    minor_faults += other.minor_faults;
    used_tsc = used_tsc && other.used_tsc;
    clock_drift_ppm =
        std::abs(other.clock_drift_ppm) > std::abs(clock_drift_ppm) ? other.clock_drift_ppm : clock_drift_ppm;
    verified_blocks += other.verified_blocks;
    verify_errors += other.verify_errors;
    mismatches.insert(mismatches.end(), other.mismatches.begin(), other.mismatches.end());
    rates.reset();
    heat.reset();
    io_log.clear();
    io_log_lost += other.io_log_lost;
}

std::vector<JobResult> RunResult::reported() const {
    std::vector<JobResult> out;
    for (const JobResult& job : jobs) {
        if (!job.options.stats) {
            continue;
        }
        if (job.options.group_reporting) {
            const auto same = std::ranges::find_if(out, [&](const JobResult& one) {
                return one.options.group_reporting && one.options.group_id == job.options.group_id;
            });
            if (same != out.end()) {
                same->merge(job);
                continue;
            }
        }
        out.push_back(job);
    }
    return out;
}

JobResult read_state(const JobOptions& options, std::uint64_t seed, const JobState& state) {
    JobResult result;
    result.options = options;
    result.pid = options.thread ? state.thread_id : state.pid;
    result.seed = seed;
    result.error = state.error;
    if (state.error != 0) {
        result.error_text = std::string(state.error_operation.view());
        if (!state.error_path.view().empty()) {
            result.error_text += " '" + std::string(state.error_path.view()) + "'";
        }
        // EILSEQ is what fio ends with too; its text ("multibyte or wide character") would only mislead.
        result.error_text += state.error == EILSEQ && state.error_operation.view() == "verify"
                                 ? std::string(": not what was written")
                                 : std::string(": ") + std::strerror(state.error);
        if (!state.error_detail.view().empty()) {
            result.error_text += ": " + std::string(state.error_detail.view());
        }
    }
    result.error_count = state.error_count;
    result.stopped_early = state.stopped_early != 0;
    result.data = state.data;
    result.sync_ios = state.sync_ios;
    result.sync_latency = state.sync_latency;
    result.depth_map = state.depth_map;
    result.submit_map = state.submit_map;
    result.complete_map = state.complete_map;
    result.submits = state.submits;
    result.completes = state.completes;
    result.runtime_ns = state.runtime_ns;
    result.user_us = state.user_us;
    result.system_us = state.system_us;
    result.context_switches = state.voluntary_switches + state.involuntary_switches;
    result.major_faults = state.major_faults;
    result.minor_faults = state.minor_faults;
    result.used_tsc = state.used_tsc != 0;
    result.clock_drift_ppm = state.clock_drift_ppm;
    result.latency_depth = state.latency_depth;
    result.steady = state.steady != 0;
    result.steadystate_criterion = state.steadystate_criterion;
    result.steadystate_slope = state.steadystate_slope;
    result.steadystate_deviation = state.steadystate_deviation;
    result.steadystate_bw_mean = state.steadystate_bw_mean;
    result.steadystate_iops_mean = state.steadystate_iops_mean;
    result.io_log_lost = state.io_log_lost;
    result.verified_blocks = state.verified_blocks;
    result.verify_errors = state.verify_errors;
    result.mismatches.assign(state.mismatches.begin(),
                             state.mismatches.begin() + std::min<std::size_t>(state.mismatches_shown, mismatches_kept));
    return result;
}

}  // namespace sampleblk::workload
