// SPDX-License-Identifier: MIT
// An I/O, and a file as a running job has it: what the generator chooses, the engines do and the others look at.
#pragma once

#include <cstddef>
#include <cstdint>

#include "distribution.hpp"
#include "random_map.hpp"
#include "sampleblk/workload/files.hpp"
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

}  // namespace sampleblk::workload
