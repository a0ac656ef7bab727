// SPDX-License-Identifier: MIT
// Which I/O is next: direction, file, offset and length, as fio chooses them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pattern/file_choice.hpp"
#include "pattern/io.hpp"
#include "pattern/offset_choice.hpp"
#include "pattern/plan.hpp"
#include "pattern/random.hpp"
#include "sampleblk/workload/options.hpp"

namespace sampleblk::workload {

class Generator {
  public:
    Generator(const JobPlan& plan, std::vector<FileState>& files, FileOpener& opener);

    // Starts a pass over the files; random choices start over too where randrepeat asks for it.
    void begin_pass();

    // Chooses the next I/O.
    [[nodiscard]] Next next(Io& io);

    // The direction that is next, for jobs that limit rates, and the one that next() then has to take.
    [[nodiscard]] Direction choose_direction();
    void force_direction(Direction direction) noexcept { forced_ = direction; }

    // A file that was opened starts at its beginning.
    void reset_file(FileState& file);

    void count_issue(const Io& io) noexcept {
        ++issued_[index_of(io.direction)];
        last_was_sync_ = false;
    }
    void count_sync() noexcept { last_was_sync_ = true; }
    // Whether a sync comes before the next I/O.
    [[nodiscard]] bool sync_is_due() const noexcept { return sync_due() != SyncKind::none; }
    [[nodiscard]] bool needs_sync() const noexcept {
        // As in fio: what comes next of a trimwrite is a trim or its write, never a sync.
        return options_.writes && !options_.trim_then_write && !last_was_sync_;
    }

  private:
    void seed_streams();
    [[nodiscard]] SyncKind sync_due() const noexcept;
    [[nodiscard]] bool fill(Io& io);
    [[nodiscard]] std::uint64_t block_size(const Io& io, bool is_random);
    [[nodiscard]] Next next_simple(Io& io);
    [[nodiscard]] Next next_general(Io& io);
    [[nodiscard]] bool is_simple() const noexcept;

    const JobPlan& plan_;
    const JobOptions& options_;
    std::vector<FileState>& files_;
    FileOpener& opener_;

    FileChoice file_choice_;
    OffsetChoice offsets_;

    bool simple_ = false;
    Direction only_direction_ = Direction::read;
    std::uint64_t simple_blocks_ = 0;

    Random directions_;
    PerDirection<Random> block_sizes_;

    PerDirection<std::uint64_t> issued_{};
    std::optional<Direction> forced_;
    Direction mix_direction_ = Direction::read;
    std::uint64_t mix_until_ = 0;
    bool last_was_sync_ = false;
};

inline Next Generator::next(Io& io) {
    return simple_ ? next_simple(io) : next_general(io);
}

}  // namespace sampleblk::workload
