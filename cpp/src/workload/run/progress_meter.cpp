// SPDX-License-Identifier: MIT
#include "run/progress_meter.hpp"

#include <algorithm>
#include <cstddef>

#include "pattern/clock.hpp"

namespace sampleblk::workload {

namespace {

// The part of a job's work that is done, by time, bytes or I/Os, whichever ends it first.
double fraction_done(const JobPlan& plan, std::uint64_t bytes, std::uint64_t ios, double elapsed_s) {
    const JobOptions& options = plan.options;
    const auto limit = static_cast<double>(options.runtime_ns + options.ramp_time_ns) * 1e-9;
    const double by_time = options.runtime_ns != 0 ? elapsed_s / limit : 0;
    auto passes = static_cast<double>(options.loops);
    if (options.verify != Verify::none && options.do_verify && options.writes && !options.only_pretends()) {
        // What is written is read back, too.
        passes *= 1 + (options.mixes_reads_and_writes() ? (100 - options.rwmix_read) / 100.0 : 1.0);
    }
    const auto share = [&](std::uint64_t done, std::uint64_t each) {
        const double all = static_cast<double>(each) * passes;
        return options.time_based || all <= 0 ? 0 : static_cast<double>(done) / all;
    };
    const double by_bytes = share(bytes, plan.io_bytes);
    const double by_ios = plan.replay.empty() ? share(ios, options.number_ios) : 0;
    return std::min(1.0, std::max({by_time, by_bytes, by_ios}));
}

}  // namespace

RunProgress ProgressMeter::read() {
    RunProgress progress;
    const std::uint64_t now = Clock::monotonic_ns();
    std::uint64_t first_start = 0;
    double fractions = 0;
    double slowest_left_s = 0;
    bool known = true;
    progress.jobs = static_cast<std::uint32_t>(plans_.size());
    for (std::size_t i = 0; i < plans_.size(); ++i) {
        const JobState& state = shared_.state(i);
        const std::uint64_t bytes = state.done_bytes.load(std::memory_order_relaxed);
        const std::uint64_t started = state.started_ns.load(std::memory_order_relaxed);
        progress.done_bytes += bytes;
        const std::uint64_t ios = state.done_ios.load(std::memory_order_relaxed);
        progress.done_ios += ios;
        if (started != 0) {
            first_start = first_start == 0 ? started : std::min(first_start, started);
        }
        if (shared_.finished(i)) {
            ++progress.finished;
            fractions += 1;
            continue;
        }
        if (started == 0) {
            known = false;
            continue;
        }
        ++progress.running;
        const auto elapsed_s = static_cast<double>(now - started) * 1e-9;
        const double fraction = fraction_done(plans_[i], bytes, ios, elapsed_s);
        fractions += fraction;
        if (fraction > 0) {
            slowest_left_s = std::max(slowest_left_s, elapsed_s / fraction - elapsed_s);
        } else {
            known = false;
        }
    }
    progress.fraction = progress.jobs == 0 ? 1 : fractions / progress.jobs;
    progress.elapsed_s = first_start == 0 ? 0 : static_cast<double>(now - first_start) * 1e-9;
    progress.eta_s = known ? slowest_left_s : -1;
    if (last_ns_ != 0 && now > last_ns_) {
        const double spent_s = static_cast<double>(now - last_ns_) * 1e-9;
        progress.bytes_per_s = static_cast<double>(progress.done_bytes - last_bytes_) / spent_s;
        progress.ios_per_s = static_cast<double>(progress.done_ios - last_ios_) / spent_s;
    }
    last_ns_ = now;
    last_bytes_ = progress.done_bytes;
    last_ios_ = progress.done_ios;
    return progress;
}

}  // namespace sampleblk::workload
