// SPDX-License-Identifier: MIT
// How far the jobs of a run have come, and how fast they go.
#pragma once

#include <cstdint>
#include <vector>

#include "pattern/plan.hpp"
#include "run/shared_memory.hpp"
#include "sampleblk/workload/job_run.hpp"

namespace sampleblk::workload {

class ProgressMeter {
  public:
    // Both must outlive this.
    ProgressMeter(const std::vector<JobPlan>& plans, const SharedMemory& shared) : plans_(plans), shared_(shared) {}

    // Rates are those since the last call.
    [[nodiscard]] RunProgress read();

  private:
    const std::vector<JobPlan>& plans_;
    const SharedMemory& shared_;
    std::uint64_t last_ns_ = 0;
    std::uint64_t last_bytes_ = 0;
    std::uint64_t last_ios_ = 0;
};

}  // namespace sampleblk::workload
