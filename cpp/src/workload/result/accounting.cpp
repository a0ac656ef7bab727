// SPDX-License-Identifier: MIT
#include "result/accounting.hpp"

#include <chrono>
#include <new>
#include <utility>

namespace sampleblk::workload {

namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;
constexpr std::uint64_t series_interval_ns = second_ns / 10;
constexpr std::uint64_t heat_interval_ns = second_ns / 5;

struct rusage usage_now(bool thread) noexcept {
    struct rusage usage{};
    (void)::getrusage(thread ? RUSAGE_THREAD : RUSAGE_SELF, &usage);
    return usage;
}

std::uint64_t microseconds(const timeval& from, const timeval& to) noexcept {
    return static_cast<std::uint64_t>((to.tv_sec - from.tv_sec) * 1'000'000 + (to.tv_usec - from.tv_usec));
}

bool wants_logs(const JobOptions& options) {
    return !options.write_bw_log.empty() || !options.write_lat_log.empty() || !options.write_iops_log.empty() ||
           !options.write_hist_log.empty();
}

// Adds one to a rate's samples for each direction that is used; `now` becomes what there was at the last sample.
template <typename Total>
void sample_rates(Measured& measured, PerDirection<std::uint64_t>& before, RateSamples DirectionStats::* samples,
                  double factor, Total total) noexcept {
    for (std::size_t d = 0; d < data_directions; ++d) {
        DirectionStats& stats = measured.data[d];
        const std::uint64_t now = total(stats);
        if (now != 0) {
            (stats.*samples).add(static_cast<double>(now - before[d]) * factor);
        }
        before[d] = now;
    }
}

}  // namespace

Accounting::Accounting(const JobPlan& plan, JobShared& shared, std::span<IoLogEntry> io_log, const Clock& clock,
                       bool prepares, bool responds)
    : options_(plan.options),
      shared_(shared),
      state_(shared.state),
      measured_(shared.state.measured),
      io_log_(io_log),
      clock_(clock),
      logs_(wants_logs(options_) ? std::make_unique<Logs>(plan, measured_) : nullptr),
      keeps_clat_(!options_.disable_clat && options_.stats),
      keeps_lat_(!options_.disable_lat && (prepares || options_.disable_clat)),
      keeps_more_(keeps_lat_ || prepares || responds || logs_ || !io_log.empty()),
      prepares_(prepares),
      responds_(responds) {}

void Accounting::add_more(const Io& io, std::uint64_t end) noexcept {
    DirectionStats& stats = measured_.data[index_of(io.direction)];
    const std::uint64_t clat = clock_.ns(end - io.issue_ticks);
    const std::uint64_t lat = prepares_ ? clock_.ns(end - io.start_ticks) : clat;
    const std::uint64_t slat = lat > clat ? lat - clat : 0;
    if (keeps_lat_) {
        stats.lat.add(lat);
    }
    if (prepares_ && !options_.disable_slat && !is_synchronous(options_.engine)) {
        stats.slat.add(slat);
    }
    if (responds_ && io.due_ticks != 0) {
        stats.response.add(clock_.ns(end - std::min(io.due_ticks, end)));
    }
    if (logs_) {
        try {
            logs_->add(io, clock_.ns(end - began_), slat, clat, lat);
        } catch (const std::bad_alloc&) {
            ++measured_.io_log_lost;
        }
    }
    if (!io_log_.empty()) {
        log_entry(io, clat);
    }
}

void Accounting::log_entry(const Io& io, std::uint64_t latency_ns) noexcept {
    const std::uint64_t used = state_.io_log_used.load(std::memory_order_relaxed);
    if (used >= io_log_.size()) {
        ++measured_.io_log_lost;
        return;
    }
    io_log_[used] = {.issue_ns = clock_.ns(io.issue_ticks - std::min(began_, io.issue_ticks)),
                     .latency_ns = latency_ns,
                     .offset_bytes = io.offset,
                     .length_bytes = io.length,
                     .file = io.file->number,
                     .depth = io.depth,
                     .direction = static_cast<std::uint8_t>(io.direction)};
    state_.io_log_used.store(used + 1, std::memory_order_release);
}

void Accounting::start(std::uint64_t now) {
    measuring_ = true;
    began_ = now;
    began_mark_ = ClockMark::take(clock_);  // on a busy machine much later
    usage_ = usage_now(options_.thread);
    state_.measured_since_ns.store(began_mark_.ns_at(clock_, now), std::memory_order_relaxed);
    const auto in = [&](std::uint64_t ns) { return clock_.after(now, ns); };
    last_bw_ = last_iops_ = now;
    if (!options_.disable_bw && options_.stats) {
        next_bw_ = in(options_.bwavgtime_ns);
        next_iops_ = in(options_.iopsavgtime_ns);
    }
    if (options_.stats) {
        shared_.rates.interval_ns = series_interval_ns;
        next_series_ = in(series_interval_ns);
        if (keeps_clat_) {
            shared_.heat.interval_ns = heat_interval_ns;
            next_heat_ = in(heat_interval_ns);
            for (auto& bins : heat_before_) {
                bins.assign(HistogramGeometry::bins, 0);
            }
        }
    }
    if (logs_) {
        std::uint64_t epoch = 0;
        if (options_.log_unix_epoch) {
            const auto wall = std::chrono::system_clock::now().time_since_epoch();
            epoch =
                static_cast<std::uint64_t>(std::chrono::nanoseconds(wall).count()) - clock_.ns(clock_.ticks() - now);
        }
        logs_->begin(epoch);
        next_log_ = in(logs_->next_ns());
    }
}

void Accounting::pause() noexcept {
    measuring_ = false;
    state_.measured_since_ns.store(0, std::memory_order_relaxed);
    next_bw_ = next_iops_ = next_series_ = next_heat_ = next_log_ = UINT64_MAX;
}

void Accounting::forget() noexcept {
    measured_.data = {};
    measured_.sync_ios = 0;
    measured_.sync_latency = {};
    measured_.depth_map = measured_.submit_map = measured_.complete_map = {};
    measured_.submits = measured_.completes = 0;
    measured_.io_log_lost = 0;
    state_.io_log_used.store(0, std::memory_order_release);
    shared_.rates.clear();
    shared_.heat.clear();
    bw_before_ = iops_before_ = {};
    series_before_ = {};
}

void Accounting::sample(std::uint64_t now) {
    if (now >= next_bw_) {
        sample_bw(now);
    }
    if (now >= next_iops_) {
        sample_iops(now);
    }
    if (now >= next_series_) {
        sample_series(now);
    }
    if (now >= next_heat_) {
        sample_heat(now);
    }
    if (now >= next_log_) {
        logs_->on_time(clock_.ns(now - began_));
        next_log_ = clock_.after(began_, logs_->next_ns());
    }
}

void Accounting::sample_bw(std::uint64_t now) noexcept {
    const double per_second = 1e9 / static_cast<double>(clock_.ns(now - last_bw_));
    sample_rates(measured_, bw_before_, &DirectionStats::bw_kib, per_second / 1024,
                 [](const DirectionStats& stats) { return stats.bytes; });
    last_bw_ = now;
    next_bw_ = clock_.after(now, options_.bwavgtime_ns);
}

void Accounting::sample_iops(std::uint64_t now) noexcept {
    const double per_second = 1e9 / static_cast<double>(clock_.ns(now - last_iops_));
    sample_rates(measured_, iops_before_, &DirectionStats::iops, per_second,
                 [](const DirectionStats& stats) { return stats.ios; });
    last_iops_ = now;
    next_iops_ = clock_.after(now, options_.iopsavgtime_ns);
}

void Accounting::sample_series(std::uint64_t now) noexcept {
    SeriesPoint& point = shared_.rates.next();
    point.end_ns = clock_.ns(now - began_);
    for (std::size_t d = 0; d < data_directions; ++d) {
        const DirectionStats& stats = measured_.data[d];
        point.ios[d] = stats.ios - series_before_.ios[d];
        point.bytes[d] = stats.bytes - series_before_.bytes[d];
        point.latency_sum_ns[d] = stats.clat.sum_ns - series_before_.latency_sum_ns[d];
        series_before_.ios[d] = stats.ios;
        series_before_.bytes[d] = stats.bytes;
        series_before_.latency_sum_ns[d] = stats.clat.sum_ns;
    }
    next_series_ = clock_.after(now, shared_.rates.interval_ns);
    take_usage();  // for who asks before the end
}

void Accounting::take_usage() noexcept {
    const struct rusage usage = usage_now(options_.thread);
    measured_.user_us = microseconds(usage_.ru_utime, usage.ru_utime);
    measured_.system_us = microseconds(usage_.ru_stime, usage.ru_stime);
    measured_.context_switches = static_cast<std::uint64_t>(usage.ru_nvcsw - usage_.ru_nvcsw) +
                                 static_cast<std::uint64_t>(usage.ru_nivcsw - usage_.ru_nivcsw);
    measured_.major_faults = static_cast<std::uint64_t>(usage.ru_majflt - usage_.ru_majflt);
    measured_.minor_faults = static_cast<std::uint64_t>(usage.ru_minflt - usage_.ru_minflt);
}

void Accounting::sample_heat(std::uint64_t now) noexcept {
    HeatColumn& column = shared_.heat.next();
    column.end_ns = clock_.ns(now - began_);
    for (std::size_t d = 0; d < data_directions; ++d) {
        const LatencyStats& clat = measured_.data[d].clat;
        if (clat.count == 0) {
            continue;
        }
        for (std::size_t i = 0; i < HistogramGeometry::bins; ++i) {
            column.bins[d][i] = static_cast<std::uint32_t>(clat.bins[i] - heat_before_[d][i]);
            heat_before_[d][i] = clat.bins[i];
        }
    }
    next_heat_ = clock_.after(now, shared_.heat.interval_ns);
}

void Accounting::finish() {
    if (began_ == 0 || std::exchange(finished_, true)) {
        return;  // it failed before it began, or what came after its end is not its own
    }
    const std::uint64_t now = clock_.ticks();
    take_usage();
    const ClockMark end = ClockMark::take(clock_);
    measured_.runtime_ns = end.ns_at(clock_, now) - began_mark_.ns_at(clock_, began_);
    measured_.clock_gettime_jobs = clock_.uses_tsc() ? 0 : 1;
    measured_.clock_drift_ppm = end.drift_ppm(clock_, began_mark_);
    if (next_series_ != UINT64_MAX) {
        sample_series(now);
    }
    if (next_heat_ != UINT64_MAX) {
        sample_heat(now);
    }
    measured_.settle(options_.disable_lat);
}

void Accounting::write_logs() {
    if (logs_) {
        logs_->write(clock_.ns(clock_.ticks() - began_));
    }
}

}  // namespace sampleblk::workload
