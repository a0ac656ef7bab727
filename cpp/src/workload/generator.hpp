// SPDX-License-Identifier: MIT
// Which I/O is next: direction, file, offset and length, as fio chooses them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "distribution.hpp"
#include "random_map.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/workload/files.hpp"
#include "sampleblk/workload/options.hpp"
#include "sampleblk/workload/random.hpp"

namespace sampleblk::workload {

enum class SyncKind : std::uint8_t { none, fsync, fdatasync, range };

// A file as a running job has it.
struct FileState {
    const FileTarget* target = nullptr;
    std::uint32_t number = 0;
    int fd = -1;
    bool done = false;                  // nothing left of it in this pass
    std::uint64_t kernel_position = 0;  // of the descriptor, for engines that do not give an offset
    std::uint64_t begin = 0;            // of the part in use: moves with the zones
    std::uint64_t in_flight = 0;
    PerDirection<std::uint64_t> next_offset{};
    PerDirection<std::uint64_t> last_start{};
    std::uint64_t first_written = UINT64_MAX;  // since the last sync
    std::uint64_t last_written = 0;
    RandomMap map;
    SkewedChoice skew;
    void* mapping = nullptr;  // engine mmap
    std::uint64_t mapping_offset = 0;
    std::uint64_t mapping_length = 0;

    [[nodiscard]] bool is_open() const noexcept { return fd >= 0; }
};

// One I/O.
struct Io {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::uint64_t buffer_length = 0;  // what is left of it after a short transfer
    std::byte* buffer = nullptr;
    FileState* file = nullptr;
    std::uint64_t due_ticks = 0;  // when a limited rate wanted it
    std::uint64_t start_ticks = 0;
    std::uint64_t issue_ticks = 0;
    Direction direction = Direction::read;
    SyncKind sync = SyncKind::none;
    bool verify_read = false;  // reads back what verify wrote
    std::uint32_t index = 0;   // of its slot
    std::uint16_t depth = 1;   // I/Os in flight when it began, itself included
    std::uint64_t verify_sequence = 0;
};

enum class Next : std::uint8_t {
    io,
    busy,  // no file can be opened until some I/O in flight has ended
    end,
};

// Opens and closes files for the generator, which decides when.
class FileOpener {
  public:
    virtual ~FileOpener() = default;
    // Throws SystemError.
    virtual void open(FileState& file) = 0;
    virtual void close(FileState& file) = 0;
    virtual void invalidate(FileState& file) = 0;
};

class Generator {
  public:
    Generator(const JobPlan& plan, std::vector<FileState>& files, FileOpener& opener);

    // Starts a pass over the files; random choices start over too where randrepeat asks for it.
    void begin_pass();

    // Chooses the next I/O. `issued` counts the I/Os of each direction since the job began.
    [[nodiscard]] Next next(Io& io);

    // The direction whose turn it is, for jobs that limit rates; next() then keeps to it.
    [[nodiscard]] Direction choose_direction();
    void force_direction(Direction direction) noexcept { forced_ = direction; }

    // A file that was opened starts at its beginning.
    void reset_file(FileState& file);

    void count_issue(const Io& io) noexcept {
        ++issued_[index_of(io.direction)];
        last_was_sync_ = false;
    }
    void uncount_issue(const Io& io) noexcept { --issued_[index_of(io.direction)]; }
    void count_sync() noexcept { last_was_sync_ = true; }
    // Whether a sync comes before the next I/O.
    [[nodiscard]] bool sync_is_due() const noexcept { return sync_due() != SyncKind::none; }
    [[nodiscard]] bool needs_sync() const noexcept { return options_.writes && !last_was_sync_; }

  private:
    void seed_streams();
    [[nodiscard]] SyncKind sync_due() const noexcept;
    [[nodiscard]] FileState* choose_file(bool& busy);
    [[nodiscard]] bool usable(FileState& file, bool& busy);
    [[nodiscard]] bool fill(Io& io);
    [[nodiscard]] bool choose_offset(Io& io, bool& is_random);
    [[nodiscard]] bool sequential_offset(FileState& file, Direction direction, std::uint64_t& offset);
    [[nodiscard]] bool random_offset(FileState& file, Direction direction, std::uint64_t& offset);
    [[nodiscard]] bool random_block(FileState& file, Direction direction, std::uint64_t& block);
    [[nodiscard]] std::uint64_t block_size(const Io& io, bool is_random);
    [[nodiscard]] std::uint64_t last_block(const FileState& file, Direction direction) const noexcept;
    void enter_zone(FileState& file, Direction direction);
    [[nodiscard]] Next next_simple(Io& io);
    [[nodiscard]] Next next_general(Io& io);
    [[nodiscard]] bool is_simple() const noexcept;

    const JobPlan& plan_;
    const JobOptions& options_;
    std::vector<FileState>& files_;
    FileOpener& opener_;

    bool simple_ = false;
    Direction only_direction_ = Direction::read;
    std::uint64_t simple_blocks_ = 0;

    Random offsets_;
    Random directions_;
    Random block_sizes_;
    Random sequential_shares_;
    Random file_choices_;
    Random zone_choices_;
    SkewedChoice skewed_files_;

    PerDirection<std::uint64_t> issued_{};
    std::optional<Direction> forced_;
    Direction mix_direction_ = Direction::read;
    std::uint64_t mix_until_ = 0;
    std::uint32_t sequence_left_ = 1;
    std::uint32_t next_file_ = 0;
    FileState* current_file_ = nullptr;
    std::uint32_t current_left_ = 0;
    std::uint32_t files_done_ = 0;
    std::uint32_t files_open_limit_ = 0;
    std::uint64_t zone_bytes_ = 0;
    bool last_was_sync_ = false;
    bool uses_map_ = false;
    std::uint64_t map_unit_ = UINT64_MAX;  // bytes that a bit of the random map stands for
};

inline Next Generator::next(Io& io) {
    return simple_ ? next_simple(io) : next_general(io);
}

}  // namespace sampleblk::workload
