// SPDX-License-Identifier: MIT
#include "engine/job.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "sampleblk/error.hpp"

namespace sampleblk::workload {

namespace {

bool watches_latency(const JobOptions& options) {
    return options.max_latency_ns != PerDirection<std::uint64_t>{} || options.latency_target_ns != 0;
}

bool holds_back(const JobOptions& options) {
    return options.thinktime_ns != 0 || options.rate_bps != PerDirection<std::uint64_t>{} ||
           options.latency_target_ns != 0;
}

std::uint64_t longest_io(const JobOptions& options, const ReplaySource* replay) {
    return std::max(*std::ranges::max_element(options.max_bs), replay != nullptr ? replay->longest() : 0);
}

// Whole pages, so that each buffer begins on one.
std::size_t stride_of(std::uint64_t longest, std::uint32_t depth) {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    if (longest > SIZE_MAX / 2 / depth) {
        throw SystemError("mmap", {}, ENOMEM, "buffers for I/Os of " + std::to_string(longest) + " bytes");
    }
    return static_cast<std::size_t>((longest + page - 1) / page * page);
}

}  // namespace

Job::Job(const JobPlan& job_plan, JobShared& shared, std::span<IoLogEntry> io_log, JobControl& job_control,
         const Clock& job_clock)
    : plan(job_plan),
      options(job_plan.options),
      clock(job_clock),
      control(job_control),
      measured(shared.state.measured),
      files(plan, control),
      generator(plan, files.all(), files),
      filler(options, plan.seed),
      replay(plan.replay.empty() ? nullptr : std::make_unique<ReplaySource>(plan, clock)),
      verifier(options.verify == Verify::none ? nullptr
                                              : std::make_unique<Verifier>(plan, measured, shared.state.mismatches)),
      pacer(holds_back(options) ? std::make_unique<Pacer>(plan, clock, generator) : nullptr),
      budget(plan),
      refills(options.refill_buffers || options.dedupe_percentage != 0 ||
              !options.buffer_pattern.offset_fields.empty()),
      extras(verifier || pacer || replay || refills || watches_latency(options) || options.sync_file_range_every != 0),
      accounting(plan, shared, io_log, clock, !is_synchronous(options.engine) || extras,
                 replay || (pacer && pacer->limits_rate())),
      timetable(options, clock, control, accounting, measured, pacer.get()),
      buffer_stride(stride_of(longest_io(options, replay.get()), options.iodepth)),
      memory(options, buffer_stride * options.iodepth) {
    if (options.writes) {
        const auto longest = static_cast<std::size_t>(longest_io(options, replay.get()));
        for (std::uint32_t i = 0; i < options.iodepth; ++i) {
            filler.fill({buffer_of(i), longest}, 0);
        }
    }
}

}  // namespace sampleblk::workload
