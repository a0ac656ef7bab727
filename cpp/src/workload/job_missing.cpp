// SPDX-License-Identifier: MIT
#include "job_fixups.hpp"
#include "sampleblk/error.hpp"

namespace sampleblk::workload {

void refuse_missing(const JobOptions& job) {
    const auto refuse = [](bool asked, const char* what) {
        if (asked) {
            throw InputError(std::string(what) + " is not there yet and would change the result");
        }
    };
    refuse(job.engine == Engine::vsync, "ioengine=vsync");
    refuse(job.engine == Engine::mmap, "ioengine=mmap");
    refuse(job.engine == Engine::libaio, "ioengine=libaio");
    refuse(job.engine == Engine::io_uring, "ioengine=io_uring");
    refuse(job.verify != Verify::none, "verify");
    refuse(job.rate_bps != PerDirection<std::uint64_t>{}, "rate");
    refuse(job.thinktime_ns != 0, "thinktime");
    refuse(job.max_latency_ns != PerDirection<std::uint64_t>{}, "max_latency");
    refuse(job.latency_target_ns != 0, "latency_target");
    refuse(!job.write_bw_log.empty() || !job.write_lat_log.empty() || !job.write_iops_log.empty() ||
               !job.write_hist_log.empty() || job.io_log_entries != 0,
           "write_*_log");
    refuse(job.steadystate != SteadyMetric::none, "steadystate");
    refuse(!job.cpus_allowed.empty(), "cpus_allowed");
    refuse(job.nice != 0 || job.prio_given, "nice");
    refuse(job.lockmem_bytes != 0, "lockmem");
    refuse(job.uid >= 0 || job.gid >= 0, "uid");
    refuse(!job.cgroup.empty(), "cgroup");
    refuse(!job.ioscheduler.empty(), "ioscheduler");
    refuse(!job.exec_prerun.empty() || !job.exec_postrun.empty(), "exec_prerun");
    refuse(!job.read_iolog.empty(), "read_iolog");
    refuse(job.pre_read, "pre_read");
    refuse(job.unlink, "unlink");
    refuse(job.refill_buffers || job.dedupe_percentage != 0 || job.compress_percentage != 0, "refill_buffers");
    refuse(!job.write_hint.empty(), "write_hint");
}

}  // namespace sampleblk::workload
