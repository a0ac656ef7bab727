// SPDX-License-Identifier: MIT
// When the next I/O may begin: limited rates and think time; and what a job must keep up: least
// rates, latencies, the depth that keeps a latency.
#pragma once

#include <cstdint>
#include <optional>

#include "pattern/clock.hpp"
#include "pattern/generator.hpp"
#include "pattern/plan.hpp"

namespace sampleblk::workload {

// What a window of latency_target tells.
enum class WindowEnd : std::uint8_t {
    more,         // the depth is still being looked for
    last_begins,  // it is found: the next window is the one that counts
    last_ended,
};

class Pacer {
  public:
    Pacer(const JobPlan& plan, const Clock& clock, Generator& generator);

    void begin(std::uint64_t now) noexcept;

    // Whether think time comes next, before which all that is in flight must end.
    [[nodiscard]] bool needs_idle() noexcept;

    // When the think time that is due ends, or 0.
    [[nodiscard]] std::uint64_t pauses_until(std::uint64_t now) noexcept;

    // When the next I/O may begin: 0 for now, else a tick to wait for and then ask again. Settles the direction of the
    // next I/O where rates are limited.
    [[nodiscard]] std::uint64_t waits_until(std::uint64_t now, bool sync_due);

    // Up to this tick the wait is not slept but spent on the CPU (thinktime_spin).
    [[nodiscard]] std::uint64_t spin_until() const noexcept { return spin_until_; }

    // An I/O begins. Returns when it was due, in ticks.
    [[nodiscard]] std::uint64_t begin_io(const Io& io) noexcept;
    void end_io() noexcept { ++completed_; }

    [[nodiscard]] bool limits_rate() const noexcept { return limited_; }

    // The depth that latency_target allows now.
    [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }
    // Books a latency against latency_target; false: it is missed even at depth 1.
    [[nodiscard]] bool meets_target(std::uint64_t latency_ns) noexcept;
    // After latency_window.
    [[nodiscard]] WindowEnd end_window(std::uint64_t now) noexcept;
    [[nodiscard]] std::uint64_t window_end() const noexcept { return window_end_; }

  private:
    void start_pause(std::uint64_t now) noexcept;
    void start_window(std::uint64_t now) noexcept;
    bool lower_depth(std::uint64_t now) noexcept;

    const JobOptions& options_;
    const Clock& clock_;
    Generator& generator_;
    bool limited_ = false;
    PerDirection<double> ticks_per_byte_{};
    PerDirection<double> next_due_{};
    Random poisson_;
    std::optional<Direction> chosen_;

    std::uint64_t issued_ = 0;
    std::uint64_t completed_ = 0;
    bool pause_due_ = false;
    std::uint64_t paused_at_count_ = 0;
    std::uint64_t paused_at_ = 0;
    std::uint64_t pause_until_ = 0;
    std::uint64_t spin_until_ = 0;

    std::uint32_t depth_ = 1;
    std::uint32_t depth_low_ = 1;
    std::uint32_t depth_high_ = 1;
    std::uint32_t stable_ = 0;
    bool last_window_ = false;
    std::uint64_t window_end_ = UINT64_MAX;
    std::uint64_t window_ios_ = 0;
    std::uint64_t window_missed_ = 0;
};

}  // namespace sampleblk::workload
