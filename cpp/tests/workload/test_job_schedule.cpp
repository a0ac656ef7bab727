// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include "run/job_schedule.hpp"

namespace sampleblk::workload {
namespace {

void become(const SharedMemory& shared, std::size_t job, Phase phase) {
    shared.state(job).phase.store(static_cast<std::uint32_t>(phase));
}

// Jobs that wait for the word to begin.
struct ReadyJobs {
    explicit ReadyJobs(const std::vector<JobPlan>& plans)
        : shared(std::vector<std::uint64_t>(plans.size())), schedule(plans, shared) {
        for (std::size_t i = 0; i < plans.size(); ++i) {
            become(shared, i, Phase::ready);
        }
    }
    const SharedMemory shared;
    JobSchedule schedule;
};

bool was_woken(const SharedMemory& shared) {
    std::uint64_t count = 0;
    return ::read(shared.event(), &count, sizeof(count)) == sizeof(count);
}

// The supervising thread sleeps until something changes; a job's startdelay begins with start().
TEST(JobSchedule, StartWakesWhoeverWatchesIt) {
    constexpr std::uint64_t delay_ns = 1'000'000;
    std::vector<JobPlan> plans(1);
    plans[0].options.startdelay_ns = delay_ns;
    ReadyJobs jobs(plans);
    auto& [shared, schedule] = jobs;
    EXPECT_GT(schedule.next_wait_ns(), delay_ns);
    EXPECT_FALSE(was_woken(shared));
    schedule.start();
    EXPECT_TRUE(was_woken(shared));
    EXPECT_LE(schedule.next_wait_ns(), delay_ns);
}

// As in fio, a startdelay is from the start of all jobs, not from when a stonewall lets the job begin.
TEST(JobSchedule, StartdelayIsNoPauseBehindAStonewall) {
    std::vector<JobPlan> plans(2);
    plans[1].options.stonewall = true;
    plans[1].options.startdelay_ns = 1;
    ReadyJobs jobs(plans);
    auto& [shared, schedule] = jobs;
    schedule.start();
    EXPECT_EQ(shared.state(1).go.load(), 0U);
    ::usleep(1);
    become(shared, 0, Phase::finished);
    schedule.step();
    EXPECT_EQ(shared.state(1).go.load(), 1U);
}

// exit_what=stonewall ends the jobs that run when the first one ends, and not those that the next group starts.
TEST(JobSchedule, ExitWhatStonewallSparesTheJobsBehindTheStonewall) {
    std::vector<JobPlan> plans(3);
    for (JobPlan& plan : plans) {
        plan.options.exit_what = ExitWhat::stonewall;
    }
    plans[0].options.exitall = true;
    plans[2].options.stonewall = true;
    plans[2].options.group_id = 1;
    ReadyJobs jobs(plans);
    auto& [shared, schedule] = jobs;
    schedule.start();
    become(shared, 0, Phase::finished);
    schedule.step();
    EXPECT_TRUE(told_to_stop(shared.state(1)));
    EXPECT_FALSE(told_to_stop(shared.state(2)));
    become(shared, 1, Phase::finished);
    schedule.step();
    EXPECT_EQ(shared.state(2).go.load(), 1U);
    become(shared, 2, Phase::running);
    schedule.step();
    EXPECT_FALSE(told_to_stop(shared.state(2)));
}

// As fio's: whichever job ends first, if any has exitall.
TEST(JobSchedule, ExitallOfOneJobIsEveryJobs) {
    std::vector<JobPlan> plans(2);
    plans[1].options.exitall = true;
    ReadyJobs jobs(plans);
    auto& [shared, schedule] = jobs;
    schedule.start();
    become(shared, 0, Phase::finished);
    schedule.step();
    EXPECT_TRUE(told_to_stop(shared.state(1)));
}

// A job that was told to stop by another may sleep in a system call: it is to be interrupted, again and again.
TEST(JobSchedule, WatchesAJobThatIsToStopUntilItHas) {
    std::vector<JobPlan> plans(2);
    plans[0].options.exitall = true;
    ReadyJobs jobs(plans);
    auto& [shared, schedule] = jobs;
    schedule.start();
    EXPECT_EQ(schedule.next_wait_ns(), UINT64_MAX);
    become(shared, 1, Phase::running);
    become(shared, 0, Phase::finished);
    schedule.step();
    EXPECT_TRUE(schedule.someone_is_to_stop());
    EXPECT_LT(schedule.next_wait_ns(), 1'000'000'000U);
    become(shared, 1, Phase::finished);
    EXPECT_FALSE(schedule.someone_is_to_stop());
    EXPECT_FALSE(schedule.grace_expired());
}

}  // namespace
}  // namespace sampleblk::workload
