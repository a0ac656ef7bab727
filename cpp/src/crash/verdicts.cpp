// SPDX-License-Identifier: MIT
#include "sampleblk/crash/verdicts.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "names_of.hpp"
#include "sampleblk/crc.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace sampleblk::crash {

namespace {

// What is read at a time; a longer read is several.
constexpr std::uint64_t longest = 65536;
// No more is learned where the tree has grown so large: some 200 MB.
constexpr std::size_t most_nodes = 1U << 20U;
// Reads of a run.
constexpr std::size_t deepest = 4096;
// In how many ways a run may go on after the same.
constexpr std::size_t most_ways = 4;
// In the place of a node: the run is at its end.
constexpr std::uint32_t sound_end = std::numeric_limits<std::uint32_t>::max();

// Documentation/filesystems/ext4/globals.rst, super.rst.
constexpr std::size_t super_offset = 1024;
constexpr std::size_t super_bytes = 1024;
constexpr std::size_t magic_at = 0x38;
constexpr std::size_t feature_ro_compat_at = 0x64;
constexpr std::size_t checksum_at = 0x3fc;
constexpr std::uint32_t metadata_csum = 0x400;

struct Field {
    std::size_t at;
    std::size_t bytes;
};

// Last mount and write, number of mounts, where it was mounted, kilobytes written, and the times' high bytes.
constexpr Field of_each_mount[]{{0x2c, 4}, {0x30, 4}, {0x34, 2}, {0x88, 64}, {0x178, 8}, {0x274, 1}, {0x275, 1}};

// Makes the superblock of an ext4 the same for those that differ in what does not count. Leaves others alone.
void level(std::span<std::byte> super) {
    if (u16(super, magic_at) != 0xef53) {
        return;
    }
    if ((u32(super, feature_ro_compat_at) & metadata_csum) != 0) {
        const bool right = u32(super, checksum_at) == ~crc32c(super.first(checksum_at));
        const std::uint32_t told = right ? 1 : 0;
        std::memcpy(super.data() + checksum_at, &told, sizeof(told));
    }
    for (const Field& field : of_each_mount) {
        std::memset(super.data() + field.at, 0, field.bytes);
    }
}

// Reads that go on where the one before ended are one.
std::vector<Read> joined(std::span<const Read> reads) {
    std::vector<Read> found;
    for (Read read : reads) {
        while (read.length != 0) {
            const std::uint64_t part = std::min(read.length, longest);
            if (!found.empty() && found.back().offset + found.back().length == read.offset &&
                found.back().length + part <= longest) {
                found.back().length += part;
            } else {
                found.push_back({read.offset, part});
            }
            read.offset += part;
            read.length -= part;
        }
    }
    return found;
}

}  // namespace

Digest Verdicts::contents(int fd, const std::string& path, const Read& read) {
    buffer_.resize(longest);
    std::size_t got = 0;
    while (got < read.length) {
        const ssize_t now = ::pread(fd, buffer_.data() + got, read.length - got, static_cast<off_t>(read.offset + got));
        if (now < 0 && errno == EINTR) {
            continue;
        }
        if (now < 0) {
            throw_errno("pread", path);
        }
        if (now == 0) {
            break;
        }
        got += static_cast<std::size_t>(now);
    }
    if (read.offset <= super_offset && read.offset + got >= super_offset + super_bytes) {
        level(std::span(buffer_).subspan(super_offset - read.offset, super_bytes));
    }
    const XXH128_hash_t hash = XXH3_128bits_withSeed(buffer_.data(), got, got);
    return {hash.low64, hash.high64};
}

bool Verdicts::is_sound_from(const Nodes& nodes, int fd, const std::string& path) {
    return std::ranges::any_of(nodes, [&](std::uint32_t node) {
        if (node == sound_end) {
            return true;
        }
        const auto next = nodes_[node].next.find(contents(fd, path, nodes_[node].read));
        return next != nodes_[node].next.end() && is_sound_from(next->second, fd, path);
    });
}

bool Verdicts::is_sound(const std::string& path) {
    if (nodes_.empty()) {
        return false;
    }
    const Fd fd = open_file(path, O_RDONLY);
    return is_sound_from(first_, fd.get(), path);
}

void Verdicts::learn(const std::string& path, std::span<const Read> reads) {
    const std::vector<Read> list = joined(reads);
    if (list.empty() || list.size() > deepest || nodes_.size() + list.size() > most_nodes) {
        return;
    }
    const Fd fd = open_file(path, O_RDONLY);
    Nodes* ways = &first_;
    for (const Read& read : list) {
        auto way = std::ranges::find_if(*ways, [&](std::uint32_t node) {
            return node != sound_end && nodes_[node].read.offset == read.offset &&
                   nodes_[node].read.length == read.length;
        });
        if (way == ways->end()) {
            if (ways->size() == most_ways) {
                return;
            }
            ways->push_back(static_cast<std::uint32_t>(nodes_.size()));
            way = ways->end() - 1;
            nodes_.push_back({read, {}});
        }
        ways = &nodes_[*way].next[contents(fd.get(), path, read)];
    }
    if (std::ranges::find(*ways, sound_end) == ways->end()) {
        ways->push_back(sound_end);
        ++sound_;
    }
}

}  // namespace sampleblk::crash
