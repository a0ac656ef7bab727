// SPDX-License-Identifier: MIT
// A job from its set-up to its end: it waits for the start signal, runs its passes over the files, and verifies.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/engine.hpp"
#include "engine/job.hpp"

namespace sampleblk::workload {

class Worker {
  public:
    // `shared` is the job's part of the shared memory, `io_log` the room for its per-I/O log; `control` is what it
    // and its parent say to each other. `engines` makes its engine.
    Worker(const JobPlan& plan, JobShared& shared, std::span<IoLogEntry> io_log, const JobControl& control,
           const Clock& clock, EngineFactory engines = make_engine);
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker() = default;

    // Leaves the results in the shared memory, what failed too; nothing is thrown.
    void run() noexcept;

  private:
    void work();
    void run_passes();
    void run_pass();
    void dry_run();
    void run_verify();
    void final_syncs();
    void report_mismatches();
    // How long after `begin` was measured. What was measured before the measurement began anew, behind ramp_time or
    // for the last window of latency_target, is forgotten.
    std::uint64_t measured_since(std::uint64_t begin);

    const JobPlan& plan_;
    const JobOptions& options_;
    JobShared& shared_;
    std::span<IoLogEntry> io_log_;
    const Clock& clock_;
    EngineFactory engines_;
    JobControl control_;
    std::unique_ptr<Job> job_;
    std::unique_ptr<EngineInstance> engine_;
    std::uint64_t measured_from_ = 0;  // in ticks
    PerDirection<std::uint64_t> spent_ns_{};
    std::uint64_t verify_spent_ns_ = 0;
    std::uint64_t dry_bytes_ = 0;  // that the run to verify moved
};

}  // namespace sampleblk::workload
