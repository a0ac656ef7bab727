// SPDX-License-Identifier: MIT
#include "language/job_fixups.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "sampleblk/error.hpp"

namespace sampleblk::workload {

namespace {

constexpr std::size_t reading = index_of(Direction::read);
constexpr std::size_t writing = index_of(Direction::write);

[[noreturn]] void refuse(const std::string& message, const std::string& expected) {
    throw InputError(message, {}, 0, expected);
}

bool any(const PerDirection<std::uint64_t>& rates) {
    return rates != PerDirection<std::uint64_t>{};
}

void complete_sizes(JobOptions& job, std::vector<Notice>& notices, Notice at) {
    bool aligned_by_block = true;
    for (std::size_t i = 0; i < data_directions; ++i) {
        if (job.align[i] == 0 || !job.random) {
            job.align[i] = job.min_bs[i];
        }
        aligned_by_block = aligned_by_block && job.align[i] == job.min_bs[i];
    }
    if (!aligned_by_block && !job.norandommap) {
        job.norandommap = true;
        at.key = "blockalign";
        at.text = "other than the block size turns the random map off, as in fio: blocks may repeat";
        notices.push_back(at);
    }
    if (job.distribution != Distribution::uniform) {
        job.norandommap = true;  // a map of blocks used once would undo the distribution
    }
    if (job.file_append && job.offset.set()) {
        at.key = "offset";
        at.text = "has no effect with file_append, as in fio: the end of the file counts";
        notices.push_back(at);
    }
    if (job.trim_then_write) {
        for (const auto& [key, every] :
             {std::pair("fsync", job.fsync_every), std::pair("fdatasync", job.fdatasync_every),
              std::pair("sync_file_range", job.sync_file_range_every)}) {
            if (every != 0) {
                at.key = key;
                at.text = "has no effect with trimwrite, as in fio; end_fsync does";
                notices.push_back(at);
            }
        }
    }
    if (job.file_append && job.engine == Engine::mmap) {
        refuse("engine mmap cannot make a file longer", "another engine, or no file_append");
    }
}

void complete_depths(JobOptions& job) {
    if (is_synchronous(job.engine) && job.engine != Engine::null && job.engine != Engine::vsync) {
        job.iodepth = 1;
    }
    const auto capped = [&](std::uint32_t value) { return value == 0 || value > job.iodepth ? job.iodepth : value; };
    job.iodepth_low = capped(job.iodepth_low);
    job.iodepth_batch = capped(job.iodepth_batch);
    job.iodepth_batch_complete_min = std::min(job.iodepth_batch_complete_min, job.iodepth);
    job.iodepth_batch_complete_max =
        std::clamp(job.iodepth_batch_complete_max, job.iodepth_batch_complete_min, job.iodepth);
}

void complete_zones(JobOptions& job) {
    if (job.zonemode == ZoneMode::none && job.zone_size_bytes != 0) {
        refuse("zonemode=none and zonesize exclude one another", "one of the two");
    }
    if (job.zonemode == ZoneMode::strided && job.zone_size_bytes == 0) {
        refuse("zonemode=strided needs a zonesize", "zonesize=…, and zonerange where it differs");
    }
    // Zones are counted over one file at a time.
    job.zonemode = job.zone_size_bytes != 0 && job.openfiles <= 1 ? ZoneMode::strided : ZoneMode::none;
    if (job.zonemode == ZoneMode::strided && job.zone_range_bytes == 0) {
        job.zone_range_bytes = job.zone_size_bytes;
    }
}

void complete_data(JobOptions& job) {
    if (job.compress_percentage != 0 || job.dedupe_percentage != 0 || !job.buffer_pattern.empty() ||
        (job.zero_buffers && !job.scramble_buffers_given)) {
        job.scramble_buffers = false;  // it would undo what was asked for
    }
    if ((job.zero_buffers || !job.buffer_pattern.empty()) && job.reads) {
        job.refill_buffers = true;  // a read leaves its data in the buffer
    }
    if (job.compress_percentage == 100) {
        job.zero_buffers = true;
        job.compress_percentage = 0;
    } else if (job.compress_percentage != 0 && !job.refill_buffers_given) {
        job.refill_buffers = true;
    }
    if (job.engine == Engine::fadvise && job.advice.empty()) {
        job.advice = {4};  // POSIX_FADV_DONTNEED
    }
    if (job.pre_read) {
        job.invalidate = false;  // it would drop what was read
    }
}

// What verify_only is to check must follow from the job alone.
void refuse_unknown_writes(const JobOptions& job) {
    if (job.time_based) {
        refuse("verify_only cannot know how often a time_based run wrote", "loops instead of time_based");
    }
    if (job.file_append) {
        refuse("verify_only cannot know how long a file was before file_append", "offset instead of file_append");
    }
    if (job.fill_device) {
        refuse("verify_only cannot know how much fill_device wrote", "size instead of fill_device");
    }
    if (job.steadystate != SteadyMetric::none) {
        refuse("verify_only cannot know when a run with steadystate ended", "loops instead of steadystate");
    }
    const bool mixed = job.mixes_reads_and_writes() && job.rwmix_read != 0 && job.rwmix_read != 100;
    if (mixed && (any(job.rate_bps) || any(job.rate_iops))) {
        refuse("verify_only cannot know in which order a limited rate mixed reads and writes", "no rate, or rw=write");
    }
}

void complete_verify(JobOptions& job) {
    if (!job.verify_pattern.empty() && !job.verify_given) {
        job.verify = Verify::pattern_hdr;  // as in fio, whose manual has it otherwise
    }
    if (job.verify == Verify::none) {
        if (job.buffer_pattern.empty()) {
            job.buffer_pattern = job.verify_pattern;  // which is written, but not checked
        }
        return;
    }
    if (job.only_pretends()) {
        refuse_unknown_writes(job);
    }
    if (job.engine == Engine::fadvise) {
        refuse("engine fadvise moves no data to verify", "another engine");
    }
    if ((job.verify == Verify::pattern || job.verify == Verify::pattern_hdr) && job.verify_pattern.empty()) {
        refuse("verify=pattern needs a verify_pattern", R"(verify_pattern=0xdeadbeef)");
    }
    const std::uint64_t least = job.min_bs[writing];
    const std::uint64_t most = job.max_bs[writing];
    std::uint64_t& interval = job.verify_interval_bytes;
    if (job.writes && job.bs_unaligned && least != most) {
        interval = 0;  // each I/O is a block
        return;
    }
    if (least != most && interval == 0) {
        interval = least;
    }
    if (interval > least) {
        interval = least;
    } else if (job.reads && interval > job.min_bs[reading]) {
        interval = job.min_bs[reading];
    }
    if (interval == 0 || least % interval != 0 || most % interval != 0) {
        interval = std::gcd(least, most);
    }
}

void complete_pacing(JobOptions& job) {
    if (job.time_based && job.runtime_ns == 0) {
        refuse("time_based needs a runtime", "runtime=30s");
    }
    if ((any(job.rate_bps) && any(job.rate_iops)) || (any(job.rate_min_bps) && any(job.rate_iops_min))) {
        refuse("rate and rate_iops exclude one another", "one of the two");
    }
    for (std::size_t i = 0; i < data_directions; ++i) {
        if ((job.rate_bps[i] != 0 && job.rate_min_bps[i] > job.rate_bps[i]) ||
            (job.rate_iops[i] != 0 && job.rate_iops_min[i] > job.rate_iops[i])) {
            refuse("rate_min is above rate", "rate_min of at most rate");
        }
        if (job.rate_iops[i] > UINT64_MAX / job.min_bs[i]) {
            refuse("rate_iops times the block size is more than 64 bits hold", "a lower rate_iops");
        }
        if (job.rate_iops[i] != 0) {
            job.rate_bps[i] = job.rate_iops[i] * job.min_bs[i];
        }
    }
    if (job.latency_target_ns != 0 && job.latency_window_ns == 0) {
        refuse("latency_target needs a latency_window", "latency_window=1s");
    }
    if (job.steadystate != SteadyMetric::none && job.steadystate_duration_ns == 0) {
        refuse("steadystate needs a steadystate_duration", "steadystate_duration=10s");
    }
    job.thinktime_spin_ns = std::min(job.thinktime_spin_ns, job.thinktime_ns);
}

}  // namespace

void add_job(JobSet& set, JobOptions job, const Notice& at) {
    complete_sizes(job, set.notices, at);
    complete_depths(job);
    complete_zones(job);
    complete_data(job);
    complete_verify(job);
    complete_pacing(job);
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
