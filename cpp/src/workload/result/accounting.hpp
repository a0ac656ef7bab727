// SPDX-License-Identifier: MIT
// Where every I/O that completed is counted: totals, latencies, logs, and by the clock the samples and the series.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pattern/clock.hpp"
#include "pattern/io.hpp"
#include "result/job_state.hpp"
#include "result/logs.hpp"

namespace sampleblk::workload {

class Accounting {
  public:
    // `io_log` is the room for the per-I/O log. `prepares` says that time passes between the start of an I/O and its
    // issue, `responds` that an I/O has a time at which it is due.
    Accounting(const JobPlan& plan, JobShared& shared, std::span<IoLogEntry> io_log, const Clock& clock, bool prepares,
               bool responds);

    // A data I/O that completed at `end`.
    void add(const Io& io, std::uint64_t end) noexcept {
        bump(state_.done_bytes, io.length);
        bump(state_.done_ios, 1);
        if (!measuring_) [[unlikely]] {
            return;
        }
        DirectionStats& stats = measured_.data[index_of(io.direction)];
        ++stats.ios;
        stats.bytes += io.length;
        ++measured_.depth_map[io.level];
        if (keeps_clat_) {
            stats.clat.add(clock_.ns(end - io.issue_ticks));
        }
        if (keeps_more_) [[unlikely]] {
            add_more(io, end);
        }
    }
    // As in fio those at the end of a pass are none of these (should_account(), fio's io_u.c).
    void add_sync(std::uint64_t issue, std::uint64_t end) noexcept {
        if (measuring_) {
            ++measured_.sync_ios;
            ++measured_.depth_map[0];
            if (keeps_clat_) {
                measured_.sync_latency.add(clock_.ns(end - issue));
            }
        }
    }
    void add_short(const Io& io) noexcept { measured_.data[index_of(io.direction)].short_ios += measuring_ ? 1 : 0; }
    void add_submit(std::uint32_t count) noexcept {
        if (measuring_) [[likely]] {
            ++measured_.submit_map[batch_level(count)];
            ++measured_.submits;
        }
    }
    void add_complete(std::uint32_t count) noexcept {
        if (measuring_) [[likely]] {
            ++measured_.complete_map[batch_level(count)];
            ++measured_.completes;
        }
    }

    // From here on what completes counts; `now` is the job's beginning.
    void start(std::uint64_t now);
    // What completes during ramp_time does not count.
    void pause() noexcept;
    // What was measured so far is not the job's result.
    void forget() noexcept;
    [[nodiscard]] bool measuring() const noexcept { return measuring_; }
    [[nodiscard]] std::uint64_t began() const noexcept { return began_; }

    // When sample() has something to do next, in ticks; UINT64_MAX: never.
    [[nodiscard]] std::uint64_t next_sample() const noexcept {
        return std::min({next_bw_, next_iops_, next_series_, next_heat_, next_log_});
    }
    void sample(std::uint64_t now);

    // Closes the books: what is known at the end only. Idempotent.
    void finish();
    // Throws SystemError.
    void write_logs();

  private:
    static void bump(std::atomic<std::uint64_t>& counter, std::uint64_t by) noexcept {
        counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
    }
    void add_more(const Io& io, std::uint64_t end) noexcept;
    void log_entry(const Io& io, std::uint64_t latency_ns) noexcept;
    void sample_bw(std::uint64_t now) noexcept;
    void sample_iops(std::uint64_t now) noexcept;
    void sample_series(std::uint64_t now) noexcept;
    void take_usage() noexcept;
    void sample_heat(std::uint64_t now) noexcept;

    const JobOptions& options_;
    JobShared& shared_;
    JobState& state_;
    Measured& measured_;
    std::span<IoLogEntry> io_log_;
    const Clock& clock_;
    std::unique_ptr<Logs> logs_;

    bool measuring_ = true;
    bool finished_ = false;
    bool keeps_clat_;
    bool keeps_lat_;  // apart: where there is no clat that is the same
    bool keeps_more_;
    bool prepares_;
    bool responds_;

    std::uint64_t began_ = 0;  // ticks; 0: not yet
    ClockMark began_mark_;
    struct rusage usage_{};
    // Ticks; UINT64_MAX: never.
    std::uint64_t next_bw_ = UINT64_MAX;
    std::uint64_t next_iops_ = UINT64_MAX;
    std::uint64_t next_series_ = UINT64_MAX;
    std::uint64_t next_heat_ = UINT64_MAX;
    std::uint64_t next_log_ = UINT64_MAX;
    std::uint64_t last_bw_ = 0;
    std::uint64_t last_iops_ = 0;
    PerDirection<std::uint64_t> bw_before_{};
    PerDirection<std::uint64_t> iops_before_{};
    SeriesPoint series_before_;
    PerDirection<std::vector<std::uint64_t>> heat_before_;
};

}  // namespace sampleblk::workload
