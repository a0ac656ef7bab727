// SPDX-License-Identifier: MIT
// What the sample_type of a file's events says of its records (perf_event_open(2)).
#include <algorithm>
#include <bit>
#include <string>

#include "byte_reader.hpp"
#include "perf_parts.hpp"
#include "sampleblk/error.hpp"

namespace sampleblk::profile {

namespace {

// Each of these, where asked for, is one u64 at the start of a sample, before its time.
constexpr std::uint64_t kBeforeTime = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID;
// And these follow the time in the trailer of other records.
constexpr std::uint64_t kTrailerAfterTime =
    PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER;

// The counters that PERF_SAMPLE_READ adds; a profile has no use for them.
void skip_counts(ByteReader& in, std::uint64_t format) {
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

}  // namespace

// The fields by which any record is told apart must be the same in all events; perf itself insists on it.
void finish_events(PerfContents& file) {
    if (file.events.empty()) {
        return;
    }
    SampleLayout& layout = file.layout;
    const perf_event_attr& first = file.events.front().attr;
    layout.type = first.sample_type;
    layout.id_all = first.sample_id_all != 0;
    layout.identifier = (layout.type & PERF_SAMPLE_IDENTIFIER) != 0;
    for (std::size_t i = 0; i < file.events.size(); ++i) {
        const std::uint64_t own = file.events[i].attr.sample_type;
        constexpr std::uint64_t shared = kBeforeTime | PERF_SAMPLE_TIME | kTrailerAfterTime;
        const bool same = layout.identifier ? ((own ^ layout.type) & shared) == 0 : own == layout.type;
        if (!same) {
            throw UnsupportedError("events with different sample layouts",
                                   file.path + " has them without PERF_SAMPLE_IDENTIFIER", "record them apart");
        }
        for (const std::uint64_t id : file.events[i].ids) {
            file.event_by_id[id] = i;
        }
    }
    layout.time_at = 8U * static_cast<std::size_t>(std::popcount(layout.type & kBeforeTime));
    layout.time_from_end = 8U * (1U + static_cast<std::size_t>(std::popcount(layout.type & kTrailerAfterTime)));
}

std::uint64_t time_of(const SampleLayout& layout, std::span<const std::byte> record) {
    if ((layout.type & PERF_SAMPLE_TIME) == 0) {
        return 0;
    }
    const auto type = load<perf_event_header>(record.data()).type;
    if (type == PERF_RECORD_SAMPLE) {
        return record.size() >= kHeaderSize + layout.time_at + 8
                   ? load<std::uint64_t>(record.data() + kHeaderSize + layout.time_at)
                   : 0;
    }
    // What perf adds has no trailer.
    if (!layout.id_all || type >= kRecordHeaderAttr || record.size() < kHeaderSize + layout.time_from_end) {
        return 0;
    }
    return load<std::uint64_t>(record.data() + record.size() - layout.time_from_end);
}

std::size_t PerfFile::event_of(std::uint64_t id, const Record& record) const {
    if (contents_.events.size() == 1) {
        return 0;
    }
    if (const auto found = contents_.event_by_id.find(id); found != contents_.event_by_id.end()) {
        return found->second;
    }
    if (contents_.on_damage == OnDamage::strict) {
        throw FormatError(contents_.path, offset_of(record), "the id of a recorded event, not " + std::to_string(id));
    }
    return 0;
}

std::optional<Sample> PerfFile::sample(const Record& record) const {
    if (contents_.events.empty()) {
        return std::nullopt;
    }
    ByteReader in(record.body());
    const SampleLayout& layout = contents_.layout;
    Sample out;
    std::uint64_t id = 0;
    if (layout.identifier) {
        id = in.number<std::uint64_t>();
        out.event = event_of(id, record);
    }
    // Without PERF_SAMPLE_IDENTIFIER it is the same in all events (finish_events()).
    const std::uint64_t type = layout.identifier ? contents_.events[out.event].attr.sample_type : layout.type;
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
    if (!layout.identifier) {
        out.event = event_of(id, record);
    }
    // Only now: what else an event chose for itself decides on the fields behind its id alone.
    const perf_event_attr& attr = contents_.events[out.event].attr;
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
        skip_counts(in, attr.read_format);
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
        if (contents_.on_damage == OnDamage::strict) {
            throw FormatError(contents_.path, offset_of(record), "a sample as long as its event's sample_type says");
        }
        return std::nullopt;
    }
    return out;
}

}  // namespace sampleblk::profile
