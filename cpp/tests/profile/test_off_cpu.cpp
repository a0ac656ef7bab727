// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "recording.hpp"
#include "sampleblk/profile/off_cpu.hpp"
#include "views/switches.hpp"

namespace sampleblk::profile {
namespace {

constexpr std::uint64_t kMs = 1000000;
constexpr std::int64_t kRunning = 0;
constexpr std::int64_t kAsleep = 1;
const std::vector<std::string> kWrite = {"do_syscall_64", "__x64_sys_write", "ksys_write", "ext4_file_write_iter"};

std::vector<std::string> below(std::vector<std::string> outer, const std::vector<std::string>& inner) {
    outer.insert(outer.end(), inner.begin(), inner.end());
    return outer;
}

// Thread 7 writes: 2 ms in ext4, 3 ms spinning for the inode's lock, 4 ms asleep for it and 1 ms woken but waiting for
// a CPU, 6 ms in its page cache's I/O, and 5 ms preempted.
Profile written() {
    Recording made;
    made.comm(7, "writer");
    made.comm(8, "other");
    for (std::uint64_t ms = 1; ms <= 2; ++ms) {
        made.run(ms * kMs, 7, kWrite);
    }
    const auto locking = below(kWrite, {"down_write", "rwsem_down_write_slowpath"});
    for (std::uint64_t ms = 3; ms <= 5; ++ms) {
        made.run(ms * kMs, 7, below(locking, {"rwsem_optimistic_spin", "osq_lock"}));
    }
    made.switch_out(6 * kMs, 7, kAsleep, 8, below(locking, {"schedule", "__schedule"}));
    made.wake(10 * kMs, 8, 7);
    made.switch_out(11 * kMs, 8, kRunning, 7,
                    {"asm_sysvec_apic_timer_interrupt", "preempt_schedule_irq", "__schedule"});
    made.switch_out(12 * kMs, 7, 2, 8,
                    below(kWrite, {"folio_wait_bit_common", "io_schedule", "schedule", "__schedule"}));
    made.wake(18 * kMs, 8, 7);
    made.switch_out(18 * kMs, 8, kAsleep, 7, {"do_syscall_64", "__x64_sys_poll", "schedule", "__schedule"});
    made.switch_out(20 * kMs, 7, kRunning, 8, below(kWrite, {"preempt_schedule", "__schedule"}));
    made.switch_out(25 * kMs, 8, kAsleep, 7, {"do_syscall_64", "__x64_sys_poll", "schedule", "__schedule"});
    return made.profile();
}

SampleSelection writer() {
    SampleSelection selection;
    selection.pids = {7};
    return selection;
}

TEST(OffCpu, TimeIsSplitByWhatItWaitsFor) {
    const Profile profile = written();
    EXPECT_TRUE(profile.file().damage().empty());
    const auto stretches = off_cpu(profile, writer());
    ASSERT_EQ(stretches.size(), 3U);
    EXPECT_EQ(stretches[0].wait, Wait::lock);
    EXPECT_EQ(stretches[0].blocked_ns, 4 * kMs);
    EXPECT_EQ(stretches[0].runnable_ns, 1 * kMs);
    EXPECT_EQ(stretches[1].wait, Wait::io);
    EXPECT_EQ(stretches[1].blocked_ns, 6 * kMs);
    EXPECT_EQ(stretches[2].wait, Wait::runnable);
    EXPECT_EQ(stretches[2].runnable_ns, 5 * kMs);
}

TEST(OffCpu, ASystemCallsTimeIsOnAndOffTheCpu) {
    const Table split = syscall_split(written(), writer());
    ASSERT_EQ(split.rows(), 1U);
    const auto value = [&split](const char* column) { return split.find(column)->values<std::uint64_t>()[0]; };
    const auto* name = split.find("syscall");
    EXPECT_EQ(name->pool()->at(name->values<std::int32_t>()[0]), "write");
    EXPECT_EQ(value("on_cpu"), 5 * kMs);
    EXPECT_EQ(value("blocked_lock"), 4 * kMs);
    EXPECT_EQ(value("blocked_io"), 6 * kMs);
    EXPECT_EQ(value("runnable"), 6 * kMs);
}

// A journal's thread that waits for a disk is no user's code.
TEST(OffCpu, AKernelThreadIsNoUser) {
    Recording made;
    const std::vector<std::string> journal = {"ret_from_fork", "kthread", "kjournald2",
                                              "jbd2_journal_commit_transaction"};
    made.comm(9, "jbd2/sda1-8");
    made.run(1 * kMs, 9, journal);
    made.switch_out(2 * kMs, 9, 2, 0, below(journal, {"__wait_on_buffer", "io_schedule", "schedule", "__schedule"}));
    made.switch_out(5 * kMs, 0, kRunning, 9, {"cpu_startup_entry", "schedule_idle", "__schedule"});
    made.comm(7, "writer");
    made.run(6 * kMs, 7, {"asm_exc_page_fault"});
    SampleSelection both;
    both.pids = {7, 9};
    const Table split = syscall_split(made.profile(), both);
    const auto* name = split.find("syscall");
    std::vector<std::string> names;
    for (std::size_t row = 0; row < split.rows(); ++row) {
        names.emplace_back(name->pool()->at(name->values<std::int32_t>()[row]));
    }
    EXPECT_EQ(names, (std::vector<std::string>{"(kernel thread)", "(user)"}));
    EXPECT_EQ(split.find("blocked_io")->values<std::uint64_t>()[0], 3 * kMs);
    EXPECT_EQ(split.find("samples")->values<std::uint64_t>()[1], 1U);
}

TEST(OffCpu, AHotLockIsKnownByWhoTakesIt) {
    const Table locks = lock_table(written(), writer());
    ASSERT_EQ(locks.rows(), 1U);
    const auto text = [&locks](const char* column) {
        const auto* found = locks.find(column);
        return found->pool()->at(found->values<std::int32_t>()[0]);
    };
    EXPECT_EQ(text("lock"), "down_write");
    EXPECT_EQ(text("caller"), "ext4_file_write_iter");
    EXPECT_EQ(locks.find("spin")->values<std::uint64_t>()[0], 3 * kMs);
    EXPECT_EQ(locks.find("blocked")->values<std::uint64_t>()[0], 4 * kMs);
    EXPECT_EQ(locks.find("samples")->values<std::uint64_t>()[0], 3U);
    EXPECT_EQ(locks.find("waits")->values<std::uint64_t>()[0], 1U);
}

TEST(OffCpu, TheWallClockIsBoth) {
    const Profile profile = written();
    const StackTree wall = wall_clock_tree(profile, writer());
    EXPECT_EQ(wall.total(), (5 + 4 + 1 + 6 + 5) * kMs);
    EXPECT_EQ(off_cpu_tree(profile, writer()).total(), (4 + 1 + 6 + 5) * kMs);
    const auto path = below(kWrite, {"[on CPU]"});
    const auto under = below({"writer"}, path);
    EXPECT_EQ(wall.nodes()[wall.find(under)].total, 2 * kMs);
}

TEST(Profile, WhatAGuestRanIsNotLookedUpAmongOurFunctions) {
    Recording recording;
    recording.run_beyond(1, 7, PERF_RECORD_MISC_GUEST_KERNEL);
    recording.run_beyond(2, 7, PERF_RECORD_MISC_GUEST_USER);
    recording.run_beyond(3, 7, PERF_RECORD_MISC_HYPERVISOR);
    const Profile profile = recording.profile();
    ASSERT_EQ(profile.size(), 3U);
    EXPECT_EQ(profile.stack(0), std::vector<std::string>{"[guest kernel]"});
    EXPECT_EQ(profile.stack(1), std::vector<std::string>{"[guest user]"});
    EXPECT_EQ(profile.stack(2), std::vector<std::string>{"[hypervisor]"});
}

TEST(Profile, AProgramHasItsNameWhileItIsThere) {
    Recording recording;
    constexpr std::uint64_t place = 0xffffffffc0300000;
    recording.program(1, place, 0x100, "bpf_prog_1_first");
    recording.program(5, place, 0x80, "bpf_prog_2_second");
    recording.program(9, place, 0x100, "bpf_prog_1_first");
    const Profile profile = recording.profile();
    ASSERT_EQ(profile.size(), 3U);
    EXPECT_EQ(profile.stack(0), std::vector<std::string>{"bpf_prog_1_first"});
    EXPECT_EQ(profile.stack(1), std::vector<std::string>{"bpf_prog_2_second"});
    EXPECT_EQ(profile.stack(2), std::vector<std::string>{"bpf_prog_1_first"});
}

TEST(OffCpu, OfOtherCpusThereIsNothing) {
    const Profile profile = written();
    SampleSelection selection = writer();
    selection.cpus = {0};
    EXPECT_EQ(off_cpu_tree(profile, selection).total(), (4 + 1 + 6 + 5) * kMs);
    selection.cpus = {1};
    EXPECT_TRUE(off_cpu(profile, selection).empty());
    EXPECT_EQ(wall_clock_tree(profile, selection).total(), 0U);
}

// A kernel whose idle thread does not trace, and lost records: the switch to thread 7 is not in the recording.
TEST(OffCpu, AMissingSwitchInEndsWhenTheThreadWasWoken) {
    const std::vector<std::string> nap = {"do_syscall_64", "__x64_sys_clock_nanosleep", "do_nanosleep", "schedule",
                                          "__schedule"};
    Recording made;
    made.comm(7, "sleeper");
    made.switch_out(1 * kMs, 7, kAsleep, 0, nap);
    made.wake(301 * kMs, 0, 7);
    made.switch_out(303 * kMs, 7, kAsleep, 0, nap);
    made.switch_out(310 * kMs, 7, kAsleep, 0, nap);  // nobody is seen to wake it
    made.wake(400 * kMs, 0, 7);
    const Profile profile = made.profile();
    std::size_t missed = 0;
    const auto stretches = off_cpu(profile, writer(), &missed);
    ASSERT_EQ(stretches.size(), 3U);
    EXPECT_EQ(stretches[0].wait, Wait::sleep);
    EXPECT_EQ(stretches[0].blocked_ns, 300 * kMs);
    EXPECT_EQ(stretches[0].runnable_ns, 0U);
    EXPECT_TRUE(stretches[0].finished);
    EXPECT_EQ(stretches[1].blocked_ns, 7 * kMs);
    EXPECT_FALSE(stretches[2].finished);
    EXPECT_EQ(missed, 2U);
    EXPECT_EQ(off_cpu_table(profile, writer()).metadata().at("missed_switches"), "2");
    // It ran from then to its next switch out: nothing of the time between is lost.
    std::uint64_t ran = 0;
    (void)Switches::find(profile)->replay([](const Switches::Off&) {},
                                          [&](const Switches::On& on) { ran += on.until - on.since; });
    EXPECT_EQ(ran, 2 * kMs);
}

TEST(OffCpu, AcrossLostRecordsALengthIsInDoubt) {
    Recording made;
    made.comm(7, "writer");
    const auto locking = below(kWrite, {"down_write", "rwsem_down_write_slowpath", "schedule", "__schedule"});
    made.switch_out(1 * kMs, 7, kAsleep, 8, locking);
    made.switch_out(2 * kMs, 8, kAsleep, 7, {});
    made.lost(3 * kMs);
    made.switch_out(4 * kMs, 7, kAsleep, 8, locking);
    made.lost(5 * kMs);
    made.switch_out(6 * kMs, 8, kAsleep, 7, {});
    const Profile profile = made.profile();
    const auto stretches = off_cpu(profile, writer());
    ASSERT_EQ(stretches.size(), 2U);
    EXPECT_FALSE(stretches[0].across_gap);
    EXPECT_TRUE(stretches[1].across_gap);
    for (const Table& table :
         {off_cpu_table(profile, writer()), syscall_split(profile, writer()), lock_table(profile, writer())}) {
        EXPECT_EQ(table.metadata().at("across_gaps"), "1");
    }
    EXPECT_FALSE(off_cpu_table(written(), writer()).metadata().contains("across_gaps"));
}

TEST(OffCpu, WhatIsWaitedForWithATimeoutIsNoSleep) {
    const std::vector<std::string> timed = {"schedule_hrtimeout_range", "schedule_hrtimeout_range_clock", "schedule",
                                            "__schedule"};
    Recording made;
    made.comm(7, "server");
    made.switch_out(1 * kMs, 7, kAsleep, 8, below({"__x64_sys_poll", "poll_schedule_timeout.constprop.0"}, timed));
    made.switch_out(2 * kMs, 8, kRunning, 7, {});
    made.switch_out(3 * kMs, 7, kAsleep, 8, below({"__x64_sys_io_uring_enter", "io_cqring_wait"}, timed));
    made.switch_out(4 * kMs, 8, kRunning, 7, {});
    made.switch_out(5 * kMs, 7, kAsleep, 8, below({"usleep_range_state"}, timed));
    const auto stretches = off_cpu(made.profile(), writer());
    ASSERT_EQ(stretches.size(), 3U);
    EXPECT_EQ(stretches[0].wait, Wait::other);
    EXPECT_EQ(stretches[1].wait, Wait::io);
    EXPECT_EQ(stretches[2].wait, Wait::sleep);
}

TEST(OffCpu, WhoRunsAsTheRecordingEndsRanUntilThen) {
    Recording made;
    made.comm(7, "spinner");
    made.switch_out(1 * kMs, 7, kAsleep, 8, kWrite);
    made.switch_out(4 * kMs, 8, kAsleep, 7, kWrite);
    made.wake(10 * kMs, 7, 8);
    const Profile profile = made.profile();
    std::map<std::int32_t, std::uint64_t> ran;
    (void)Switches::find(profile)->replay([](const Switches::Off&) {},
                                          [&](const Switches::On& on) { ran[on.tid] += on.until - on.since; });
    EXPECT_EQ(ran, (std::map<std::int32_t, std::uint64_t>{{7, 6 * kMs}, {8, 3 * kMs}}));
}

TEST(OffCpu, AThreadThatDiedWaitsForNothing) {
    Recording made;
    made.comm(7, "short");
    made.comm(8, "long");
    made.switch_out(1 * kMs, 8, kAsleep, 7, kWrite);
    made.switch_out(4 * kMs, 7, 0x10, 8, {"do_syscall_64", "__x64_sys_exit_group", "do_task_dead", "__schedule"});
    made.switch_out(90 * kMs, 8, kAsleep, 0, kWrite);
    EXPECT_TRUE(off_cpu(made.profile(), writer()).empty());
}

}  // namespace
}  // namespace sampleblk::profile
