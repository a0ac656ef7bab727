// SPDX-License-Identifier: MIT
// A perf.data opened: its header and what perf says of the recording besides its records: the machine, the command
// line, its events' names and formats.
#include "sampleblk/profile/perf_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "perf/byte_reader.hpp"
#include "perf/event_names.hpp"
#include "perf/perf_parts.hpp"
#include "perf/tracing_data.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/text.hpp"
#include "symbols/elf_symbols.hpp"

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
            file.events[i].name = plain_text(name);
        }
        in.skip(std::size_t{8} * ids);
    }
}

}  // namespace

void read_feature(PerfContents& file, std::uint32_t feature, std::span<const std::byte> bytes) {
    for (const auto& [known, name] : kFeatureNames) {
        if (known == feature) {
            file.header[name] = plain_text(ByteReader(bytes).counted_string());
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
        case kFeatureDirectory:
            if (bytes.size() >= 8) {
                file.directory = load<std::uint64_t>(bytes.data());
            }
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
            file.header["command_line"] = plain_text(line);
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
        found.id = build_id_text(bytes.subspan(id_at, length));
        found.path = plain_text(ByteReader(bytes.subspan(name_at, header.size - name_at)).c_string());
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

namespace {

constexpr std::uint64_t kMagic = 0x32454c4946524550ULL;  // "PERFILE2"
constexpr std::size_t kPipeHeaderSize = 16;

// The file of the header, where perf made a directory.
std::string main_file(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_directory(path, ignored) ? path + "/data" : path;
}

}  // namespace

perf_event_header Record::header() const noexcept {
    return load<perf_event_header>(data);
}

std::span<const std::byte> Record::body() const noexcept {
    return {data + kHeaderSize, header().size - kHeaderSize};
}

PerfFile::PerfFile(const std::string& path, OnDamage damage)
    : mapping_(main_file(path)), contents_(std::make_unique<PerfContents>()) {
    contents_->path = mapping_.path();
    contents_->on_damage = damage;
    contents_->bytes = mapping_.bytes();
    read_checked([this] { read(); }, [this] { check_length(); });
}

PerfFile::PerfFile(std::vector<std::byte> bytes, std::string path, OnDamage damage)
    : owned_(std::move(bytes)), contents_(std::make_unique<PerfContents>()) {
    contents_->path = std::move(path);
    contents_->on_damage = damage;
    contents_->bytes = owned_;
    read();
}

PerfFile::PerfFile(std::unique_ptr<PerfContents> contents) noexcept : contents_(std::move(contents)) {}

PerfFile::~PerfFile() = default;

const std::string& PerfFile::path() const noexcept {
    return contents_->path;
}
bool PerfFile::is_pipe() const noexcept {
    return contents_->pipe;
}
bool PerfFile::is_compressed() const noexcept {
    return contents_->compressed;
}
const std::vector<Event>& PerfFile::events() const noexcept {
    return contents_->events;
}
const std::vector<Record>& PerfFile::records() const noexcept {
    return contents_->records;
}
const std::map<std::string, std::string>& PerfFile::header() const noexcept {
    return contents_->header;
}
const std::vector<BuildId>& PerfFile::build_ids() const noexcept {
    return contents_->build_ids;
}
const std::map<std::uint64_t, trace::EventFormat>& PerfFile::formats() const noexcept {
    return contents_->formats;
}
std::string_view PerfFile::kallsyms() const noexcept {
    return contents_->kallsyms;
}
const std::map<std::string, std::uint64_t>& PerfFile::damage() const noexcept {
    return contents_->damage;
}
std::optional<std::size_t> PerfFile::event_of_id(std::uint64_t id) const {
    const auto found = contents_->event_by_id.find(id);
    return found == contents_->event_by_id.end() ? std::nullopt : std::optional(found->second);
}

void PerfFile::read() {
    const std::span<const std::byte> bytes = contents_->bytes;
    if (bytes.size() < kPipeHeaderSize) {
        throw FormatError(contents_->path, 0, "a perf.data header (PERFILE2) of at least 16 bytes");
    }
    const auto magic = load<std::uint64_t>(bytes.data());
    if (__builtin_bswap64(magic) == kMagic) {
        throw UnsupportedError("a perf.data of the other byte order",
                               contents_->path + " was recorded on such a machine",
                               "convert it there, with perf data or perf script");
    }
    if (magic != kMagic) {
        throw FormatError(contents_->path, 0, "the magic PERFILE2 of a perf.data");
    }
    const auto size = load<std::uint64_t>(bytes.data() + 8);
    if (size == kPipeHeaderSize) {
        contents_->pipe = true;
        read_records(*contents_, bytes.subspan(kPipeHeaderSize));
    } else if (size == kFileHeaderSize) {
        read_records(*contents_, read_file_header(*contents_));
    } else {
        throw FormatError(contents_->path, 8, "a header size of 16 (a pipe's) or 104 (a file's)");
    }
    read_parts();
    if (contents_->events.empty()) {
        damaged(*contents_, bytes.data(), "no events", "the attributes of at least one event");
    }
    name_events(*contents_);
    check_length();
    std::ranges::stable_sort(contents_->records, {}, &Record::time_ns);
}

// perf record --threads: each thread of perf wrote the records of some CPUs to a file of its own, without a header.
void PerfFile::read_parts() {
    if (!contents_->directory || *contents_->directory == 0) {
        return;  // 0: a directory with one file, as --kcore makes it
    }
    if (*contents_->directory != 1) {
        throw UnsupportedError("a perf directory of version " + std::to_string(*contents_->directory),
                               contents_->path + " is of a newer perf than this reader knows",
                               "perf report, or perf record without --threads");
    }
    const std::string whole = contents_->path;
    const std::span<const std::byte> bytes = contents_->bytes;
    for (std::size_t number = 0;; ++number) {
        const std::string path = whole + "." + std::to_string(number);
        if (!std::filesystem::exists(path)) {
            break;
        }
        const MappedFile& part = parts_.emplace_back(path);
        contents_->path = path;  // of errors, with their offsets
        contents_->bytes = part.bytes();
        read_records(*contents_, part.bytes());
        contents_->path = whole;
        contents_->bytes = bytes;
    }
    if (parts_.empty()) {
        damaged(*contents_, bytes.data(), "missing data files",
                "the files " + whole + ".0, .1 … of a directory that perf record --threads made");
    }
}

void PerfFile::check_length() const {
    mapping_.check();
    for (const MappedFile& part : parts_) {
        part.check();
    }
}

std::uint64_t PerfFile::offset_of(const Record& record) const noexcept {
    return profile::offset_of(*contents_, record.data);
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
