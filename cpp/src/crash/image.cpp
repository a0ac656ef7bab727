// SPDX-License-Identifier: MIT
#include "sampleblk/crash/image.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace sampleblk::crash {

namespace {

constexpr std::array<std::byte, sector_bytes> zeros{};

// A place and what is there. Their sum over all sectors is the image's.
Digest digest_of(std::uint64_t sector, const std::byte* data) {
    const XXH128_hash_t hash = XXH3_128bits_withSeed(data == nullptr ? zeros.data() : data, sector_bytes, sector);
    return {hash.low64, hash.high64};
}

// What is compared at a time.
constexpr std::size_t block_bytes = 65536;

constexpr std::size_t steps_between_checks = 1U << 16U;

bool is_zero(const std::byte* data, std::size_t length) {
    return data[0] == std::byte{0} && std::memcmp(data, data + 1, length - 1) == 0;
}

}  // namespace

Image::Image(const Log& log, std::string path, const std::string& base, std::uint64_t bytes)
    : log_(log), path_(std::move(path)), bytes_(bytes) {
    if (bytes == 0 || bytes % sector_bytes != 0) {
        throw InputError("an image of " + std::to_string(bytes) + " bytes", path_, 0, "a multiple of 512, above 0");
    }
    if (log.end_sector() > bytes / sector_bytes) {
        throw InputError("the log writes up to sector " + std::to_string(log.end_sector()) + ", the image has " +
                             std::to_string(bytes / sector_bytes),
                         path_, 0, "an image as large as the disk");
    }
    if (!base.empty()) {
        base_ = MappedFile(base);
        if (base_.bytes().size() % sector_bytes != 0) {
            throw InputError("the base has " + std::to_string(base_.bytes().size()) + " bytes", base, 0,
                             "whole sectors of 512");
        }
        if (base_.bytes().size() > bytes) {
            throw InputError(
                "the base has " + std::to_string(base_.bytes().size()) + " bytes, the image " + std::to_string(bytes),
                base, 0, "a base no larger than the image");
        }
    }
    if (!path_.empty()) {
        make_file();
    }
    if (!base.empty()) {
        base_.check();
    }
    index_versions();
}

void Image::make_file() {
    fd_ = open_file(path_, O_RDWR | O_CREAT | O_TRUNC, 0644);
    // All of it now: a file system that is full says so here, where a store to the mapping would end us.
    allocate(fd_.get(), bytes_, path_);
    map_ = Mapping(bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0, path_);
    const std::span<const std::byte> from = base_.bytes();
    is_zero_.assign((bytes_ + block_bytes - 1) / block_bytes, true);
    for (std::size_t offset = 0; offset < from.size(); offset += block_bytes) {
        const std::span<const std::byte> block = from.subspan(offset, std::min(block_bytes, from.size() - offset));
        if (!is_zero(block.data(), block.size())) {
            std::memcpy(map_.data() + offset, block.data(), block.size());
            is_zero_[offset / block_bytes] = false;
        }
        if (offset % (block_bytes * 256) == 0) {
            check_interrupt();
        }
    }
}

const std::byte* Image::base_at(std::uint64_t sector) const {
    const std::size_t offset = sector * sector_bytes;
    const std::span<const std::byte> base = base_.bytes();
    return offset + sector_bytes <= base.size() ? base.data() + offset : nullptr;
}

void Image::find_sectors() {
    // Zeros are of no account where the base has them, too, and nothing else is written: most of a disk that is
    // discarded.
    const std::uint64_t in_base = base_.bytes().size() / sector_bytes;
    for (const Write& write : log_.writes()) {
        for (const Piece& piece : write.pieces) {
            const bool zeroes = piece.data == nullptr;
            const std::uint64_t end = std::min(piece.sector + piece.sectors, zeroes ? in_base : bytes_ / sector_bytes);
            for (std::uint64_t at = piece.sector; at < end; ++at) {
                if (!zeroes || !is_zero(base_at(at), sector_bytes)) {
                    sectors_.push_back(at);
                }
                if (at % steps_between_checks == 0) {
                    check_interrupt();
                }
            }
        }
    }
    std::ranges::sort(sectors_);
    const auto repeated = std::ranges::unique(sectors_);
    sectors_.erase(repeated.begin(), repeated.end());
    sectors_.shrink_to_fit();
}

void Image::index_versions() {
    find_sectors();
    // The ids of a piece's sectors follow each other; calls `each` with one, and which one of the piece it is.
    const auto for_sectors_of = [&](const Piece& piece, const auto& each) {
        auto at = std::ranges::lower_bound(sectors_, piece.sector);
        for (; at != sectors_.end() && *at - piece.sector < piece.sectors; ++at) {
            each(static_cast<std::size_t>(at - sectors_.begin()), *at - piece.sector);
        }
    };
    std::uint64_t total = 0;
    first_version_.assign(sectors_.size() + 1, 0);
    for (const Write& write : log_.writes()) {
        for (const Piece& piece : write.pieces) {
            for_sectors_of(piece, [&](std::size_t id, std::uint64_t /*i*/) {
                ++first_version_[id + 1];
                ++total;
            });
        }
    }
    if (total >= std::numeric_limits<std::uint32_t>::max() / 2) {
        throw InputError("the log changes " + std::to_string(total) + " sectors", path_, 0, "less than 2^31");
    }
    std::partial_sum(first_version_.begin(), first_version_.end(), first_version_.begin());
    versions_.resize(total);
    std::vector<std::uint32_t> filled(first_version_.begin(), first_version_.end() - 1);
    first_of_write_.reserve(log_.writes().size() + 1);
    versions_of_.reserve(total);
    for (std::uint32_t w = 0; w < log_.writes().size(); ++w) {
        first_of_write_.push_back(static_cast<std::uint32_t>(versions_of_.size()));
        std::uint64_t place = 0;
        for (const Piece& piece : log_.writes()[w].pieces) {
            for_sectors_of(piece, [&](std::size_t id, std::uint64_t i) {
                const std::byte* data = piece.data == nullptr ? nullptr : piece.data + i * sector_bytes;
                const std::uint32_t version = filled[id]++;
                versions_[version] = {w, static_cast<std::uint32_t>(id), data, digest_of(piece.sector + i, data),
                                      place + i};
                versions_of_.push_back(version);
            });
            place += piece.sectors;
        }
        if (w % 1024 == 0) {
            check_interrupt();
        }
    }
    first_of_write_.push_back(static_cast<std::uint32_t>(versions_of_.size()));
    base_digest_.reserve(sectors_.size());
    for (const std::uint64_t sector : sectors_) {
        base_digest_.push_back(digest_of(sector, base_at(sector)));
        digest_[0] += base_digest_.back()[0];
        digest_[1] += base_digest_.back()[1];
    }
    top_.assign(sectors_.size(), base_version);
    in_file_ = top_;
    is_dirty_.assign(sectors_.size(), false);
    presence_.assign(log_.writes().size(), Presence::absent);
}

bool Image::is_present(std::uint32_t version) const {
    const std::uint32_t write = versions_[version].write;
    if (presence_[write] != Presence::torn) {
        return presence_[write] == Presence::whole;
    }
    const auto tear = std::ranges::lower_bound(state_.torn, write, {}, &Tear::write);
    const std::uint64_t place = versions_[version].place;
    return place >= tear->first && place - tear->first < tear->sectors;
}

void Image::show(std::uint32_t sector_id, std::uint32_t version) {
    const std::uint32_t old = top_[sector_id];
    if (old == version) {
        return;
    }
    const Digest& gone = old == base_version ? base_digest_[sector_id] : versions_[old].digest;
    const Digest& come = version == base_version ? base_digest_[sector_id] : versions_[version].digest;
    digest_[0] += come[0] - gone[0];
    digest_[1] += come[1] - gone[1];
    top_[sector_id] = version;
    if (!is_dirty_[sector_id]) {
        is_dirty_[sector_id] = true;
        dirty_.push_back(sector_id);
    }
}

// Brings the sectors of a write, whose presence has changed, up to date. All presences are the new ones already: above
// the version that shows, only a write that has changed itself can have come, and it is refreshed as well.
void Image::refresh(std::uint32_t write) {
    for (std::uint32_t i = first_of_write_[write]; i < first_of_write_[write + 1]; ++i) {
        const std::uint32_t version = versions_of_[i];
        const std::uint32_t id = versions_[version].sector_id;
        const std::uint32_t top = top_[id];
        if (is_present(version)) {
            if (top == base_version || top < version) {
                show(id, version);
            }
        } else if (top == version) {
            std::uint32_t below = version;
            while (below > first_version_[id] && !is_present(below - 1)) {
                --below;
            }
            show(id, below > first_version_[id] ? below - 1 : base_version);
        }
    }
}

void Image::take(const State& state) {
    check_of(log_, state);
    const std::vector<std::uint32_t>& order = log_.by_submission();
    std::vector<std::uint32_t> changed;
    const auto set = [&](std::uint32_t write, Presence presence) {
        if (presence_[write] != presence || presence == Presence::torn) {
            changed.push_back(write);
            presence_[write] = presence;
        }
    };
    const std::size_t before = state_.submitted;
    for (const std::uint32_t write : state_.lost) {
        set(write, Presence::whole);
    }
    for (const Tear& tear : state_.torn) {
        changed.push_back(tear.write);
        presence_[tear.write] = Presence::whole;
    }
    for (std::size_t i = before; i < state.submitted; ++i) {
        set(order[i], Presence::whole);
    }
    for (std::size_t i = state.submitted; i < before; ++i) {
        set(order[i], Presence::absent);
    }
    for (const std::uint32_t write : state.lost) {
        set(write, Presence::absent);
    }
    state_ = state;
    for (const Tear& tear : state.torn) {
        set(tear.write, Presence::torn);
    }
    std::ranges::sort(changed);
    const auto repeated = std::ranges::unique(changed);
    changed.erase(repeated.begin(), repeated.end());
    std::ranges::for_each(changed, [&](std::uint32_t write) { refresh(write); });
}

std::vector<Part> Image::parts() const {
    std::vector<Part> found;
    auto tear = state_.torn.begin();
    for (std::uint32_t w = 0; w < presence_.size(); ++w) {
        if (presence_[w] == Presence::whole) {
            found.push_back({w, 0, log_.writes()[w].sectors()});
        } else if (presence_[w] == Presence::torn) {
            tear = std::ranges::lower_bound(tear, state_.torn.end(), w, {}, &Tear::write);
            found.push_back({w, tear->first, tear->sectors});
        }
    }
    return found;
}

const std::byte* Image::contents(std::uint32_t sector_id) const {
    const std::uint32_t version = top_[sector_id];
    const std::byte* data = version == base_version ? base_at(sectors_[sector_id]) : versions_[version].data;
    return data == nullptr ? zeros.data() : data;
}

void Image::need_file() const {
    if (path_.empty()) {
        throw InputError("an image without a file", {}, 0, "one that was given a path");
    }
}

std::size_t Image::write() {
    need_file();
    std::size_t written = 0;
    for (const std::uint32_t id : dirty_) {
        is_dirty_[id] = false;
        if (in_file_[id] == top_[id]) {
            continue;
        }
        std::memcpy(map_.data() + sectors_[id] * sector_bytes, contents(id), sector_bytes);
        in_file_[id] = top_[id];
        if (++written % steps_between_checks == 0) {
            check_interrupt();
        }
    }
    dirty_.clear();
    base_.check();
    return written;
}

std::size_t Image::restore() {
    need_file();
    struct stat about{};
    struct stat named{};
    if (::fstat(fd_.get(), &about) != 0) {
        throw_errno("fstat", path_);
    }
    if (::stat(path_.c_str(), &named) != 0 || named.st_dev != about.st_dev || named.st_ino != about.st_ino) {
        // It was removed, or another file put in its place, which no state would come to.
        if (::unlink(path_.c_str()) != 0 && errno != ENOENT) {
            throw_errno("unlink", path_);
        }
        make_file();
    } else if (static_cast<std::uint64_t>(about.st_size) != bytes_ &&
               ::ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0) {
        throw_errno("ftruncate", path_);
    }
    std::size_t changed = 0;
    std::size_t next = 0;  // of sectors_
    const auto put_back = [&](std::uint64_t sector, const std::byte* right) {
        std::byte* there = map_.data() + sector * sector_bytes;
        const std::byte* wanted = right == nullptr ? zeros.data() : right;
        if (std::memcmp(there, wanted, sector_bytes) != 0) {
            std::memcpy(there, wanted, sector_bytes);
            ++changed;
        }
    };
    const std::uint64_t sectors = bytes_ / sector_bytes;
    constexpr std::uint64_t per_block = block_bytes / sector_bytes;
    for (std::uint64_t first = 0; first < sectors; first += per_block) {
        const std::uint64_t end = std::min(first + per_block, sectors);
        const bool touched = next < sectors_.size() && sectors_[next] < end;
        const std::byte* there = map_.data() + first * sector_bytes;
        const std::size_t length = (end - first) * sector_bytes;
        // Half of the time of comparing zeros with the base's.
        if (!touched && is_zero_[first / per_block] && is_zero(there, length)) {
            continue;
        }
        if (!touched && end * sector_bytes <= base_.bytes().size() && std::memcmp(there, base_at(first), length) == 0) {
            continue;
        }
        for (std::uint64_t sector = first; sector < end; ++sector) {
            if (next < sectors_.size() && sectors_[next] == sector) {
                const auto id = static_cast<std::uint32_t>(next++);
                const std::uint32_t version = in_file_[id];
                put_back(sector, version == base_version ? base_at(sector) : versions_[version].data);
            } else {
                put_back(sector, base_at(sector));
            }
        }
        if (first % (per_block * 256) == 0) {
            check_interrupt();
        }
    }
    base_.check();
    return changed;
}

}  // namespace sampleblk::crash
