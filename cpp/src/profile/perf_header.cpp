// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>
#include <utility>

#include "perf_parts.hpp"
#include "sampleblk/error.hpp"

namespace sampleblk::profile {

namespace {

struct Section {
    std::uint64_t offset;
    std::uint64_t size;
};

}  // namespace

perf_event_attr read_attr(std::span<const std::byte> bytes) {
    perf_event_attr attr{};
    // An older perf wrote a shorter one, a newer a longer: what both know comes first.
    std::memcpy(&attr, bytes.data(), std::min(sizeof(attr), bytes.size()));
    return attr;
}

std::span<const std::byte> read_file_header(PerfContents& file) {
    const std::span<const std::byte> bytes = file.bytes;
    if (bytes.size() < kFileHeaderSize) {
        throw FormatError(file.path, bytes.size(), "a file header of 104 bytes");
    }
    const auto attr_entry = load<std::uint64_t>(bytes.data() + 16);
    const auto attrs = load<Section>(bytes.data() + 24);
    const auto data = load<Section>(bytes.data() + 40);
    const auto inside = [&](const Section& section) {
        return section.offset <= bytes.size() && section.size <= bytes.size() - section.offset;
    };
    if (!inside(attrs) || attr_entry < PERF_ATTR_SIZE_VER0 + sizeof(Section) || attrs.size % attr_entry != 0) {
        throw FormatError(file.path, 24, "an attribute section inside the file");
    }
    for (std::uint64_t at = attrs.offset; at < attrs.offset + attrs.size; at += attr_entry) {
        Event event;
        event.attr = read_attr(bytes.subspan(at, attr_entry - sizeof(Section)));
        const auto ids = load<Section>(bytes.data() + at + attr_entry - sizeof(Section));
        if (!inside(ids)) {
            throw FormatError(file.path, at, "an event's ids inside the file");
        }
        for (std::uint64_t i = 0; i + 8 <= ids.size; i += 8) {
            event.ids.push_back(load<std::uint64_t>(bytes.data() + ids.offset + i));
        }
        file.events.push_back(std::move(event));
    }
    finish_events(file);

    if (data.offset > bytes.size()) {
        throw FormatError(file.path, 40, "a data section inside the file");
    }
    // A recording that was killed has no size of its data yet: it runs to the end of the file.
    if (data.size == 0 || data.size > bytes.size() - data.offset) {
        damaged(file, bytes.data() + 40, "truncated", "a data section inside the file (was the recording killed?)");
        return bytes.subspan(data.offset);
    }
    // Features first: trace point formats and event names are wanted with the records.
    std::size_t table = data.offset + data.size;
    for (std::uint32_t feature = 0; feature < kFeatureLast; ++feature) {
        const auto word = load<std::uint64_t>(bytes.data() + 72 + std::size_t{feature} / 64 * 8);
        if ((word >> (feature % 64) & 1U) == 0) {
            continue;
        }
        if (table + sizeof(Section) > bytes.size()) {
            damaged(file, bytes.data() + table, "truncated header features", "a section for each header feature");
            break;
        }
        const auto section = load<Section>(bytes.data() + table);
        table += sizeof(Section);
        if (!inside(section)) {
            damaged(file, bytes.data() + table, "truncated header features", "a header feature inside the file");
            continue;
        }
        read_feature(file, feature, bytes.subspan(section.offset, section.size));
    }
    return bytes.subspan(data.offset, data.size);
}

}  // namespace sampleblk::profile
