// SPDX-License-Identifier: MIT
#include "job_fixups.hpp"

#include <algorithm>
#include <string>

#include "sampleblk/error.hpp"

namespace sampleblk::workload {

namespace {

[[noreturn]] void refuse(const std::string& message, const std::string& expected) {
    throw InputError(message, {}, 0, expected);
}

void complete_depths(JobOptions& job) {
    if (is_synchronous(job.engine) && job.engine != Engine::null && job.engine != Engine::vsync) {
        job.iodepth = 1;
    }
    const auto capped = [&](std::uint32_t value, std::uint32_t otherwise) {
        return value == 0 || value > job.iodepth ? otherwise : value;
    };
    job.iodepth_low = capped(job.iodepth_low, job.iodepth);
    job.iodepth_batch = capped(job.iodepth_batch, job.iodepth);
    job.iodepth_batch_complete_min = std::min(job.iodepth_batch_complete_min, job.iodepth);
    job.iodepth_batch_complete_max =
        std::clamp(job.iodepth_batch_complete_max, job.iodepth_batch_complete_min, job.iodepth);
}

void complete_zones(JobOptions& job) {
    if (job.zone_size_bytes != 0) {
        job.zonemode = ZoneMode::strided;
        if (job.zone_range_bytes == 0) {
            job.zone_range_bytes = job.zone_size_bytes;
        }
    } else if (job.zonemode == ZoneMode::strided) {
        refuse("zonemode=strided needs a zonesize", "zonesize=…, and zonerange where it differs");
    }
}

void complete_verify(JobOptions& job) {
    if (!job.verify_pattern.empty() && job.verify == Verify::none) {
        job.verify = Verify::pattern;
    }
    if (job.verify == Verify::none) {
        return;
    }
    if (job.engine == Engine::fadvise) {
        refuse("engine fadvise moves no data to verify", "another engine");
    }
    if ((job.verify == Verify::pattern || job.verify == Verify::pattern_hdr) && job.verify_pattern.empty()) {
        refuse("verify=pattern needs a verify_pattern", R"(verify_pattern=0xdeadbeef)");
    }
    if (job.writes && job.norandommap && job.random &&
        job.min_bs[index_of(Direction::write)] != job.max_bs[index_of(Direction::write)]) {
        refuse("verify with norandommap needs one block size, for blocks may overlap", "bs=… or no norandommap");
    }
    const std::uint64_t least = std::min(job.min_bs[0], job.min_bs[1]);
    if (job.verify_interval_bytes > least) {
        job.verify_interval_bytes = least;
    }
    if (job.verify_interval_bytes != 0) {
        for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
            if (job.min_bs[i] % job.verify_interval_bytes != 0 || job.max_bs[i] % job.verify_interval_bytes != 0) {
                refuse("verify_interval does not divide the block size", "a divisor of bs");
            }
        }
    }
}

void complete_pacing(JobOptions& job) {
    if (job.time_based && job.runtime_ns == 0) {
        refuse("time_based needs a runtime", "runtime=30s");
    }
    for (std::size_t i = 0; i < data_directions; ++i) {
        if (job.rate_bps[i] != 0 && job.rate_iops[i] != 0) {
            refuse("rate and rate_iops exclude one another", "one of the two");
        }
        if (job.rate_iops[i] != 0) {
            job.rate_bps[i] = job.rate_iops[i] * job.min_bs[i];
        }
        if (job.rate_bps[i] != 0 && job.rate_min_bps[i] > job.rate_bps[i]) {
            refuse("rate_min is above rate", "rate_min of at most rate");
        }
    }
    if (job.latency_target_ns != 0 && job.latency_window_ns == 0) {
        refuse("latency_target needs a latency_window", "latency_window=1s");
    }
    if (job.steadystate != SteadyMetric::none && job.steadystate_duration_ns == 0) {
        refuse("steadystate needs a steadystate_duration", "steadystate_duration=10s");
    }
    if (job.thinktime_spin_ns > job.thinktime_ns) {
        job.thinktime_spin_ns = job.thinktime_ns;
    }
}

void complete_sizes(JobOptions& job) {
    for (std::size_t i = 0; i < data_directions; ++i) {
        if (job.align[i] == 0) {
            job.align[i] = job.min_bs[i];
        }
    }
    if (job.trim_then_write && (job.min_bs[1] != job.min_bs[2] || job.max_bs[1] != job.max_bs[2])) {
        refuse("trimwrite needs one block size for trims and writes", "bs=…");
    }
    if (job.file_append && job.offset.set()) {
        refuse("file_append and offset exclude one another", "one of the two");
    }
    if (job.random && job.zonemode == ZoneMode::none && job.distribution != Distribution::uniform &&
        (job.distribution == Distribution::zipf || job.distribution == Distribution::pareto ||
         job.distribution == Distribution::normal)) {
        // These favour some blocks, which a map of blocks used once would take back.
        job.norandommap = true;
    }
}

}  // namespace

void add_job(JobSet& set, JobOptions job) {
    if (job.pre_read) {
        job.invalidate = false;  // it would take back what was read
    }
    complete_sizes(job);
    complete_depths(job);
    complete_zones(job);
    complete_verify(job);
    complete_pacing(job);
    if (job.engine == Engine::fadvise && job.advice.empty()) {
        job.advice = {4};  // POSIX_FADV_DONTNEED
    }
    for (std::string* log : {&job.write_bw_log, &job.write_lat_log, &job.write_iops_log, &job.write_hist_log}) {
        if (*log == "$jobname") {
            *log = job.name;
        }
    }
    if ((job.stonewall || job.new_group) && !set.jobs.empty()) {
        job.group_id = set.jobs.back().group_id + 1;
    } else {
        job.group_id = set.jobs.empty() ? 0 : set.jobs.back().group_id;
    }
    for (std::uint32_t copy = 0; copy < job.numjobs; ++copy) {
        JobOptions one = job;
        one.job_number = static_cast<std::uint32_t>(set.jobs.size());
        one.subjob_number = copy;
        one.stonewall = job.stonewall && copy == 0;
        one.new_group = job.new_group && copy == 0;
        set.jobs.push_back(std::move(one));
    }
}

void check_jobs(const JobSet& set) {
    for (const JobOptions& job : set.jobs) {
        if (job.wait_for.empty()) {
            continue;
        }
        const bool before = std::ranges::any_of(set.jobs, [&](const JobOptions& other) {
            return other.name == job.wait_for && other.job_number < job.job_number && other.name != job.name;
        });
        if (!before) {
            throw InputError("job '" + job.name + "' waits for '" + job.wait_for + "'", set.source, 0,
                             "the name of a job above it");
        }
    }
}

}  // namespace sampleblk::workload
