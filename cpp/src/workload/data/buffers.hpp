// SPDX-License-Identifier: MIT
// What writes carry: random bytes, zeroes, a pattern, data that compresses or repeats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "pattern/random.hpp"
#include "sampleblk/workload/options.hpp"

namespace sampleblk::workload {

// Memory for the buffers of all I/Os in flight, of the kind that mem= names. Throws SystemError.
class BufferMemory {
  public:
    BufferMemory(const JobOptions& options, std::size_t bytes);
    BufferMemory(const BufferMemory&) = delete;
    BufferMemory& operator=(const BufferMemory&) = delete;
    ~BufferMemory();

    [[nodiscard]] std::byte* data() const noexcept { return data_; }

  private:
    std::byte* data_ = nullptr;
    void* mapping_ = nullptr;
    std::size_t mapped_ = 0;
    bool attached_ = false;  // by shmat rather than mmap
};

// Fills buffers as a job's options ask.
class BufferFiller {
  public:
    BufferFiller(const JobOptions& options, std::uint64_t job_seed);

    void fill(std::span<std::byte> buffer, std::uint64_t offset);

  private:
    void fill_compressible(std::span<std::byte> buffer);

    const JobOptions& options_;
    Random random_;
    Random dedupe_;
    Random previous_;
};

// Random bytes, eight at a time.
void fill_random(std::span<std::byte> buffer, Random& random) noexcept;

// `pattern` over and over, counted from the buffer's start, its %o fields set to `offset`.
void fill_pattern(std::span<std::byte> buffer, const Pattern& pattern, std::uint64_t offset) noexcept;

// Makes each 512-byte sector of a buffer differ from the last time it was written, at the cost of
// three stores per sector: its offset, and where and when it was written.
inline void scramble(std::span<std::byte> buffer, std::uint64_t offset, std::uint64_t ticks) noexcept {
    constexpr std::size_t sector = 512;
    // One of eight cache lines, as in fio, so that compression does not learn the place.
    const std::size_t line = ((ticks ^ (offset >> 9)) & 7) * 64;
    std::byte* at = buffer.data();
    for (std::size_t left = buffer.size() / sector; left != 0; --left) {
        __builtin_memcpy(at + line, &offset, sizeof(offset));
        __builtin_memcpy(at + 48, &ticks, sizeof(ticks));
        __builtin_memcpy(at + 56, &offset, sizeof(offset));
        at += sector;
        offset += sector;
    }
}

}  // namespace sampleblk::workload
