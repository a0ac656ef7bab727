// SPDX-License-Identifier: MIT
// Jobs at work: laid out, forked, waiting for the start signal, running, finished.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sampleblk/workload/job_file.hpp"
#include "sampleblk/workload/job_result.hpp"

namespace sampleblk::workload {

struct RunProgress {
    double fraction = 0;           // of the work, 0 to 1; time where a runtime limits the jobs
    double elapsed_s = 0;          // since the first job began
    double eta_s = -1;             // negative: not known yet
    std::uint64_t done_bytes = 0;  // by all jobs
    std::uint64_t done_ios = 0;
    double bytes_per_s = 0;  // since the last call
    double ios_per_s = 0;
    std::uint32_t running = 0;
    std::uint32_t finished = 0;
    std::uint32_t jobs = 0;
};

// Where a job's files are or will be, by its options alone: the files that these name, or else the directory of those
// that it makes. Empty for a job without files; nothing where the log that it replays names them.
[[nodiscard]] std::optional<std::vector<std::string>> places_of(const JobOptions& options);

// The jobs of a set, each a process of its own (or a thread of one, with thread=1), forked from this
// process. They run no code but the core's, write their results into shared memory, and die with
// this process however it ends.
class JobRun {
  public:
    // Lays the files out, in the calling thread, then forks. Returns when every job waits for the
    // start signal. Throws SystemError, InputError.
    explicit JobRun(JobSet set);
    JobRun(const JobRun&) = delete;
    JobRun& operator=(const JobRun&) = delete;
    // Stops what runs and waits for it; kills what does not stop.
    ~JobRun();

    // Process ids of the jobs, in their order; jobs that are threads share one.
    [[nodiscard]] std::vector<int> pids() const;
    [[nodiscard]] std::vector<int> thread_ids() const;
    // What the layout said, line by line.
    [[nodiscard]] const std::vector<std::string>& messages() const;

    // Starts the jobs. A second call does nothing.
    void start();

    // Waits until all jobs are over, at most `timeout_ns`; true when they are. Calls
    // check_interrupt(), so an interrupt leaves it by an exception with the jobs still running.
    [[nodiscard]] bool wait(std::uint64_t timeout_ns);

    // Tells the jobs to end after the I/O that they are in. `reason` is shown with the result.
    void stop(const std::string& reason);

    [[nodiscard]] RunProgress progress();

    // What was measured; complete once wait() has returned true. Jobs that never began have none.
    [[nodiscard]] RunResult result() const;

    // Stops, waits, kills if need be, and frees. Idempotent.
    void close() noexcept;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace sampleblk::workload
