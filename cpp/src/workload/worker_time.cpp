// SPDX-License-Identifier: MIT
// What a running job does by the clock: deadlines, samples, series, logs, its own criteria.
#include <cerrno>
#include <chrono>

#include "futex.hpp"
#include "worker.hpp"

namespace sampleblk::workload {

namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;
constexpr std::uint64_t series_interval_ns = second_ns / 10;
constexpr std::uint64_t heat_interval_ns = second_ns / 5;
// A futex wait ends some tens of microseconds late; the rest is spun.
constexpr std::uint64_t spin_ns = 60'000;

struct rusage usage_now(bool thread) {
    struct rusage usage{};
    (void)::getrusage(thread ? RUSAGE_THREAD : RUSAGE_SELF, &usage);
    return usage;
}

std::uint64_t microseconds(const timeval& from, const timeval& to) {
    return static_cast<std::uint64_t>((to.tv_sec - from.tv_sec) * 1'000'000 + (to.tv_usec - from.tv_usec));
}

}  // namespace

void Worker::start_measuring(std::uint64_t now) {
    measuring_ = true;
    began_ticks_ = now;
    began_ = ClockMark::take(clock_);
    usage_at_start_ = usage_now(options_.thread);
    ramp_end_ = UINT64_MAX;
    const auto in = [&](std::uint64_t ns) { return now + clock_.ticks_for(ns); };
    deadline_ = options_.runtime_ns == 0 ? UINT64_MAX : in(options_.runtime_ns);
    last_bw_sample_ = last_iops_sample_ = last_rate_check_ = last_steady_ = now;
    const bool samples = !options_.disable_bw && options_.stats;
    next_bw_sample_ = samples ? in(options_.bwavgtime_ns) : UINT64_MAX;
    next_iops_sample_ = samples ? in(options_.iopsavgtime_ns) : UINT64_MAX;
    if (options_.stats) {
        shared_.rates.interval_ns = series_interval_ns;
        next_series_ = in(series_interval_ns);
        if (record_clat_) {
            shared_.heat.interval_ns = heat_interval_ns;
            next_heat_ = in(heat_interval_ns);
            for (auto& bins : heat_before_) {
                bins.assign(HistogramGeometry::bins, 0);
            }
        }
    }
    if (logs_) {
        const std::uint64_t epoch = options_.log_unix_epoch ? [] {
            const auto wall = std::chrono::system_clock::now().time_since_epoch();
            return static_cast<std::uint64_t>(std::chrono::nanoseconds(wall).count());
        }()
                                                            : 0;
        logs_->begin(epoch);
        next_log_ = logs_->next_ns() == UINT64_MAX ? UINT64_MAX : in(logs_->next_ns());
    }
    const bool least_rates = options_.rate_min_bps != PerDirection<std::uint64_t>{} ||
                             options_.rate_iops_min != PerDirection<std::uint64_t>{};
    next_rate_check_ = least_rates ? in(options_.rate_cycle_ns) : UINT64_MAX;
    if (options_.steadystate != SteadyMetric::none) {
        steady_ = std::make_unique<SteadyState>(options_);
        next_steady_ = in(options_.steadystate_ramp_ns + second_ns);
        last_steady_ = in(options_.steadystate_ramp_ns);
    }
    plan_events();
}

void Worker::plan_events() noexcept {
    next_event_ = std::min({deadline_, ramp_end_, next_bw_sample_, next_iops_sample_, next_series_, next_heat_,
                            next_log_, next_rate_check_, next_steady_, pacer_ ? pacer_->window_end() : UINT64_MAX});
}

void Worker::take_rate_samples(std::uint64_t now) noexcept {
    if (now >= next_bw_sample_) {
        const auto spent = static_cast<double>(clock_.ns(now - last_bw_sample_));
        for (std::size_t d = 0; d < data_directions; ++d) {
            const std::uint64_t bytes = state_.data[d].bytes - sampled_bytes_[d];
            if (state_.data[d].bytes != 0) {
                state_.data[d].bw_kib.add(static_cast<double>(bytes) * 1e9 / 1024 / spent);
            }
            sampled_bytes_[d] = state_.data[d].bytes;
        }
        last_bw_sample_ = now;
        next_bw_sample_ = now + clock_.ticks_for(options_.bwavgtime_ns);
    }
    if (now >= next_iops_sample_) {
        const auto spent = static_cast<double>(clock_.ns(now - last_iops_sample_));
        for (std::size_t d = 0; d < data_directions; ++d) {
            const std::uint64_t ios = state_.data[d].ios - sampled_ios_[d];
            if (state_.data[d].ios != 0) {
                state_.data[d].iops.add(static_cast<double>(ios) * 1e9 / spent);
            }
            sampled_ios_[d] = state_.data[d].ios;
        }
        last_iops_sample_ = now;
        next_iops_sample_ = now + clock_.ticks_for(options_.iopsavgtime_ns);
    }
}

void Worker::take_series(std::uint64_t now) noexcept {
    SeriesPoint& point = shared_.rates.next();
    point.end_ns = clock_.ns(now - began_ticks_);
    for (std::size_t d = 0; d < data_directions; ++d) {
        const DirectionStats& stats = state_.data[d];
        point.ios[d] = stats.ios - series_before_.ios[d];
        point.bytes[d] = stats.bytes - series_before_.bytes[d];
        point.latency_sum_ns[d] = stats.clat.sum_ns - series_before_.latency_sum_ns[d];
        series_before_.ios[d] = stats.ios;
        series_before_.bytes[d] = stats.bytes;
        series_before_.latency_sum_ns[d] = stats.clat.sum_ns;
    }
    next_series_ = now + clock_.ticks_for(shared_.rates.interval_ns);
}

void Worker::take_heat(std::uint64_t now) noexcept {
    HeatColumn& column = shared_.heat.next();
    column.end_ns = clock_.ns(now - began_ticks_);
    for (std::size_t d = 0; d < data_directions; ++d) {
        const LatencyStats& clat = state_.data[d].clat;
        if (clat.count == 0) {
            continue;
        }
        for (std::size_t i = 0; i < HistogramGeometry::bins; ++i) {
            column.bins[d][i] = static_cast<std::uint32_t>(clat.bins[i] - heat_before_[d][i]);
            heat_before_[d][i] = clat.bins[i];
        }
    }
    next_heat_ = now + clock_.ticks_for(shared_.heat.interval_ns);
}

// rate_min, rate_iops_min: over each rate_cycle.
bool Worker::keeps_rates(std::uint64_t now) {
    const double spent_s = static_cast<double>(clock_.ns(now - last_rate_check_)) * 1e-9;
    for (std::size_t d = 0; d < data_directions; ++d) {
        const DirectionStats& stats = state_.data[d];
        const double bps = static_cast<double>(stats.bytes - checked_bytes_[d]) / spent_s;
        const double iops = static_cast<double>(stats.ios - checked_ios_[d]) / spent_s;
        const bool used = stats.ios != 0;
        checked_bytes_[d] = stats.bytes;
        checked_ios_[d] = stats.ios;
        if (used && options_.rate_min_bps[d] != 0 && bps < static_cast<double>(options_.rate_min_bps[d])) {
            fail({"rate_min",
                  {},
                  EIO,
                  std::to_string(options_.rate_min_bps[d]) + " B/s not met, got " + std::to_string(bps)});
        }
        if (used && options_.rate_iops_min[d] != 0 && iops < static_cast<double>(options_.rate_iops_min[d])) {
            fail({"rate_iops_min",
                  {},
                  EIO,
                  std::to_string(options_.rate_iops_min[d]) + " IOPS not met, got " + std::to_string(iops)});
        }
    }
    last_rate_check_ = now;
    next_rate_check_ = now + clock_.ticks_for(options_.rate_cycle_ns);
    return !failed_;
}

bool Worker::is_steady(std::uint64_t now) {
    const double spent_s = static_cast<double>(clock_.ns(now - last_steady_)) * 1e-9;
    std::uint64_t bytes = 0;
    std::uint64_t ios = 0;
    for (const DirectionStats& stats : state_.data) {
        bytes += stats.bytes;
        ios += stats.ios;
    }
    const bool steady = steady_->add(static_cast<double>(bytes - steady_bytes_) / spent_s,
                                     static_cast<double>(ios - steady_ios_) / spent_s, state_);
    steady_bytes_ = bytes;
    steady_ios_ = ios;
    last_steady_ = now;
    next_steady_ = now + clock_.ticks_for(second_ns);
    return steady;
}

void Worker::forget_measurements() noexcept {
    state_.data = {};
    state_.sync_ios = 0;
    state_.sync_latency = {};
    state_.depth_map = state_.submit_map = state_.complete_map = {};
    state_.submits = state_.completes = 0;
    shared_.rates.clear();
    shared_.heat.clear();
    sampled_bytes_ = sampled_ios_ = checked_bytes_ = checked_ios_ = {};
    steady_bytes_ = steady_ios_ = 0;
    series_before_ = {};
}

bool Worker::on_time(std::uint64_t now) {
    if (now >= ramp_end_) {
        set_phase(Phase::running);
        start_measuring(now);
        return true;
    }
    take_rate_samples(now);
    if (now >= next_series_) {
        take_series(now);
    }
    if (now >= next_heat_) {
        take_heat(now);
    }
    if (now >= next_log_) {
        logs_->on_time(clock_.ns(now - began_ticks_));
        next_log_ = began_ticks_ + clock_.ticks_for(logs_->next_ns());
    }
    bool goes_on = true;
    if (now >= next_rate_check_) {
        goes_on = keeps_rates(now);
    }
    if (now >= next_steady_ && is_steady(now)) {
        state_.steady = 1;
        done_ = true;
        goes_on = false;
    }
    if (pacer_ && now >= pacer_->window_end()) {
        const WindowEnd end = pacer_->end_window(now);
        if (end == WindowEnd::last_begins) {
            forget_measurements();
            start_measuring(now);
        } else if (end == WindowEnd::last_is_over) {
            done_ = true;
            goes_on = false;
        }
        state_.latency_depth = pacer_->depth();
    }
    plan_events();
    if (now >= deadline_) {
        state_.runtime_reached = 1;
        goes_on = false;
    }
    return goes_on;
}

bool Worker::sleep_until(std::uint64_t tick) {
    for (;;) {
        if (stopping()) {
            return false;
        }
        const std::uint64_t now = clock_.ticks();
        if (now >= next_event_ && !on_time(now)) {
            return false;
        }
        const std::uint64_t target = std::min(tick, next_event_);
        if (now >= target) {
            if (now >= tick) {
                return true;
            }
            continue;
        }
        const std::uint64_t left = clock_.ns(target - now);
        if (left > spin_ns) {
            futex_wait(state_.stop, 0, left - spin_ns);
        }
    }
}

void Worker::finish() noexcept {
    if (began_ticks_ == 0) {
        return;  // it failed before it began
    }
    const std::uint64_t now = clock_.ticks();
    const struct rusage usage = usage_now(options_.thread);
    const ClockMark end = ClockMark::take(clock_);
    state_.runtime_ns = end.monotonic_ns - began_.monotonic_ns;
    state_.used_tsc = clock_.uses_tsc() ? 1 : 0;
    state_.clock_drift_ppm = end.drift_ppm(clock_, began_);
    state_.user_us = microseconds(usage_at_start_.ru_utime, usage.ru_utime);
    state_.system_us = microseconds(usage_at_start_.ru_stime, usage.ru_stime);
    state_.voluntary_switches = static_cast<std::uint64_t>(usage.ru_nvcsw - usage_at_start_.ru_nvcsw);
    state_.involuntary_switches = static_cast<std::uint64_t>(usage.ru_nivcsw - usage_at_start_.ru_nivcsw);
    state_.major_faults = static_cast<std::uint64_t>(usage.ru_majflt - usage_at_start_.ru_majflt);
    state_.minor_faults = static_cast<std::uint64_t>(usage.ru_minflt - usage_at_start_.ru_minflt);
    if (next_series_ != UINT64_MAX) {
        take_series(now);
    }
    if (next_heat_ != UINT64_MAX) {
        take_heat(now);
    }
    for (DirectionStats& stats : state_.data) {
        if (stats.bytes != 0 && stats.runtime_ns == 0) {
            stats.runtime_ns = state_.runtime_ns;  // an error ended the first pass
        }
        if ((features_ & separate_lat) == 0 && !options_.disable_lat) {
            stats.lat = stats.clat;  // nothing lies between the start of an I/O and its issue
        }
    }
    if (state_.submits == 0) {
        // Known without counting: one at a time, each submitted and completed alone.
        std::uint64_t ios = state_.sync_ios;
        for (const DirectionStats& stats : state_.data) {
            ios += stats.ios;
        }
        state_.depth_map[0] = state_.submit_map[1] = state_.complete_map[1] = ios;
        state_.submits = state_.completes = ios;
    }
    state_.stopped_early = stopping() ? 1 : 0;
    state_.ended_ns.store(end.monotonic_ns, std::memory_order_relaxed);
}

}  // namespace sampleblk::workload
