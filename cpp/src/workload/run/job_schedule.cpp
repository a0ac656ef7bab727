// SPDX-License-Identifier: MIT
#include "run/job_schedule.hpp"

#include <algorithm>
#include <cerrno>

#include "pattern/clock.hpp"
#include "pattern/random.hpp"

namespace sampleblk::workload {

namespace {

// A job that is told to stop is interrupted at this interval, for it may enter a system call after it looked at the
// flag, and has this long to return from it.
constexpr std::uint64_t interrupt_interval_ns = 50'000'000;
constexpr std::uint64_t stop_grace_ns = 20'000'000'000;

}  // namespace

JobSchedule::JobSchedule(const std::vector<JobPlan>& plans, const SharedMemory& shared)
    : plans_(plans),
      shared_(shared),
      exitall_(std::ranges::any_of(plans, [](const JobPlan& plan) { return plan.options.exitall; })),
      started_(plans.size()),
      ended_(plans.size()),
      begin_at_ns_(plans.size()) {}

void JobSchedule::start() {
    start_asked_ = true;
    const std::uint64_t now = Clock::monotonic_ns();
    for (std::size_t i = 0; i < plans_.size(); ++i) {
        begin_at_ns_[i] = now + delay_of(i);
    }
    if (!stopping_) {
        start_due(now);
    }
    shared_.wake_supervisor();  // it may sleep for longer than a startdelay
}

void JobSchedule::stop(const std::string& reason) {
    if (!stopping_) {
        stopping_ = true;
        stop_reason_ = reason;
        stop_at_ns_ = Clock::monotonic_ns();
    }
    for (std::size_t i = 0; i < plans_.size(); ++i) {
        tell_to_stop(shared_.state(i));
    }
}

bool JobSchedule::someone_is_to_stop() const {
    for (std::size_t i = 0; i < plans_.size(); ++i) {
        if (told_to_stop(shared_.state(i)) && !shared_.finished(i)) {
            return true;
        }
    }
    return false;
}

bool JobSchedule::grace_expired() const {
    return stopping_ && Clock::monotonic_ns() > stop_at_ns_ + stop_grace_ns;
}

void JobSchedule::step() {
    const std::uint64_t now = Clock::monotonic_ns();
    for (std::size_t i = 0; i < plans_.size(); ++i) {
        if (ended_[i] || !shared_.finished(i)) {
            continue;
        }
        ended_[i] = true;
        const JobState& state = shared_.state(i);
        const JobOptions& options = plans_[i].options;
        if ((state.error == ENOSPC || state.error == EDQUOT) && !stopping_) {
            stop("no space left on the device of job '" + options.name + "'");
        }
        if (exitall_ || (options.exitall_on_error && state.error != 0)) {
            stop_others(i);
        }
    }
    if (start_asked_ && !stopping_) {
        start_due(now);
    }
}

void JobSchedule::stop_others(std::size_t ended) const {
    const JobOptions& options = plans_[ended].options;
    for (std::size_t i = 0; i < plans_.size(); ++i) {
        const bool same_group = plans_[i].options.group_id == options.group_id;
        const bool meant = options.exit_what == ExitWhat::all || (options.exit_what == ExitWhat::group && same_group) ||
                           (options.exit_what == ExitWhat::stonewall && started_[i]);
        if (meant && !shared_.finished(i)) {
            tell_to_stop(shared_.state(i));
        }
    }
}

// Starts the jobs whose time has come: up to the next stonewall, after those that are waited for.
void JobSchedule::start_due(std::uint64_t now) {
    bool earlier_all_finished = true;
    for (std::size_t i = 0; i < plans_.size(); ++i) {
        if (plans_[i].options.stonewall && !earlier_all_finished) {
            return;
        }
        if (!started_[i] && now >= begin_at_ns_[i] && wait_is_over(i) && phase_of(shared_.state(i)) == Phase::ready) {
            started_[i] = true;
            tell_to_start(shared_.state(i));
        }
        earlier_all_finished = earlier_all_finished && shared_.finished(i);
    }
}

bool JobSchedule::wait_is_over(std::size_t i) const {
    const std::string& name = plans_[i].options.wait_for;
    if (name.empty()) {
        return true;
    }
    for (std::size_t other = 0; other < i; ++other) {
        if (plans_[other].options.name == name && !shared_.finished(other)) {
            return false;
        }
    }
    return true;
}

std::uint64_t JobSchedule::delay_of(std::size_t i) const {
    const JobOptions& options = plans_[i].options;
    if (options.startdelay_upper_ns <= options.startdelay_ns) {
        return options.startdelay_ns;
    }
    Random random = stream(plans_[i].seed, Stream::start_delay);
    return options.startdelay_ns + random.below(options.startdelay_upper_ns - options.startdelay_ns);
}

std::uint64_t JobSchedule::next_wait_ns() const {
    const std::uint64_t now = Clock::monotonic_ns();
    std::uint64_t wait = someone_is_to_stop() ? interrupt_interval_ns : UINT64_MAX;
    for (std::size_t i = 0; i < plans_.size(); ++i) {
        if (!started_[i] && begin_at_ns_[i] > now) {
            wait = std::min(wait, begin_at_ns_[i] - now);
        }
    }
    return wait;
}

}  // namespace sampleblk::workload
