// SPDX-License-Identifier: MIT
#include "engine/timetable.hpp"

#include <cerrno>
#include <cmath>
#include <numeric>
#include <string>

namespace sampleblk::workload {

namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;
// A futex wait ends some tens of microseconds late; the rest is spun.
constexpr std::uint64_t spin_ns = 60'000;

double sum(const PerDirection<std::uint64_t>& values) {
    return static_cast<double>(std::accumulate(values.begin(), values.end(), std::uint64_t{0}));
}

}  // namespace

Timetable::Timetable(const JobOptions& options, const Clock& clock, JobControl& control, Accounting& accounting,
                     Measured& measured, Pacer* pacer)
    : options_(options),
      clock_(clock),
      control_(control),
      accounting_(accounting),
      measured_(measured),
      pacer_(pacer) {}

void Timetable::begin(std::uint64_t now) {
    control_.set_phase(options_.ramp_time_ns != 0 ? Phase::ramp : Phase::running);
    start_measuring(now);
    if (pacer_ != nullptr) {
        pacer_->begin(now);
    }
    if (options_.ramp_time_ns != 0) {
        accounting_.pause();
        deadline_ = next_rate_check_ = next_steady_ = UINT64_MAX;
        ramp_end_ = clock_.after(now, options_.ramp_time_ns);
    }
    plan();
}

void Timetable::start_measuring(std::uint64_t now) {
    accounting_.start(now);
    ramp_end_ = UINT64_MAX;
    deadline_ = options_.runtime_ns == 0 ? UINT64_MAX : clock_.after(now, options_.runtime_ns);
    at_rate_check_ = totals(now);
    const bool least_rates = options_.rate_min_bps != PerDirection<std::uint64_t>{} ||
                             options_.rate_iops_min != PerDirection<std::uint64_t>{};
    next_rate_check_ = least_rates ? clock_.after(now, options_.rate_cycle_ns) : UINT64_MAX;
    if (options_.steadystate != SteadyMetric::none) {
        steady_.reset();
        next_steady_ = clock_.after(now, options_.steadystate_ramp_ns);
    }
    plan();
}

void Timetable::plan() noexcept {
    next_event_ = std::min({suspended_ ? UINT64_MAX : std::min(deadline_, next_rate_check_), ramp_end_, next_steady_,
                            accounting_.next_sample(), pacer_ != nullptr ? pacer_->window_end() : UINT64_MAX});
}

Timetable::Totals Timetable::totals(std::uint64_t now) const noexcept {
    Totals totals{.tick = now, .bytes = {}, .ios = {}};
    for (std::size_t d = 0; d < data_directions; ++d) {
        totals.bytes[d] = measured_.data[d].bytes;
        totals.ios[d] = measured_.data[d].ios;
    }
    return totals;
}

bool Timetable::keeps_rate(const char* key, double least, double got) {
    if (least == 0 || got >= least) {
        return true;
    }
    control_.fail({key,
                   {},
                   EIO,
                   "at least " + std::to_string(std::llround(least)) + " per second were asked for, got " +
                       std::to_string(std::llround(got))});
    return false;
}

// rate_min and rate_iops_min, over each rate_cycle.
bool Timetable::keeps_rates(std::uint64_t now) {
    const double spent_s = static_cast<double>(clock_.ns(now - at_rate_check_.tick)) * 1e-9;
    const Totals before = std::exchange(at_rate_check_, totals(now));
    next_rate_check_ = clock_.after(now, options_.rate_cycle_ns);
    bool kept = true;
    for (std::size_t d = 0; d < data_directions; ++d) {
        if (at_rate_check_.ios[d] == 0) {
            continue;
        }
        const auto rate = [&](std::uint64_t to, std::uint64_t from) {
            return static_cast<double>(to - from) / spent_s;
        };
        kept = keeps_rate("rate_min", static_cast<double>(options_.rate_min_bps[d]),
                          rate(at_rate_check_.bytes[d], before.bytes[d])) &&
               keeps_rate("rate_iops_min", static_cast<double>(options_.rate_iops_min[d]),
                          rate(at_rate_check_.ios[d], before.ios[d])) &&
               kept;
    }
    return kept;
}

bool Timetable::is_steady(std::uint64_t now) {
    const double spent_s = static_cast<double>(clock_.ns(now - at_steady_.tick)) * 1e-9;
    const Totals before = std::exchange(at_steady_, totals(now));
    next_steady_ = clock_.after(now, second_ns);
    if (!steady_) {  // steadystate_ramp_time is over: the first second begins
        steady_ = std::make_unique<SteadyState>(options_);
        return false;
    }
    return steady_->add((sum(at_steady_.bytes) - sum(before.bytes)) / spent_s,
                        (sum(at_steady_.ios) - sum(before.ios)) / spent_s, measured_);
}

// Of latency_target; false when the last one is over.
bool Timetable::end_window(std::uint64_t now) {
    const WindowEnd end = pacer_->end_window(now);
    if (end == WindowEnd::last_begins) {
        accounting_.forget();
        start_measuring(now);
    }
    measured_.latency_depth = pacer_->depth();
    return end != WindowEnd::last_ended;
}

bool Timetable::on_time(std::uint64_t now) {
    if (now >= ramp_end_) {
        control_.set_phase(Phase::running);
        start_measuring(now);
        return true;
    }
    accounting_.sample(now);
    bool goes_on = true;
    if (now >= next_rate_check_ && !suspended_) {
        goes_on = keeps_rates(now);
    }
    if (now >= next_steady_ && is_steady(now)) {
        measured_.steady = 1;
        control_.finish();
        goes_on = false;
    }
    if (pacer_ != nullptr && now >= pacer_->window_end() && !end_window(now)) {
        control_.finish();
        goes_on = false;
    }
    plan();
    if (now >= deadline_ && !suspended_) {
        deadline_passed_ = true;
        goes_on = false;
    }
    return goes_on;
}

bool Timetable::sleep_until(std::uint64_t tick, std::uint64_t spin_until) {
    while (!control_.stopping()) {
        const std::uint64_t now = clock_.ticks();
        if (now >= next_event_ && !on_time(now)) {
            return false;
        }
        if (now >= tick) {
            return true;
        }
        const std::uint64_t target = std::min(tick, next_event_);
        const std::uint64_t left = now >= target ? 0 : clock_.ns(target - now);
        if (left > spin_ns && now >= spin_until) {
            control_.sleep(left - spin_ns);
        }
    }
    return false;
}

void Timetable::suspend_limits(bool suspended) noexcept {
    suspended_ = suspended;
    if (!suspended && next_rate_check_ != UINT64_MAX) {
        const std::uint64_t now = clock_.ticks();
        at_rate_check_ = totals(now);
        next_rate_check_ = clock_.after(now, options_.rate_cycle_ns);
    }
    plan();
}

}  // namespace sampleblk::workload
