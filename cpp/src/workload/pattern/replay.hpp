// SPDX-License-Identifier: MIT
// Where a replaying job's I/Os come from.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "pattern/clock.hpp"
#include "pattern/io.hpp"
#include "pattern/plan.hpp"

namespace sampleblk::workload {

// Paths in the order of their first mention.
class ReplayPaths {
  public:
    explicit ReplayPaths(std::vector<std::string>& paths) : paths_(paths) {}
    std::uint32_t of(const std::string& path) {
        const auto [entry, added] = numbers_.emplace(path, static_cast<std::uint32_t>(paths_.size()));
        if (added) {
            paths_.push_back(path);
        }
        return entry->second;
    }

  private:
    std::vector<std::string>& paths_;
    std::unordered_map<std::string, std::uint32_t> numbers_;
};

class ReplaySource {
  public:
    ReplaySource(const JobPlan& plan, const Clock& clock);

    void begin(std::uint64_t now) noexcept;
    // The longest transfer, for the buffers.
    [[nodiscard]] std::uint64_t longest() const noexcept;
    // Whether nothing may be in flight at the next record: an open, a close, advice.
    [[nodiscard]] bool needs_idle() const noexcept;
    // When the next record is due: 0 for now, else a tick.
    [[nodiscard]] std::uint64_t waits_until(std::uint64_t now) const noexcept;
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
