// SPDX-License-Identifier: MIT
// What perf says of a recording besides its records: the machine, the command line, its events' names and formats.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "byte_reader.hpp"
#include "event_names.hpp"
#include "markup.hpp"
#include "perf_parts.hpp"
#include "tracing_data.hpp"

namespace sampleblk::profile {

namespace {

constexpr std::array kFeatureNames = {
    std::pair{kFeatureHostname, "hostname"},  std::pair{kFeatureOsRelease, "os_release"},
    std::pair{kFeatureVersion, "version"},    std::pair{kFeatureArch, "arch"},
    std::pair{kFeatureCpuDescription, "cpu"},
};

void read_event_description(PerfContents& file, std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    const auto count = in.number<std::uint32_t>();
    const auto attr_size = in.number<std::uint32_t>();
    for (std::uint32_t i = 0; i < count && in.left() > attr_size; ++i) {
        in.skip(attr_size);
        const auto ids = in.number<std::uint32_t>();
        const std::string name = in.counted_string();
        if (i < file.events.size()) {
            file.events[i].name = clean_text(name);
        }
        in.skip(std::size_t{8} * ids);
    }
}

}  // namespace

void read_feature(PerfContents& file, std::uint32_t feature, std::span<const std::byte> bytes) {
    for (const auto& [known, name] : kFeatureNames) {
        if (known == feature) {
            file.header[name] = clean_text(ByteReader(bytes).counted_string());
            return;
        }
    }
    switch (feature) {
        case kFeatureTracingData:
            read_tracing_data(file, bytes);
            break;
        case kFeatureBuildId:
            read_build_ids(file, bytes);
            break;
        case kFeatureEventDescription:
            read_event_description(file, bytes);
            break;
        case kFeatureCpus:
            if (bytes.size() >= 8) {
                file.header["cpus_online"] = std::to_string(load<std::uint32_t>(bytes.data()));
            }
            break;
        case kFeatureCommandLine: {
            ByteReader in(bytes);
            std::string line;
            for (auto count = in.number<std::uint32_t>(); count > 0 && in.left() > 0; --count) {
                line += (line.empty() ? "" : " ") + in.counted_string();
            }
            file.header["command_line"] = clean_text(line);
            break;
        }
        default:
            break;
    }
}

void read_build_ids(PerfContents& file, std::span<const std::byte> bytes) {
    constexpr std::size_t id_at = kHeaderSize + 4;
    constexpr std::size_t name_at = id_at + 24;
    constexpr std::uint16_t has_size = 1U << 15U;  // PERF_RECORD_MISC_BUILD_ID_SIZE
    while (bytes.size() >= name_at) {
        const auto header = load<perf_event_header>(bytes.data());
        if (header.size < name_at || header.size > bytes.size()) {
            damaged(file, bytes.data(), "corrupt build ids", "a build-id record inside its section");
            return;
        }
        std::size_t length = 20;
        if ((header.misc & has_size) != 0) {
            length = std::min<std::size_t>(20, load<std::uint8_t>(bytes.data() + id_at + 20));
        }
        BuildId found;
        constexpr std::string_view digits = "0123456789abcdef";
        for (std::size_t i = 0; i < length; ++i) {
            const auto byte = load<std::uint8_t>(bytes.data() + id_at + i);
            found.id += digits[byte >> 4U];
            found.id += digits[byte & 15U];
        }
        found.path = clean_text(ByteReader(bytes.subspan(name_at, header.size - name_at)).c_string());
        file.build_ids.push_back(std::move(found));
        bytes = bytes.subspan(header.size);
    }
}

void read_tracing_data(PerfContents& file, std::span<const std::byte> bytes) {
    TracingData data =
        parse_tracing_data(bytes, file.path, static_cast<std::uint64_t>(bytes.data() - file.bytes.data()));
    for (auto& format : data.formats) {
        const std::uint64_t id = format.id;
        file.formats.insert_or_assign(id, std::move(format));
    }
    if (!data.kallsyms.empty()) {
        file.kallsyms = data.kallsyms;
    }
    if (data.damaged) {
        damaged(file, bytes.data(), "corrupt tracing data", data.expected);
    }
}

void name_events(PerfContents& file) {
    for (Event& event : file.events) {
        if (!event.name.empty()) {
            continue;
        }
        const std::uint64_t config = event.attr.config;
        if (const auto known = event_name(event.attr.type, config); !known.empty()) {
            event.name = known;
        } else if (const auto format = file.formats.find(config);
                   event.attr.type == PERF_TYPE_TRACEPOINT && format != file.formats.end()) {
            event.name = format->second.system + ":" + format->second.name;
        } else {
            event.name = "type " + std::to_string(event.attr.type) + " config " + std::to_string(config);
        }
    }
}

}  // namespace sampleblk::profile
