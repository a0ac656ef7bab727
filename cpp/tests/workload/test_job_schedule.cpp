// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <vector>

#include "job_schedule.hpp"

namespace sampleblk::workload {
namespace {

// The supervising thread sleeps until something changes; a job's startdelay begins with start().
TEST(JobSchedule, StartWakesWhoeverWatchesIt) {
    constexpr std::uint64_t delay_ns = 1'000'000;
    std::vector<JobPlan> plans(1);
    plans[0].options.startdelay_ns = delay_ns;
    const SharedMemory shared({0});
    shared.state(0).phase.store(static_cast<std::uint32_t>(Phase::ready));
    JobSchedule schedule(plans, shared);
    EXPECT_GT(schedule.next_wait_ns(), delay_ns);
    const std::uint32_t seen = shared.event().load();
    schedule.start();
    EXPECT_NE(shared.event().load(), seen);
    EXPECT_LE(schedule.next_wait_ns(), delay_ns);
}

}  // namespace
}  // namespace sampleblk::workload
