// SPDX-License-Identifier: MIT
#include "sampleblk/crash/verdicts.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <type_traits>

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
constexpr std::size_t page = 4096;
constexpr std::size_t read_room = longest + 2 * page;
// No more is learned where the tree has grown so large: some 200 MB.
constexpr std::size_t most_nodes = 1U << 20U;
// Reads of a run.
constexpr std::size_t deepest = 4096;
// In how many ways a run may go on after the same.
constexpr std::size_t most_ways = 4;
// In the place of a node: the run is at its end.
constexpr std::uint32_t sound_end = std::numeric_limits<std::uint32_t>::max();

constexpr const char* board_name = "the board of verdicts";
// As much as all trees could take together.
constexpr std::uint64_t most_board_bytes = 64U << 20U;

// What precedes the steps of a run on the board. A writer that is killed may leave a part of a record: it is told by
// the checksum, which is of all that follows it, and nothing is heard of what comes after it.
struct RecordHeader {
    std::uint64_t checksum;
    std::uint64_t checker;
    std::uint64_t steps;
};

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

// A device past the page cache: unmounting has emptied that, and to fill it takes longer than to read.
Fd open_disk(const std::string& path) {
    struct stat about{};
    const bool is_device = ::stat(path.c_str(), &about) == 0 && S_ISBLK(about.st_mode);
    return open_file(path, O_RDONLY | (is_device ? O_DIRECT : 0));
}

// Returns the bytes that were there.
std::size_t read_at(int fd, std::uint64_t offset, std::span<std::byte> buffer, const std::string& path) {
    std::size_t got = 0;
    while (got < buffer.size()) {
        const ssize_t now = ::pread(fd, buffer.data() + got, buffer.size() - got, static_cast<off_t>(offset + got));
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
    return got;
}

std::uint64_t checksum_of(std::span<const std::byte> record) {
    const std::span<const std::byte> summed = record.subspan(sizeof(RecordHeader::checksum));
    return XXH3_64bits(summed.data(), summed.size());
}

}  // namespace

Verdicts::Verdicts() : buffer_(read_room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, "buffer") {}

Verdicts::Verdicts(const VerdictBoard& board, std::string_view checker) : Verdicts() {
    board_ = &board;
    checker_ = XXH3_64bits(checker.data(), checker.size());
}

Digest Verdicts::contents(int fd, const std::string& path, const Read& read) {
    // Whole pages in whole pages, as O_DIRECT wants it.
    const std::span whole(buffer_.data(), buffer_.size());
    const std::size_t before = read.offset % page;
    const std::size_t length = (before + read.length + page - 1) / page * page;
    const std::size_t there = read_at(fd, read.offset - before, whole.first(length), path);
    const std::size_t got = std::min(there - std::min(there, before), read.length);
    const std::span<std::byte> found = whole.subspan(before, got);
    if (read.offset <= super_offset && read.offset + got >= super_offset + super_bytes) {
        level(found.subspan(super_offset - read.offset, super_bytes));
    }
    const XXH128_hash_t hash = XXH3_128bits_withSeed(found.data(), got, got);
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
    if (nodes_.empty() && !hear()) {
        return false;
    }
    const Fd fd = open_disk(path);
    return is_sound_from(first_, fd.get(), path) || (hear() && is_sound_from(first_, fd.get(), path));
}

void Verdicts::learn(const std::string& path, std::span<const Read> reads) {
    const std::vector<Read> list = joined(reads);
    if (list.empty() || list.size() > deepest) {
        return;
    }
    const Fd fd = open_disk(path);
    std::vector<Step> steps;
    steps.reserve(list.size());
    for (const Read& read : list) {
        steps.push_back({read, contents(fd.get(), path, read)});
    }
    if (add(steps) && board_ != nullptr) {
        tell(steps);
    }
}

bool Verdicts::add(std::span<const Step> steps) {
    if (nodes_.size() + steps.size() > most_nodes) {
        return false;
    }
    Nodes* ways = &first_;
    for (const auto& [read, contents] : steps) {
        auto way = std::ranges::find_if(*ways, [&](std::uint32_t node) {
            return node != sound_end && nodes_[node].read.offset == read.offset &&
                   nodes_[node].read.length == read.length;
        });
        if (way == ways->end()) {
            if (ways->size() == most_ways) {
                return false;
            }
            ways->push_back(static_cast<std::uint32_t>(nodes_.size()));
            way = ways->end() - 1;
            nodes_.push_back({read, {}});
        }
        ways = &nodes_[*way].next[contents];
    }
    if (std::ranges::find(*ways, sound_end) != ways->end()) {
        return false;
    }
    ways->push_back(sound_end);
    ++sound_;
    return true;
}

void Verdicts::tell(std::span<const Step> steps) const {
    static_assert(std::has_unique_object_representations_v<Step>);
    const std::span<const std::byte> body = std::as_bytes(steps);
    std::vector<std::byte> record(sizeof(RecordHeader) + body.size());
    RecordHeader header{0, checker_, steps.size()};
    std::memcpy(record.data(), &header, sizeof(header));
    std::ranges::copy(body, record.begin() + sizeof(header));
    header.checksum = checksum_of(record);
    std::memcpy(record.data(), &header, sizeof(header));
    board_->append(record);
}

bool Verdicts::hear() {
    if (board_ == nullptr) {
        return false;
    }
    const std::vector<std::byte> told = board_->from(heard_);
    bool is_new = false;
    std::span<const std::byte> rest = told;
    while (rest.size() >= sizeof(RecordHeader)) {
        RecordHeader header{};
        std::memcpy(&header, rest.data(), sizeof(header));
        const std::uint64_t room = (rest.size() - sizeof(header)) / sizeof(Step);
        if (header.steps > room) {
            break;
        }
        const std::span<const std::byte> record = rest.first(sizeof(header) + header.steps * sizeof(Step));
        if (checksum_of(record) != header.checksum) {
            break;
        }
        if (header.checker == checker_) {
            std::vector<Step> steps(header.steps);
            std::memcpy(steps.data(), record.data() + sizeof(header), header.steps * sizeof(Step));
            is_new |= add(steps);
        }
        rest = rest.subspan(record.size());
    }
    heard_ += told.size() - rest.size();
    return is_new;
}

VerdictBoard::VerdictBoard() : memory_(::memfd_create("sampleblk-verdicts", MFD_CLOEXEC)) {
    // Who appends holds the inode's lock: records do not mix (mm/filemap.c, generic_file_write_iter()).
    if (!memory_ || ::fcntl(memory_.get(), F_SETFL, O_APPEND) != 0) {
        throw_errno("memfd_create", board_name);
    }
}

void VerdictBoard::append(std::span<const std::byte> record) const {
    if (size() + record.size() > most_board_bytes) {
        return;
    }
    // In one call, that may write less where there is no memory: then nobody hears any more, and each learns by itself.
    if (::write(memory_.get(), record.data(), record.size()) < 0 && errno != ENOSPC && errno != ENOMEM) {
        throw_errno("write", board_name);
    }
}

std::vector<std::byte> VerdictBoard::from(std::uint64_t offset) const {
    const std::uint64_t end = size();
    std::vector<std::byte> found(end > offset ? end - offset : 0);
    found.resize(read_at(memory_.get(), offset, found, board_name));
    return found;
}

std::uint64_t VerdictBoard::size() const {
    struct stat about{};
    if (::fstat(memory_.get(), &about) != 0) {
        throw_errno("fstat", board_name);
    }
    return static_cast<std::uint64_t>(about.st_size);
}

}  // namespace sampleblk::crash
