// SPDX-License-Identifier: MIT
// The records of a perf.data, and what the sample_type of its events says of them (perf_event_open(2)).
#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perf/byte_reader.hpp"
#include "perf/inflater.hpp"
#include "perf/perf_parts.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/text.hpp"
#include "symbols/elf_symbols.hpp"

namespace sampleblk::profile {

namespace {

// Each of these, where asked for, is one u64 at the start of a sample, before its time.
constexpr std::uint64_t kBeforeTime = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID;
// And these follow the time in the trailer of other records.
constexpr std::uint64_t kTrailerAfterTime =
    PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER;

// The counters that PERF_SAMPLE_READ adds.
void read_counts(ByteReader& in, std::uint64_t format, Sample& out) {
    const std::size_t times = static_cast<std::size_t>((format & PERF_FORMAT_TOTAL_TIME_ENABLED) != 0) +
                              static_cast<std::size_t>((format & PERF_FORMAT_TOTAL_TIME_RUNNING) != 0);
    const std::size_t each = 1U + static_cast<std::size_t>((format & PERF_FORMAT_ID) != 0) +
                             static_cast<std::size_t>((format & (1U << 4U)) != 0);  // PERF_FORMAT_LOST
    if ((format & PERF_FORMAT_GROUP) != 0) {
        const auto count = in.number<std::uint64_t>();
        in.skip(8 * times);
        out.counts = in.take_many(count, 8 * each);
        out.count_size = 8 * each;
    } else {
        in.skip(8 * (times + each));
    }
    if ((format & PERF_FORMAT_ID) == 0) {
        out.counts = {};  // whose they are is not known
    }
}

SampleLayout layout_of(const perf_event_attr& attr) {
    SampleLayout layout;
    layout.type = attr.sample_type;
    layout.time_at = 8U * static_cast<std::size_t>(std::popcount(layout.type & kBeforeTime));
    layout.time_from_end = 8U * (1U + static_cast<std::size_t>(std::popcount(layout.type & kTrailerAfterTime)));
    return layout;
}

}  // namespace

std::string mapped_build_id(std::uint16_t misc, std::span<const std::byte> identity) {
    if ((misc & PERF_RECORD_MISC_MMAP_BUILD_ID) == 0 || identity.size() != 24) {
        return {};
    }
    return build_id_text(identity.subspan(4, std::min<std::size_t>(20, std::to_integer<std::size_t>(identity[0]))));
}

// Records are told apart by their event's id where each sample has it in front and each other record at its end; then
// events may ask for different fields, as perf does for a trace point beside another event. Else all are laid out
// alike.
void finish_events(PerfContents& file) {
    if (file.events.empty()) {
        return;
    }
    const perf_event_attr& first = file.events.front().attr;
    file.id_all = first.sample_id_all != 0;
    file.identifier = (first.sample_type & PERF_SAMPLE_IDENTIFIER) != 0;
    file.one_layout = true;
    file.layouts.clear();
    for (std::size_t i = 0; i < file.events.size(); ++i) {
        const perf_event_attr& own = file.events[i].attr;
        file.layouts.push_back(layout_of(own));
        file.one_layout = file.one_layout && file.layouts.back() == file.layouts.front();
        if (((own.sample_type & PERF_SAMPLE_IDENTIFIER) != 0) != file.identifier ||
            (!file.identifier && own.sample_type != first.sample_type) || own.sample_id_all != first.sample_id_all) {
            throw UnsupportedError("events with different sample layouts",
                                   file.path + " has them without PERF_SAMPLE_IDENTIFIER", "record them apart");
        }
        for (const std::uint64_t id : file.events[i].ids) {
            file.event_by_id[id] = i;
        }
    }
}

std::uint64_t time_of(const PerfContents& file, std::span<const std::byte> record) {
    if (file.layouts.empty()) {
        return 0;
    }
    const auto type = load<perf_event_header>(record.data()).type;
    const bool sample = type == PERF_RECORD_SAMPLE;
    // What perf adds has no trailer.
    if (!sample && (!file.id_all || type >= kRecordHeaderAttr)) {
        return 0;
    }
    const SampleLayout* layout = &file.layouts.front();
    if (!file.one_layout) {
        if (record.size() < kHeaderSize + 8) {
            return 0;
        }
        const auto id = load<std::uint64_t>(sample ? record.data() + kHeaderSize : record.data() + record.size() - 8);
        const auto found = file.event_by_id.find(id);
        if (found == file.event_by_id.end()) {
            return 0;  // perf made it up before it began to record, or it is corrupt
        }
        layout = &file.layouts[found->second];
    }
    if ((layout->type & PERF_SAMPLE_TIME) == 0) {
        return 0;
    }
    if (sample) {
        return record.size() >= kHeaderSize + layout->time_at + 8
                   ? load<std::uint64_t>(record.data() + kHeaderSize + layout->time_at)
                   : 0;
    }
    return record.size() >= kHeaderSize + layout->time_from_end
               ? load<std::uint64_t>(record.data() + record.size() - layout->time_from_end)
               : 0;
}

// nullopt: of which event a record is cannot be known.
std::optional<std::size_t> PerfFile::event_of(std::uint64_t id, const Record& record) const {
    if (contents_->events.size() == 1) {
        return 0;
    }
    if (const auto found = contents_->event_by_id.find(id); found != contents_->event_by_id.end()) {
        return found->second;
    }
    if (contents_->on_damage == OnDamage::strict) {
        throw FormatError(contents_->path, offset_of(record), "the id of a recorded event, not " + std::to_string(id));
    }
    return std::nullopt;
}

std::optional<Sample> PerfFile::sample(const Record& record) const {
    if (contents_->events.empty()) {
        return std::nullopt;
    }
    ByteReader in(record.body());
    Sample out;
    std::uint64_t id = 0;
    if (contents_->identifier) {
        id = in.number<std::uint64_t>();
        const auto event = event_of(id, record);
        if (!event) {
            return std::nullopt;
        }
        out.event = *event;
    }
    // Without PERF_SAMPLE_IDENTIFIER it is the same in all events (finish_events()).
    const std::uint64_t type = contents_->layouts[out.event].type;
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
    if (!contents_->identifier) {
        const auto event = event_of(id, record);
        if (!event) {
            return std::nullopt;
        }
        out.event = *event;
    }
    // Only now: what else an event chose for itself decides on the fields behind its id alone.
    const perf_event_attr& attr = contents_->events[out.event].attr;
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
        read_counts(in, attr.read_format, out);
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
        constexpr std::uint64_t counters = 1U << 19U;  // PERF_SAMPLE_BRANCH_COUNTERS
        in.skip_many((attr.branch_sample_type & counters) != 0 ? count : 0, 8);
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
        if (contents_->on_damage == OnDamage::strict) {
            throw FormatError(contents_->path, offset_of(record), "a sample as long as its event's sample_type says");
        }
        return std::nullopt;
    }
    return out;
}

namespace {

class RecordReader {
  public:
    explicit RecordReader(PerfContents& file) : file_(file) {}

    void read(std::span<const std::byte> data);

  private:
    // Whole records of `bytes`, each to `use` with what follows it; `use` returns how much of that was its own.
    // How many bytes they were.
    template <typename Use>
    std::size_t records_of(std::span<const std::byte> bytes, const Use& use);
    // A record of the file itself; how many bytes of those after it belong to it.
    std::size_t take_outer(std::span<const std::byte> record, std::span<const std::byte> after);
    std::size_t take_with_data(std::span<const std::byte> record, std::span<const std::byte> after);
    void take_compressed(std::span<const std::byte> record);
    void take(std::span<const std::byte> record);

    PerfContents& file_;
    std::optional<Inflater> inflater_;
    std::vector<std::byte> rest_;  // a record's beginning, whose end is in the next compressed one
    std::size_t since_check_ = 0;
};

void RecordReader::read(std::span<const std::byte> data) {
    const std::size_t used = records_of(data, [&](auto record, auto after) { return take_outer(record, after); });
    if (used < data.size()) {
        damaged(file_, data.data() + used, "truncated", "a whole record; the file ends inside one");
    }
    if (!rest_.empty()) {
        damaged(file_, data.data() + data.size() - 1, "truncated",
                "a whole record; the compressed data end inside one");
    }
}

template <typename Use>
std::size_t RecordReader::records_of(std::span<const std::byte> bytes, const Use& use) {
    std::size_t at = 0;
    while (bytes.size() - at >= kHeaderSize) {
        const auto header = load<perf_event_header>(bytes.data() + at);
        if (header.size < kHeaderSize) {
            damaged(file_, bytes.data() + at, "corrupt records", "a record of at least 8 bytes");
            return bytes.size();
        }
        if (header.size > bytes.size() - at) {
            break;
        }
        if (++since_check_ == 65536) {
            since_check_ = 0;
            check_interrupt();
        }
        at += header.size + use(bytes.subspan(at, header.size), bytes.subspan(at + header.size));
    }
    return at;
}

std::size_t RecordReader::take_outer(std::span<const std::byte> record, std::span<const std::byte> after) {
    switch (load<perf_event_header>(record.data()).type) {
        case kRecordCompressed:
        case kRecordCompressed2:
            take_compressed(record);
            return 0;
        case kRecordTracingData:
        case kRecordAuxtrace:
            return take_with_data(record, after);
        default:
            take(record);
            return 0;
    }
}

// Data of their own follow these two.
std::size_t RecordReader::take_with_data(std::span<const std::byte> record, std::span<const std::byte> after) {
    const bool tracing = load<perf_event_header>(record.data()).type == kRecordTracingData;
    const auto body = record.subspan(kHeaderSize);
    if (tracing && body.size() < 4) {
        damaged(file_, record.data(), "corrupt records", "the size of the tracing data in their record");
        return 0;
    }
    std::uint64_t size = 0;
    if (tracing) {
        size = (load<std::uint32_t>(body.data()) + 7ULL) & ~7ULL;
    } else if (body.size() >= 8) {
        size = load<std::uint64_t>(body.data());
    }
    if (size > after.size()) {
        damaged(file_, record.data(), "truncated", "the data of a tracing-data or aux record");
        return after.size();
    }
    if (tracing) {
        read_tracing_data(file_, after.first(load<std::uint32_t>(body.data())));
    }
    return size;
}

void RecordReader::take_compressed(std::span<const std::byte> record) {
    file_.compressed = true;
    if (!inflater_) {
        inflater_.emplace(file_.path);
    }
    auto packed = record.subspan(kHeaderSize);
    if (load<perf_event_header>(record.data()).type == kRecordCompressed2) {
        const auto size = packed.size() >= 8 ? load<std::uint64_t>(packed.data()) : ~0ULL;
        if (size > packed.size() - std::min<std::size_t>(8, packed.size())) {
            damaged(file_, record.data(), "corrupt records", "a compressed record's size inside it");
            return;
        }
        packed = packed.subspan(8, size);
    }
    std::vector<std::byte> out = std::exchange(rest_, {});
    if (const std::string error = inflater_->add(packed, out); !error.empty()) {
        damaged(file_, packed.data(), "corrupt compressed records", "zstd data; " + error);
    }
    // Kept first: records point into it.
    file_.unpacked.push_back(std::move(out));
    const std::span<const std::byte> bytes = file_.unpacked.back();
    const std::size_t used = records_of(bytes, [&](auto inner, auto /*after*/) {
        take(inner);
        return std::size_t{0};
    });
    rest_.assign(bytes.begin() + static_cast<std::ptrdiff_t>(used), bytes.end());
}

void RecordReader::take(std::span<const std::byte> record) {
    const auto header = load<perf_event_header>(record.data());
    const auto body = record.subspan(kHeaderSize);
    switch (header.type) {
        case kRecordHeaderAttr: {
            if (body.size() < PERF_ATTR_SIZE_VER0) {
                damaged(file_, record.data(), "corrupt records", "an event's attributes");
                return;
            }
            const auto size = load<std::uint32_t>(body.data() + 4);
            const std::size_t used = size == 0 ? PERF_ATTR_SIZE_VER0 : size;
            if (used > body.size()) {
                damaged(file_, record.data(), "corrupt records", "an event's attributes inside its record");
                return;
            }
            Event event;
            event.attr = read_attr(body.first(used));
            for (std::size_t at = used; at + 8 <= body.size(); at += 8) {
                event.ids.push_back(load<std::uint64_t>(body.data() + at));
            }
            file_.events.push_back(std::move(event));
            finish_events(file_);
            return;
        }
        case kRecordHeaderFeature:
            if (body.size() >= 8) {
                read_feature(file_, static_cast<std::uint32_t>(load<std::uint64_t>(body.data())), body.subspan(8));
            }
            return;
        case kRecordBuildId:
            read_build_ids(file_, record);
            return;
        case kRecordEventUpdate: {
            constexpr std::uint64_t name = 2;  // PERF_EVENT_UPDATE__NAME
            if (body.size() > 16 && load<std::uint64_t>(body.data()) == name) {
                const auto id = load<std::uint64_t>(body.data() + 8);
                if (const auto found = file_.event_by_id.find(id); found != file_.event_by_id.end()) {
                    file_.events[found->second].name = plain_text(ByteReader(body.subspan(16)).c_string());
                }
            }
            return;
        }
        default:
            break;
    }
    if (header.type < kRecordHeaderAttr) {
        file_.records.push_back({time_of(file_, record), record.data()});
    }
}

}  // namespace

void read_records(PerfContents& file, std::span<const std::byte> data) {
    RecordReader(file).read(data);
}

}  // namespace sampleblk::profile
