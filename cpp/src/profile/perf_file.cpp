// SPDX-License-Identifier: MIT
#include "sampleblk/profile/perf_file.hpp"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "byte_reader.hpp"
#include "markup.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"
#include "tracing_data.hpp"

namespace sampleblk::profile {

namespace {

constexpr std::uint64_t kMagic = 0x32454c4946524550ULL;  // "PERFILE2"
constexpr std::size_t kHeaderSize = sizeof(perf_event_header);
constexpr std::size_t kFileHeaderSize = 104;
constexpr std::size_t kPipeHeaderSize = 16;
// Each of these, where asked for, is one u64 at the start of a sample, before its time.
constexpr std::uint64_t kBeforeTime = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID;
// And these follow the time in the trailer of other records.
constexpr std::uint64_t kTrailerAfterTime =
    PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER;
// More than this out of one file is no profile but an attempt on the memory.
constexpr std::size_t kMaxInflated = std::size_t{32} << 30;

struct DStreamFree {
    void operator()(ZSTD_DStream* stream) const noexcept { ZSTD_freeDStream(stream); }
};

struct Section {
    std::uint64_t offset;
    std::uint64_t size;
};

constexpr std::array kFeatureNames = {
    std::pair{kFeatureHostname, "hostname"},  std::pair{kFeatureOsRelease, "os_release"},
    std::pair{kFeatureVersion, "version"},    std::pair{kFeatureArch, "arch"},
    std::pair{kFeatureCpuDescription, "cpu"},
};

}  // namespace

perf_event_header Record::header() const noexcept {
    return load<perf_event_header>(data);
}

std::span<const std::byte> Record::body() const noexcept {
    return {data + kHeaderSize, header().size - kHeaderSize};
}

PerfFile::PerfFile(const std::string& path, OnDamage damage) : path_(path), on_damage_(damage), mapping_(path) {
    open(mapping_.bytes());
}

PerfFile::PerfFile(std::vector<std::byte> bytes, std::string path, OnDamage damage)
    : path_(std::move(path)), on_damage_(damage), owned_(std::move(bytes)) {
    open(owned_);
}

void PerfFile::damaged(const std::byte* at, const std::string& kind, const std::string& expected) {
    if (on_damage_ == OnDamage::strict) {
        const bool inside = at >= whole_.data() && at < whole_.data() + whole_.size();
        throw FormatError(path_, inside ? static_cast<std::uint64_t>(at - whole_.data()) : 0, expected);
    }
    ++damage_[kind];
}

std::uint64_t PerfFile::offset_of(const Record& record) const noexcept {
    const bool inside = record.data >= whole_.data() && record.data < whole_.data() + whole_.size();
    return inside ? static_cast<std::uint64_t>(record.data - whole_.data()) : 0;
}

void PerfFile::open(std::span<const std::byte> bytes) {
    whole_ = bytes;
    if (bytes.size() < kPipeHeaderSize) {
        throw FormatError(path_, 0, "a perf.data header (PERFILE2) of at least 16 bytes");
    }
    const auto magic = load<std::uint64_t>(bytes.data());
    if (__builtin_bswap64(magic) == kMagic) {
        throw UnsupportedError("a perf.data of the other byte order", path_ + " was recorded on such a machine",
                               "convert it there, with perf data or perf script");
    }
    if (magic != kMagic) {
        throw FormatError(path_, 0, "the magic PERFILE2 of a perf.data");
    }
    const auto size = load<std::uint64_t>(bytes.data() + 8);
    if (size == kPipeHeaderSize) {
        pipe_ = true;
        read_pipe_mode(bytes);
    } else if (size == kFileHeaderSize) {
        read_file_mode(bytes);
    } else {
        throw FormatError(path_, 8, "a header size of 16 (a pipe's) or 104 (a file's)");
    }
    if (events_.empty()) {
        damaged(bytes.data(), "no events", "the attributes of at least one event");
    }
    name_events();
    std::ranges::stable_sort(records_, {}, &Record::time_ns);
}

void PerfFile::read_file_mode(std::span<const std::byte> bytes) {
    if (bytes.size() < kFileHeaderSize) {
        throw FormatError(path_, bytes.size(), "a file header of 104 bytes");
    }
    const auto attr_entry = load<std::uint64_t>(bytes.data() + 16);
    const auto attrs = load<Section>(bytes.data() + 24);
    const auto data = load<Section>(bytes.data() + 40);
    const auto inside = [&](const Section& section) {
        return section.offset <= bytes.size() && section.size <= bytes.size() - section.offset;
    };
    if (!inside(attrs) || attr_entry < PERF_ATTR_SIZE_VER0 + sizeof(Section) || attrs.size % attr_entry != 0) {
        throw FormatError(path_, 24, "an attribute section inside the file");
    }
    for (std::uint64_t at = attrs.offset; at < attrs.offset + attrs.size; at += attr_entry) {
        Event event;
        read_attr(bytes.subspan(at, attr_entry - sizeof(Section)), attr_entry - sizeof(Section), event);
        const auto ids = load<Section>(bytes.data() + at + attr_entry - sizeof(Section));
        if (!inside(ids)) {
            throw FormatError(path_, at, "an event's ids inside the file");
        }
        for (std::uint64_t i = 0; i + 8 <= ids.size; i += 8) {
            event.ids.push_back(load<std::uint64_t>(bytes.data() + ids.offset + i));
        }
        events_.push_back(std::move(event));
    }
    finish_events();

    // A recording that was killed has no size of its data yet: it runs to the end of the file.
    std::span<const std::byte> body;
    if (data.offset > bytes.size()) {
        throw FormatError(path_, 40, "a data section inside the file");
    }
    if (data.size == 0 || data.size > bytes.size() - data.offset) {
        damaged(bytes.data() + 40, "truncated", "a data section inside the file (was the recording killed?)");
        body = bytes.subspan(data.offset);
    } else {
        body = bytes.subspan(data.offset, data.size);
        // Features first: trace point formats and event names are wanted with the records.
        std::size_t table = data.offset + data.size;
        for (std::uint32_t feature = 0; feature < kFeatureLast; ++feature) {
            const auto word = load<std::uint64_t>(bytes.data() + 72 + std::size_t{feature} / 64 * 8);
            if ((word >> (feature % 64) & 1U) == 0) {
                continue;
            }
            if (table + sizeof(Section) > bytes.size()) {
                damaged(bytes.data() + table, "truncated header features", "a section for each header feature");
                break;
            }
            const auto section = load<Section>(bytes.data() + table);
            table += sizeof(Section);
            if (!inside(section)) {
                damaged(bytes.data() + table, "truncated header features", "a header feature inside the file");
                continue;
            }
            read_feature(feature, bytes.subspan(section.offset, section.size));
        }
    }
    read_data(body);
}

void PerfFile::read_pipe_mode(std::span<const std::byte> bytes) {
    read_data(bytes.subspan(kPipeHeaderSize));
}

void PerfFile::read_attr(std::span<const std::byte> bytes, std::uint64_t attr_size, Event& event) const {
    // An older perf wrote a shorter one, a newer a longer: what both know comes first.
    std::memcpy(&event.attr, bytes.data(),
                std::min<std::size_t>({sizeof(event.attr), static_cast<std::size_t>(attr_size), bytes.size()}));
}

// The fields by which any record is told apart must be the same in all events; perf itself insists on it.
void PerfFile::finish_events() {
    if (events_.empty()) {
        return;
    }
    const perf_event_attr& first = events_.front().attr;
    sample_type_ = first.sample_type;
    sample_id_all_ = first.sample_id_all != 0;
    identifier_ = (sample_type_ & PERF_SAMPLE_IDENTIFIER) != 0;
    for (std::size_t i = 0; i < events_.size(); ++i) {
        const std::uint64_t own = events_[i].attr.sample_type;
        constexpr std::uint64_t shared = kBeforeTime | PERF_SAMPLE_TIME | kTrailerAfterTime;
        const bool same = identifier_ ? ((own ^ sample_type_) & shared) == 0 : own == sample_type_;
        if (!same) {
            throw UnsupportedError("events with different sample layouts",
                                   path_ + " has them without PERF_SAMPLE_IDENTIFIER", "record them apart");
        }
        for (const std::uint64_t id : events_[i].ids) {
            event_by_id_[id] = i;
        }
    }
    time_at_ = 8U * static_cast<std::size_t>(std::popcount(sample_type_ & kBeforeTime));
    time_from_end_ = 8U * (1U + static_cast<std::size_t>(std::popcount(sample_type_ & kTrailerAfterTime)));
}

std::uint64_t PerfFile::time_of(std::span<const std::byte> record) const {
    if ((sample_type_ & PERF_SAMPLE_TIME) == 0) {
        return 0;
    }
    const auto type = load<perf_event_header>(record.data()).type;
    if (type == PERF_RECORD_SAMPLE) {
        return record.size() >= kHeaderSize + time_at_ + 8 ? load<std::uint64_t>(record.data() + kHeaderSize + time_at_)
                                                           : 0;
    }
    // What perf adds has no trailer.
    if (!sample_id_all_ || type >= kRecordHeaderAttr || record.size() < kHeaderSize + time_from_end_) {
        return 0;
    }
    return load<std::uint64_t>(record.data() + record.size() - time_from_end_);
}

void PerfFile::read_data(std::span<const std::byte> data) {
    std::unique_ptr<ZSTD_DStream, DStreamFree> stream;
    std::vector<std::byte> rest;  // a record's beginning, whose end is in the next compressed one
    std::size_t since_check = 0;

    // Whole records of `bytes`; returns how many bytes they were.
    const auto records_of = [&](std::span<const std::byte> bytes, auto&& take) {
        std::size_t at = 0;
        while (bytes.size() - at >= kHeaderSize) {
            const auto header = load<perf_event_header>(bytes.data() + at);
            if (header.size < kHeaderSize) {
                damaged(bytes.data() + at, "corrupt records", "a record of at least 8 bytes");
                return bytes.size();
            }
            if (header.size > bytes.size() - at) {
                break;
            }
            if (++since_check == 65536) {
                since_check = 0;
                check_interrupt();
            }
            at += header.size + take(bytes.subspan(at, header.size), bytes.subspan(at + header.size));
        }
        return at;
    };
    const auto plain = [&](std::span<const std::byte> record, std::span<const std::byte>) {
        take_record(record);
        return std::size_t{0};
    };
    const auto outer = [&](std::span<const std::byte> record, std::span<const std::byte> after) {
        const auto type = load<perf_event_header>(record.data()).type;
        std::size_t extra = 0;
        if (type == kRecordCompressed || type == kRecordCompressed2) {
            compressed_ = true;
            if (!stream) {
                stream.reset(ZSTD_createDStream());
                if (!stream) {
                    throw std::bad_alloc();
                }
                ZSTD_initDStream(stream.get());
            }
            auto packed = record.subspan(kHeaderSize);
            if (type == kRecordCompressed2) {
                const auto size = packed.size() >= 8 ? load<std::uint64_t>(packed.data()) : ~0ULL;
                if (size > packed.size() - std::min<std::size_t>(8, packed.size())) {
                    damaged(record.data(), "corrupt records", "a compressed record's size inside it");
                    return extra;
                }
                packed = packed.subspan(8, size);
            }
            std::vector<std::byte> out = std::move(rest);
            rest = {};
            inflate(packed, stream.get(), out);
            // Kept first: records point into it.
            inflated_.push_back(std::move(out));
            const std::span<const std::byte> bytes = inflated_.back();
            const std::size_t used = records_of(bytes, plain);
            rest.assign(bytes.begin() + static_cast<std::ptrdiff_t>(used), bytes.end());
        } else if (type == kRecordTracingData || type == kRecordAuxtrace) {
            // Data of their own follow these two.
            const auto body = record.subspan(kHeaderSize);
            const std::uint64_t size = type == kRecordTracingData
                                           ? (body.size() >= 4 ? (load<std::uint32_t>(body.data()) + 7ULL) & ~7ULL : 0)
                                           : (body.size() >= 8 ? load<std::uint64_t>(body.data()) : 0);
            if (size > after.size()) {
                damaged(record.data(), "truncated", "the data of a tracing-data or aux record");
                return after.size();
            }
            extra = size;
            if (type == kRecordTracingData) {
                read_tracing_data(after.first(load<std::uint32_t>(body.data())));
            }
        } else {
            take_record(record);
        }
        return extra;
    };
    const std::size_t used = records_of(data, outer);
    if (used < data.size()) {
        damaged(data.data() + used, "truncated", "a whole record; the file ends inside one");
    }
    if (!rest.empty()) {
        damaged(data.data() + data.size() - 1, "truncated", "a whole record; the compressed data end inside one");
    }
}

void PerfFile::inflate(std::span<const std::byte> packed, void* stream, std::vector<std::byte>& out) {
    ZSTD_inBuffer in{packed.data(), packed.size(), 0};
    std::size_t filled = out.size();
    while (in.pos < in.size) {
        out.resize(filled + ZSTD_DStreamOutSize());
        ZSTD_outBuffer to{out.data() + filled, out.size() - filled, 0};
        const std::size_t code = ZSTD_decompressStream(static_cast<ZSTD_DStream*>(stream), &to, &in);
        filled += to.pos;
        if (ZSTD_isError(code) != 0) {
            damaged(packed.data(), "corrupt compressed records", "zstd data; " + std::string(ZSTD_getErrorName(code)));
            ZSTD_initDStream(static_cast<ZSTD_DStream*>(stream));
            break;
        }
        if (filled > kMaxInflated) {
            throw FormatError(path_, 0, "at most 32 GiB of decompressed records");
        }
        check_interrupt();
    }
    // A full output buffer may hide more.
    while (filled == out.size() && !out.empty()) {
        out.resize(filled + ZSTD_DStreamOutSize());
        ZSTD_outBuffer to{out.data() + filled, out.size() - filled, 0};
        const std::size_t code = ZSTD_decompressStream(static_cast<ZSTD_DStream*>(stream), &to, &in);
        if (ZSTD_isError(code) != 0 || to.pos == 0) {
            break;
        }
        filled += to.pos;
    }
    out.resize(filled);
}

void PerfFile::take_record(std::span<const std::byte> record) {
    const auto header = load<perf_event_header>(record.data());
    const auto body = record.subspan(kHeaderSize);
    switch (header.type) {
        case kRecordHeaderAttr: {
            if (body.size() < PERF_ATTR_SIZE_VER0) {
                damaged(record.data(), "corrupt records", "an event's attributes");
                return;
            }
            const auto size = load<std::uint32_t>(body.data() + 4);
            const std::size_t used = size == 0 ? PERF_ATTR_SIZE_VER0 : size;
            if (used > body.size()) {
                damaged(record.data(), "corrupt records", "an event's attributes inside its record");
                return;
            }
            Event event;
            read_attr(body, used, event);
            for (std::size_t at = used; at + 8 <= body.size(); at += 8) {
                event.ids.push_back(load<std::uint64_t>(body.data() + at));
            }
            events_.push_back(std::move(event));
            finish_events();
            return;
        }
        case kRecordHeaderFeature:
            if (body.size() >= 8) {
                read_feature(static_cast<std::uint32_t>(load<std::uint64_t>(body.data())), body.subspan(8));
            }
            return;
        case kRecordBuildId:
            read_build_ids(record);
            return;
        case kRecordEventUpdate: {
            constexpr std::uint64_t name = 2;  // PERF_EVENT_UPDATE__NAME
            if (body.size() > 16 && load<std::uint64_t>(body.data()) == name) {
                const auto id = load<std::uint64_t>(body.data() + 8);
                if (const auto found = event_by_id_.find(id); found != event_by_id_.end()) {
                    events_[found->second].name = clean_text(ByteReader(body.subspan(16)).c_string());
                }
            }
            return;
        }
        default:
            break;
    }
    if (header.type < kRecordHeaderAttr) {
        records_.push_back({time_of(record), record.data()});
    }
}

void PerfFile::read_feature(std::uint32_t feature, std::span<const std::byte> bytes) {
    for (const auto& [known, name] : kFeatureNames) {
        if (known == feature) {
            header_[name] = clean_text(ByteReader(bytes).counted_string());
            return;
        }
    }
    switch (feature) {
        case kFeatureTracingData:
            read_tracing_data(bytes);
            break;
        case kFeatureBuildId:
            read_build_ids(bytes);
            break;
        case kFeatureEventDescription:
            read_event_description(bytes);
            break;
        case kFeatureCpus:
            if (bytes.size() >= 8) {
                header_["cpus_online"] = std::to_string(load<std::uint32_t>(bytes.data()));
            }
            break;
        case kFeatureCommandLine: {
            ByteReader in(bytes);
            std::string line;
            for (auto count = in.number<std::uint32_t>(); count > 0 && in.left() > 0; --count) {
                line += (line.empty() ? "" : " ") + in.counted_string();
            }
            header_["command_line"] = clean_text(line);
            break;
        }
        default:
            break;
    }
}

void PerfFile::read_event_description(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    const auto count = in.number<std::uint32_t>();
    const auto attr_size = in.number<std::uint32_t>();
    for (std::uint32_t i = 0; i < count && in.left() > attr_size; ++i) {
        in.skip(attr_size);
        const auto ids = in.number<std::uint32_t>();
        const std::string name = in.counted_string();
        if (i < events_.size()) {
            events_[i].name = clean_text(name);
        }
        in.skip(std::size_t{8} * ids);
    }
}

void PerfFile::read_build_ids(std::span<const std::byte> bytes) {
    constexpr std::size_t id_at = kHeaderSize + 4;
    constexpr std::size_t name_at = id_at + 24;
    constexpr std::uint16_t has_size = 1U << 15U;  // PERF_RECORD_MISC_BUILD_ID_SIZE
    while (bytes.size() >= name_at) {
        const auto header = load<perf_event_header>(bytes.data());
        if (header.size < name_at || header.size > bytes.size()) {
            damaged(bytes.data(), "corrupt build ids", "a build-id record inside its section");
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
        build_ids_.push_back(std::move(found));
        bytes = bytes.subspan(header.size);
    }
}

void PerfFile::read_tracing_data(std::span<const std::byte> bytes) {
    TracingData data = parse_tracing_data(bytes, path_, static_cast<std::uint64_t>(bytes.data() - whole_.data()));
    for (auto& format : data.formats) {
        const std::uint64_t id = format.id;
        formats_.insert_or_assign(id, std::move(format));
    }
    if (!data.kallsyms.empty()) {
        kallsyms_ = data.kallsyms;
    }
    if (data.damaged) {
        damaged(bytes.data(), "corrupt tracing data", data.expected);
    }
}

void PerfFile::name_events() {
    constexpr std::array software = {"cpu-clock",        "task-clock",   "page-faults",  "context-switches",
                                     "cpu-migrations",   "minor-faults", "major-faults", "alignment-faults",
                                     "emulation-faults", "dummy",        "bpf-output",   "cgroup-switches"};
    constexpr std::array hardware = {
        "cycles",        "instructions", "cache-references",        "cache-misses",           "branches",
        "branch-misses", "bus-cycles",   "stalled-cycles-frontend", "stalled-cycles-backend", "ref-cycles"};
    for (Event& event : events_) {
        if (!event.name.empty()) {
            continue;
        }
        const std::uint64_t config = event.attr.config;
        if (event.attr.type == PERF_TYPE_SOFTWARE && config < software.size()) {
            event.name = software[config];
        } else if (event.attr.type == PERF_TYPE_HARDWARE && config < hardware.size()) {
            event.name = hardware[config];
        } else if (const auto format = formats_.find(config);
                   event.attr.type == PERF_TYPE_TRACEPOINT && format != formats_.end()) {
            event.name = format->second.system + ":" + format->second.name;
        } else {
            event.name = "type " + std::to_string(event.attr.type) + " config " + std::to_string(config);
        }
    }
}

std::size_t PerfFile::event_of(std::uint64_t id, const Record* record) const {
    if (events_.size() == 1) {
        return 0;
    }
    if (const auto found = event_by_id_.find(id); found != event_by_id_.end()) {
        return found->second;
    }
    if (on_damage_ == OnDamage::strict) {
        throw FormatError(path_, offset_of(*record), "the id of a recorded event, not " + std::to_string(id));
    }
    return 0;
}

std::optional<Sample> PerfFile::sample(const Record& record) const {
    if (events_.empty()) {
        return std::nullopt;
    }
    ByteReader in(record.body());
    const std::uint64_t shared = sample_type_;
    Sample out;
    std::uint64_t id = 0;
    if (identifier_) {
        id = in.number<std::uint64_t>();
        out.event = event_of(id, &record);
    }
    const perf_event_attr& attr = events_[out.event].attr;
    const std::uint64_t type = identifier_ ? attr.sample_type : shared;
    const auto has = [type](std::uint64_t bit) { return (type & bit) != 0; };
    if (has(PERF_SAMPLE_IP)) {
        out.ip = in.number<std::uint64_t>();
    }
    if (has(PERF_SAMPLE_TID)) {
        out.pid = in.number<std::int32_t>();
        out.tid = in.number<std::int32_t>();
    }
    if (has(PERF_SAMPLE_TIME)) {
        out.time_ns = in.number<std::uint64_t>();
    }
    if (has(PERF_SAMPLE_ADDR)) {
        out.address = in.number<std::uint64_t>();
    }
    if (has(PERF_SAMPLE_ID)) {
        id = in.number<std::uint64_t>();
    }
    if (!identifier_) {
        out.event = event_of(id, &record);
    }
    if (has(PERF_SAMPLE_STREAM_ID)) {
        in.skip(8);
    }
    if (has(PERF_SAMPLE_CPU)) {
        out.cpu = in.number<std::uint32_t>();
        in.skip(4);
    }
    if (has(PERF_SAMPLE_PERIOD)) {
        out.period = in.number<std::uint64_t>();
    } else if (attr.freq == 0) {
        out.period = attr.sample_period;
    }
    if (has(PERF_SAMPLE_READ)) {
        const std::uint64_t format = attr.read_format;
        const std::size_t times = static_cast<std::size_t>((format & PERF_FORMAT_TOTAL_TIME_ENABLED) != 0) +
                                  static_cast<std::size_t>((format & PERF_FORMAT_TOTAL_TIME_RUNNING) != 0);
        const std::size_t each = 1U + static_cast<std::size_t>((format & PERF_FORMAT_ID) != 0) +
                                 static_cast<std::size_t>((format & (1U << 4U)) != 0);  // PERF_FORMAT_LOST
        if ((format & PERF_FORMAT_GROUP) != 0) {
            const auto count = in.number<std::uint64_t>();
            in.skip(8 * times);
            in.skip_many(count, 8 * each);
        } else {
            in.skip(8 * (times + each));
        }
    }
    if (has(PERF_SAMPLE_CALLCHAIN)) {
        const auto count = in.number<std::uint64_t>();
        out.chain = in.take_many(count, 8);
    }
    if (has(PERF_SAMPLE_RAW)) {
        const auto size = in.number<std::uint32_t>();
        out.raw = in.take(size);
    }
    if (has(PERF_SAMPLE_BRANCH_STACK)) {
        const auto count = in.number<std::uint64_t>();
        constexpr std::uint64_t hw_index = 1U << 17U;  // PERF_SAMPLE_BRANCH_HW_INDEX
        in.skip((attr.branch_sample_type & hw_index) != 0 ? 8 : 0);
        in.skip_many(count, 24);
    }
    if (has(PERF_SAMPLE_REGS_USER)) {
        out.user_abi = in.number<std::uint64_t>();
        if (out.user_abi != PERF_SAMPLE_REGS_ABI_NONE) {
            out.user_registers = in.take(8U * static_cast<std::size_t>(std::popcount(attr.sample_regs_user)));
        }
    }
    if (has(PERF_SAMPLE_STACK_USER)) {
        const auto size = in.number<std::uint64_t>();
        if (size != 0) {
            const auto stack = in.take_many(size, 1);
            const auto used = in.number<std::uint64_t>();
            out.user_stack = stack.first(std::min<std::size_t>(stack.size(), used));
        }
    }
    if (in.overrun()) {
        if (on_damage_ == OnDamage::strict) {
            throw FormatError(path_, offset_of(record), "a sample as long as its event's sample_type says");
        }
        return std::nullopt;
    }
    return out;
}

}  // namespace sampleblk::profile
