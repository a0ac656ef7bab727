// SPDX-License-Identifier: MIT
// The on-disk format of dm-log-writes (drivers/md/dm-log-writes.c): all little endian; the superblock and each entry
// fill a sector of the log's own size.
#pragma once

#include <cstdint>

namespace sampleblk::log_writes {

inline constexpr std::uint64_t magic = 0x6a736677736872ULL;
inline constexpr std::uint64_t version = 1;

// Flags of an entry.
inline constexpr std::uint64_t flush = 1U << 0;
inline constexpr std::uint64_t fua = 1U << 1;
inline constexpr std::uint64_t discard = 1U << 2;
inline constexpr std::uint64_t mark = 1U << 3;
inline constexpr std::uint64_t metadata = 1U << 4;

struct Super {
    std::uint64_t magic;
    std::uint64_t version;
    std::uint64_t nr_entries;
    std::uint32_t sectorsize;
};

// Whether a log, and so the disk whose logical block it is, may have sectors of so many bytes.
[[nodiscard]] constexpr bool is_sector(std::uint64_t bytes) noexcept {
    return bytes >= 512 && bytes <= 65536 && (bytes & (bytes - 1)) == 0;
}

// Sectors are of the log's size. A mark's text is within its sector, `data_len` bytes.
struct Entry {
    std::uint64_t sector;
    std::uint64_t nr_sectors;
    std::uint64_t flags;
    std::uint64_t data_len;
};

}  // namespace sampleblk::log_writes
