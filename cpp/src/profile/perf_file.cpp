// SPDX-License-Identifier: MIT
#include "sampleblk/profile/perf_file.hpp"

#include <algorithm>
#include <utility>

#include "perf_parts.hpp"
#include "sampleblk/error.hpp"

namespace sampleblk::profile {

namespace {

constexpr std::uint64_t kMagic = 0x32454c4946524550ULL;  // "PERFILE2"
constexpr std::size_t kPipeHeaderSize = 16;

}  // namespace

perf_event_header Record::header() const noexcept {
    return load<perf_event_header>(data);
}

std::span<const std::byte> Record::body() const noexcept {
    return {data + kHeaderSize, header().size - kHeaderSize};
}

PerfFile::PerfFile(const std::string& path, OnDamage damage) : mapping_(path) {
    contents_.path = path;
    contents_.on_damage = damage;
    contents_.bytes = mapping_.bytes();
    read();
}

PerfFile::PerfFile(std::vector<std::byte> bytes, std::string path, OnDamage damage) : owned_(std::move(bytes)) {
    contents_.path = std::move(path);
    contents_.on_damage = damage;
    contents_.bytes = owned_;
    read();
}

void PerfFile::read() {
    const std::span<const std::byte> bytes = contents_.bytes;
    if (bytes.size() < kPipeHeaderSize) {
        throw FormatError(contents_.path, 0, "a perf.data header (PERFILE2) of at least 16 bytes");
    }
    const auto magic = load<std::uint64_t>(bytes.data());
    if (__builtin_bswap64(magic) == kMagic) {
        throw UnsupportedError("a perf.data of the other byte order",
                               contents_.path + " was recorded on such a machine",
                               "convert it there, with perf data or perf script");
    }
    if (magic != kMagic) {
        throw FormatError(contents_.path, 0, "the magic PERFILE2 of a perf.data");
    }
    const auto size = load<std::uint64_t>(bytes.data() + 8);
    if (size == kPipeHeaderSize) {
        contents_.pipe = true;
        read_records(contents_, bytes.subspan(kPipeHeaderSize));
    } else if (size == kFileHeaderSize) {
        read_records(contents_, read_file_header(contents_));
    } else {
        throw FormatError(contents_.path, 8, "a header size of 16 (a pipe's) or 104 (a file's)");
    }
    if (contents_.events.empty()) {
        damaged(contents_, bytes.data(), "no events", "the attributes of at least one event");
    }
    name_events(contents_);
    std::ranges::stable_sort(contents_.records, {}, &Record::time_ns);
}

std::uint64_t PerfFile::offset_of(const Record& record) const noexcept {
    return profile::offset_of(contents_, record.data);
}

void damaged(PerfContents& file, const std::byte* at, const std::string& kind, const std::string& expected) {
    if (file.on_damage == OnDamage::strict) {
        throw FormatError(file.path, offset_of(file, at), expected);
    }
    ++file.damage[kind];
}

std::uint64_t offset_of(const PerfContents& file, const std::byte* at) noexcept {
    const bool inside = at >= file.bytes.data() && at < file.bytes.data() + file.bytes.size();
    return inside ? static_cast<std::uint64_t>(at - file.bytes.data()) : 0;
}

}  // namespace sampleblk::profile
