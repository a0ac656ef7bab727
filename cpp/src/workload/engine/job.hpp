// SPDX-License-Identifier: MIT
// A job at work, in its own process or thread: one object for each of its concerns. The loop (loop.hpp) and the life of
// an I/O (io_life.hpp) are built on it, and the worker (run/worker.hpp) drives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "data/buffers.hpp"
#include "data/verify.hpp"
#include "engine/budget.hpp"
#include "engine/job_control.hpp"
#include "engine/job_files.hpp"
#include "engine/timetable.hpp"
#include "pattern/clock.hpp"
#include "pattern/generator.hpp"
#include "pattern/pacing.hpp"
#include "pattern/plan.hpp"
#include "pattern/replay.hpp"
#include "result/accounting.hpp"

namespace sampleblk::workload {

class Job {
  public:
    // `shared` is the job's part of the shared memory, `io_log` the room for its per-I/O log. All outlive this. Throws
    // SystemError.
    Job(const JobPlan& plan, JobShared& shared, std::span<IoLogEntry> io_log, JobControl& control, const Clock& clock);
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;
    ~Job() = default;

    [[nodiscard]] std::byte* buffer_of(std::uint32_t slot) const noexcept {
        return memory.data() + std::size_t{slot} * buffer_stride;
    }

    const JobPlan& plan;
    const JobOptions& options;
    const Clock& clock;
    JobControl& control;
    Measured& measured;
    JobFiles files;
    Generator generator;
    BufferFiller filler;
    std::unique_ptr<ReplaySource> replay;  // where it is a replay
    std::unique_ptr<Verifier> verifier;    // with verify=
    std::unique_ptr<Pacer> pacer;          // where something holds I/Os back
    Budget budget;
    bool refills;  // whether each write gets new contents
    bool extras;   // whether an I/O takes more than the shortest way: one test per loop
    Accounting accounting;
    Timetable timetable;
    std::size_t buffer_stride;
    BufferMemory memory;
};

}  // namespace sampleblk::workload
