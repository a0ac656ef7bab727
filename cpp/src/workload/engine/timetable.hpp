// SPDX-License-Identifier: MIT
// What a running job does by the clock: its deadline, the end of the ramp, samples, and the criteria that end it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "engine/job_control.hpp"
#include "pattern/clock.hpp"
#include "pattern/pacing.hpp"
#include "result/accounting.hpp"
#include "result/steady_state.hpp"

namespace sampleblk::workload {

class Timetable {
  public:
    // `pacer` may be null.
    Timetable(const JobOptions& options, const Clock& clock, JobControl& control, Accounting& accounting,
              Measured& measured, Pacer* pacer);

    // The job begins, with its ramp if it has one.
    void begin(std::uint64_t now);

    // When on_time() must be called next, in ticks.
    [[nodiscard]] std::uint64_t next_event() const noexcept { return next_event_; }
    // Does what is due. False ends the pass.
    [[nodiscard]] bool on_time(std::uint64_t now);
    // False when the job was told to stop, or its time was up, in the meantime. Up to `spin_until` it does not sleep.
    [[nodiscard]] bool sleep_until(std::uint64_t tick, std::uint64_t spin_until);

    [[nodiscard]] bool deadline_passed() const noexcept { return deadline_passed_; }
    // A runtime and least rates limit the writing, not the reading back of what was written.
    void suspend_limits(bool suspended) noexcept;

  private:
    void start_measuring(std::uint64_t now);
    void plan() noexcept;
    [[nodiscard]] bool keeps_rates(std::uint64_t now);
    [[nodiscard]] bool keeps_rate(const char* key, double least, double got);
    [[nodiscard]] bool is_steady(std::uint64_t now);
    [[nodiscard]] bool end_window(std::uint64_t now);

    const JobOptions& options_;
    const Clock& clock_;
    JobControl& control_;
    Accounting& accounting_;
    Measured& measured_;
    Pacer* pacer_;
    std::unique_ptr<SteadyState> steady_;

    // Ticks; UINT64_MAX: never.
    std::uint64_t next_event_ = UINT64_MAX;
    std::uint64_t deadline_ = UINT64_MAX;
    std::uint64_t ramp_end_ = UINT64_MAX;
    std::uint64_t next_rate_check_ = UINT64_MAX;
    std::uint64_t next_steady_ = UINT64_MAX;
    bool suspended_ = false;
    bool deadline_passed_ = false;

    // What there was at the last look.
    struct Totals {
        std::uint64_t tick = 0;
        PerDirection<std::uint64_t> bytes{};
        PerDirection<std::uint64_t> ios{};
    };
    [[nodiscard]] Totals totals(std::uint64_t now) const noexcept;
    Totals at_rate_check_;
    Totals at_steady_;
};

}  // namespace sampleblk::workload
