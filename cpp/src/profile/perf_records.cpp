// SPDX-License-Identifier: MIT
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "byte_reader.hpp"
#include "inflater.hpp"
#include "markup.hpp"
#include "perf_parts.hpp"
#include "sampleblk/interrupt.hpp"

namespace sampleblk::profile {

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
    file_.inflated.push_back(std::move(out));
    const std::span<const std::byte> bytes = file_.inflated.back();
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
                    file_.events[found->second].name = clean_text(ByteReader(body.subspan(16)).c_string());
                }
            }
            return;
        }
        default:
            break;
    }
    if (header.type < kRecordHeaderAttr) {
        file_.records.push_back({time_of(file_.layout, record), record.data()});
    }
}

}  // namespace

void read_records(PerfContents& file, std::span<const std::byte> data) {
    RecordReader(file).read(data);
}

}  // namespace sampleblk::profile
