// SPDX-License-Identifier: MIT
#include "sampleblk/blktrace.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "sampleblk/error.hpp"

namespace sampleblk::blktrace {

namespace {

// As the kernel lays them out in its own byte order.
struct Version7 {
    std::uint32_t magic;
    std::uint32_t sequence;
    std::uint64_t time_ns;
    std::uint64_t sector;
    std::uint32_t bytes;
    std::uint32_t action;
    std::uint32_t pid;
    std::uint32_t device;
    std::uint32_t cpu;
    std::uint16_t error;
    std::uint16_t data_length;
};
static_assert(sizeof(Version7) == 48);

struct Version8 {
    std::uint32_t magic;
    std::uint32_t sequence;
    std::uint64_t time_ns;
    std::uint64_t sector;
    std::uint32_t bytes;
    std::uint32_t pid;
    std::uint64_t action;
    std::uint32_t device;
    std::uint32_t cpu;
    std::uint16_t error;
    std::uint16_t data_length;
    std::uint8_t padding[12];
};
static_assert(sizeof(Version8) == 64);

constexpr std::uint32_t kMagic = 0x65617400;
constexpr std::uint32_t kFromCgroup = 1U << 8U;  // __BLK_TA_CGROUP: its id, 8 bytes, comes first
constexpr std::size_t kCgroupBytes = 8;
// A message has 128 bytes at most (BLK_TN_MAX_MSG), a driver's command fewer than 300. More is what follows a record
// that was cut off, where files were joined.
constexpr std::uint16_t kMostData = 4096;

template <typename T>
T swapped(T value) {
    T out = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
        out = static_cast<T>((out << 8U) | ((value >> (8 * i)) & 0xffU));
    }
    return out;
}

template <typename T>
T big_endian(std::span<const std::byte> data, std::size_t at) noexcept {
    if (at > data.size() || data.size() - at < sizeof(T)) {
        return 0;
    }
    T out = 0;
    for (const std::byte byte : data.subspan(at, sizeof(T))) {
        out = static_cast<T>((out << 8U) | static_cast<T>(byte));
    }
    return out;
}

template <typename Raw>
void fill(Record& record, const Raw& raw, bool swap) {
    const auto fix = [swap](auto value) { return swap ? swapped(value) : value; };
    const auto action = fix(raw.action);
    record.time_ns = fix(raw.time_ns);
    record.sector = fix(raw.sector);
    record.bytes = fix(raw.bytes);
    record.action = static_cast<std::uint16_t>(action);
    record.categories = static_cast<std::uint64_t>(action >> 16U);
    record.pid = fix(raw.pid);
    record.device = fix(raw.device);
    record.cpu = fix(raw.cpu);
    record.error = fix(raw.error);
}

}  // namespace

std::uint32_t Record::data_u32(std::size_t at_byte) const noexcept {
    return big_endian<std::uint32_t>(data, at_byte);
}
std::uint64_t Record::data_u64(std::size_t at_byte) const noexcept {
    return big_endian<std::uint64_t>(data, at_byte);
}

Reader::Reader(std::span<const std::byte> bytes, std::string path) : bytes_(bytes), path_(std::move(path)) {
    swapped_ = !bytes.empty() && bytes[0] == std::byte{kMagic >> 24U};
}

bool Reader::next(Record& record) {
    const auto left = bytes_.subspan(at_);
    if (left.empty()) {
        return false;
    }
    std::uint32_t magic = 0;
    if (left.size() < sizeof(magic)) {
        cut_off_ = true;
        return false;
    }
    std::memcpy(&magic, left.data(), sizeof(magic));
    magic = swapped_ ? swapped(magic) : magic;
    const std::uint32_t version = magic & 0xffU;
    if ((magic & ~0xffU) != kMagic || (version != 7 && version != 8)) {
        throw FormatError(path_, at_, "a blktrace record of version 7 or 8");
    }
    const std::size_t size = version == 7 ? sizeof(Version7) : sizeof(Version8);
    if (left.size() < size) {
        cut_off_ = true;
        return false;
    }
    std::uint16_t length = 0;
    std::uint32_t number = 0;
    const auto take = [&](auto raw) {
        std::memcpy(&raw, left.data(), sizeof(raw));
        fill(record, raw, swapped_);
        length = swapped_ ? swapped(raw.data_length) : raw.data_length;
        number = swapped_ ? swapped(raw.sequence) : raw.sequence;
    };
    if (version == 7) {
        take(Version7{});
    } else {
        take(Version8{});
    }
    if (length > kMostData) {
        throw FormatError(path_, at_, "a blktrace record with at most " + std::to_string(kMostData) + " bytes of data");
    }
    if (left.size() - size < length) {
        cut_off_ = true;
        return false;
    }
    record.at = at_;
    record.data = left.subspan(size, length);
    if ((record.action & kFromCgroup) != 0) {
        record.action = static_cast<std::uint16_t>(record.action & ~kFromCgroup);
        record.data = record.data.subspan(std::min(kCgroupBytes, record.data.size()));
    }
    at_ += size + length;
    if (number != 0 && (record.categories & category_notify) == 0) {
        // __blk_add_trace() counts what it has found room for; trace_note() does not.
        std::uint32_t& last = numbers_[{record.device, record.cpu}];
        gaps_ += last != 0 && number != last + 1 ? 1 : 0;
        last = number;
    }
    return true;
}

}  // namespace sampleblk::blktrace
