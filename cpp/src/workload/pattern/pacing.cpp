// SPDX-License-Identifier: MIT
#include "pattern/pacing.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sampleblk::workload {

Pacer::Pacer(const JobPlan& plan, const Clock& clock, Generator& generator)
    : options_(plan.options), clock_(clock), generator_(generator), poisson_(stream(plan.seed, Stream::poisson)) {
    const auto ticks_per_second = static_cast<double>(clock.ticks_for(1'000'000'000));
    for (std::size_t d = 0; d < data_directions; ++d) {
        if (options_.rate_bps[d] != 0) {
            limited_ = true;
            ticks_per_byte_[d] = ticks_per_second / static_cast<double>(options_.rate_bps[d]);
        }
    }
    depth_ = depth_high_ = options_.iodepth;
    if (options_.latency_target_ns != 0) {
        depth_ = 1;
    }
}

void Pacer::begin(std::uint64_t now) noexcept {
    next_due_.fill(static_cast<double>(now));
    paused_at_ = now;
    if (options_.latency_target_ns != 0) {
        start_window(now);
    }
}

bool Pacer::needs_idle() noexcept {
    if (options_.thinktime_ns == 0 || pause_due_) {
        return pause_due_;
    }
    const std::uint64_t count = options_.thinktime_blocks_type == ThinkBlocks::issue ? issued_ : completed_;
    const std::uint64_t now = options_.thinktime_iotime_ns != 0 ? clock_.ticks() : 0;
    const bool by_time = options_.thinktime_iotime_ns != 0 &&
                         clock_.ns(now - paused_at_) >= options_.thinktime_iotime_ns + options_.thinktime_ns;
    const bool counts = options_.thinktime_iotime_ns == 0 || options_.thinktime_blocks_given;
    pause_due_ = by_time || (counts && issued_ != 0 && count >= paused_at_count_ + options_.thinktime_blocks);
    if (pause_due_) {
        // The next pause counts from here, as fio's does: the end of what is in flight, and the pause, belong to its
        // time.
        paused_at_count_ = count;
        paused_at_ = now;
    }
    return pause_due_;
}

void Pacer::start_pause(std::uint64_t now) noexcept {
    pause_due_ = false;
    spin_until_ = clock_.after(now, options_.thinktime_spin_ns);
    pause_until_ = clock_.after(now, options_.thinktime_ns);
    if (options_.rate_ignore_thinktime) {
        // The pause does not count as time in which I/O was due.
        for (double& due : next_due_) {
            due += static_cast<double>(pause_until_ - now);
        }
    }
}

std::uint64_t Pacer::pauses_until(std::uint64_t now) noexcept {
    if (pause_until_ == 0 && needs_idle()) {
        start_pause(now);
    } else if (now >= pause_until_) {
        pause_until_ = 0;
    }
    return pause_until_;
}

std::uint64_t Pacer::waits_until(std::uint64_t now, bool sync_due) {
    if (const std::uint64_t pause = pauses_until(now); pause != 0) {
        return pause;
    }
    if (!limited_ || sync_due) {
        return 0;
    }
    if (!chosen_) {
        chosen_ = generator_.choose_direction();
    }
    std::size_t d = index_of(*chosen_);
    const auto due = [&](std::size_t which) { return static_cast<std::uint64_t>(next_due_[which]); };
    if (due(d) > now && options_.mixes_reads_and_writes() && options_.rwmix_read != 0 && options_.rwmix_read != 100) {
        // Ahead of its rate: the other direction may be behind, or due sooner.
        const std::size_t other = d ^ 1U;
        if (due(other) <= now || due(other) < due(d)) {
            d = other;
            chosen_ = static_cast<Direction>(d);
        }
    }
    if (due(d) > now) {
        return due(d);
    }
    generator_.force_direction(*chosen_);
    chosen_.reset();
    return 0;
}

std::uint64_t Pacer::begin_io(const Io& io) noexcept {
    ++issued_;
    const std::size_t d = index_of(io.direction);
    if (!limited_ || ticks_per_byte_[d] == 0) {
        return 0;
    }
    const auto due = static_cast<std::uint64_t>(next_due_[d]);
    const double mean = ticks_per_byte_[d] * static_cast<double>(io.length);
    // 1 - unit() is never 0, whose logarithm there is none of.
    next_due_[d] += options_.rate_process == RateProcess::poisson ? mean * -std::log(1 - poisson_.unit()) : mean;
    return due;
}

bool Pacer::meets_target(std::uint64_t latency_ns) noexcept {
    ++window_ios_;
    if (latency_ns <= options_.latency_target_ns) {
        return true;
    }
    if (options_.latency_percentile >= 100) {
        return lower_depth(clock_.ticks());
    }
    ++window_missed_;
    return true;
}

bool Pacer::lower_depth(std::uint64_t now) noexcept {
    if (depth_ == 1) {
        return false;
    }
    depth_high_ = depth_;
    if (depth_ == depth_low_) {
        --depth_low_;
    }
    depth_ = (depth_ + depth_low_) / 2;
    stable_ = 0;
    start_window(now);
    return true;
}

void Pacer::start_window(std::uint64_t now) noexcept {
    window_end_ = clock_.after(now, options_.latency_window_ns);
    window_ios_ = window_missed_ = 0;
}

WindowEnd Pacer::end_window(std::uint64_t now) noexcept {
    if (window_ios_ == 0) {
        start_window(now);
        return WindowEnd::more;
    }
    const double met = 100.0 * static_cast<double>(window_ios_ - window_missed_) / static_cast<double>(window_ios_);
    if (met < options_.latency_percentile) {
        if (!lower_depth(now)) {
            // As in fio, only a target for every I/O (percentile 100) that depth 1 misses ends the job.
            start_window(now);
        }
        return WindowEnd::more;
    }
    const std::uint32_t before = depth_;
    depth_low_ = depth_;
    if (depth_ + 1 == depth_high_ && ++stable_ >= 3) {
        // Steady just below a depth that failed once: that may have been an accident.
        ++depth_high_;
        stable_ = 0;
    }
    // Doubles until something fails, then bisects.
    depth_ = depth_high_ != options_.iodepth ? (depth_ + depth_high_) / 2 : depth_ * 2;
    depth_ = std::min(depth_, options_.iodepth);
    start_window(now);
    if (options_.latency_run || depth_ != before) {
        return WindowEnd::more;
    }
    return std::exchange(last_window_, true) ? WindowEnd::last_ended : WindowEnd::last_begins;
}

}  // namespace sampleblk::workload
