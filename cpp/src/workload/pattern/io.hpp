// SPDX-License-Identifier: MIT
// An I/O, and a file as a running job has it: what the generator chooses, the engines do and the others look at.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pattern/distribution.hpp"
#include "pattern/plan.hpp"
#include "pattern/random_map.hpp"
#include "sampleblk/workload/options.hpp"

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
    std::uint64_t mapping_end = 0;  // of the file, as it was mapped

    [[nodiscard]] bool is_open() const noexcept { return fd >= 0; }
};

// One I/O.
struct Io {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::uint64_t moved = 0;  // by calls that transferred a part of it; what is left is asked for again
    std::byte* buffer = nullptr;
    FileState* file = nullptr;
    std::uint64_t due_ticks = 0;  // when a limited rate wanted it
    std::uint64_t start_ticks = 0;
    std::uint64_t issue_ticks = 0;  // when it was first given to the kernel; 0: not yet
    Direction direction = Direction::read;
    SyncKind sync = SyncKind::none;
    bool verify_read = false;    // reads back what verify wrote
    std::uint8_t level = 0;      // depth_level() when it was first submitted
    std::uint16_t depth = 1;     // I/Os in flight when it began, itself included
    std::uint32_t index = 0;     // of its slot
    std::uint64_t sequence = 0;  // of the write, for verify

    // What is left of it.
    [[nodiscard]] std::uint64_t position() const noexcept { return offset + moved; }
    [[nodiscard]] std::size_t left() const noexcept { return static_cast<std::size_t>(length - moved); }
    [[nodiscard]] std::byte* data() const noexcept { return buffer + moved; }

    [[nodiscard]] bool is_sync() const noexcept { return sync != SyncKind::none; }
    [[nodiscard]] bool changes_data() const noexcept {
        return direction == Direction::write || direction == Direction::trim;
    }
    [[nodiscard]] bool overlaps(const Io& other) const noexcept {
        return file == other.file && offset < other.offset + other.length && other.offset < offset + length;
    }
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
    [[nodiscard]] virtual std::size_t open_files() const noexcept = 0;
};

}  // namespace sampleblk::workload
