// SPDX-License-Identifier: MIT
// Where a replaying job's I/Os come from.
#pragma once

#include <cstdint>
#include <vector>

#include "io.hpp"
#include "sampleblk/workload/clock.hpp"
#include "sampleblk/workload/files.hpp"

namespace sampleblk::workload {

class ReplaySource {
  public:
    ReplaySource(const JobPlan& plan, const Clock& clock);

    void begin(std::uint64_t now) noexcept;
    // The longest transfer, for the buffers.
    [[nodiscard]] std::uint64_t longest() const noexcept;
    // An open, a close or advice waits for what is in flight.
    [[nodiscard]] bool wants_quiet() const noexcept;
    [[nodiscard]] std::uint64_t turn_begins(std::uint64_t now) const noexcept;
    [[nodiscard]] Next next(Io& io, std::vector<FileState>& files, FileOpener& opener);
    // When the I/O that next() returned last was due, in ticks.
    [[nodiscard]] std::uint64_t due() const noexcept { return due_; }

  private:
    [[nodiscard]] std::uint64_t due_of(const ReplayRecord& record) const noexcept;

    const JobPlan& plan_;
    const Clock& clock_;
    bool stalls_;
    std::size_t next_ = 0;
    std::uint64_t begin_ = 0;
    std::uint64_t due_ = 0;
};

// Applies replay_redirect, replay_scale, replay_align and replay_skip, and makes the plan's files of
// the log's paths.
void plan_replay(JobPlan& plan, const ReplayLog& log);

}  // namespace sampleblk::workload
