// SPDX-License-Identifier: MIT
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <initializer_list>
#include <string_view>

#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/text.hpp"
#include "sampleblk/trace/protobuf.hpp"
#include "sampleblk/trace/timeline.hpp"

namespace sampleblk::trace {

namespace {

// Text or bytes to a file, in large writes.
class Output {
  public:
    explicit Output(const std::string& path) : file_(path) {}

    void put(std::string_view bytes) {
        buffer_ += bytes;
        if (buffer_.size() >= kFull) {
            flush();
        }
    }
    void flush() {
        check_interrupt();
        write_full(file_.get(), buffer_, file_.path());
        buffer_.clear();
    }
    void finish() {
        flush();
        file_.finish();
    }

  private:
    static constexpr std::size_t kFull = std::size_t{1} << 20;

    WholeFile file_;
    std::string buffer_;
};

using protobuf::bytes;
using protobuf::number;

// Field numbers of the protos.
enum : std::uint8_t {
    kTracePacket = 1,
    kPacketTimestamp = 8,
    kPacketSequence = 10,
    kPacketTrackEvent = 11,
    kPacketTrackDescriptor = 60,
    kDescriptorUuid = 1,
    kDescriptorName = 2,
    kDescriptorParent = 5,
    kDescriptorCounter = 8,
    kEventType = 9,
    kEventTrack = 11,
    kEventName = 23,
    kEventCounter = 30,
};
enum : std::uint8_t { kBegin = 1, kEnd = 2, kCounter = 4 };
constexpr std::uint64_t kSequence = 1;
constexpr std::uint64_t kFirstGroup = std::uint64_t{1} << 62;

class Perfetto {
  public:
    explicit Perfetto(const std::string& path) : out_(path) {}

    void write(const Timeline& timeline) {
        std::map<std::string, std::uint64_t> groups;
        std::uint64_t uuid = 0;
        for (const Track& track : timeline.tracks) {
            const auto [group, fresh] = groups.try_emplace(track.group, kFirstGroup + groups.size());
            if (fresh) {
                descriptor(group->second, track.group, 0, false);
            }
            descriptor(++uuid, track.name, group->second, !track.counter.empty());
            slices(track, uuid);
            for (const auto& [time, value] : track.counter) {
                event(kCounter, uuid);
                number(event_, kEventCounter, static_cast<std::uint64_t>(value));
                packet(time, kPacketTrackEvent, event_);
            }
        }
        out_.finish();
    }

  private:
    void descriptor(std::uint64_t uuid, const std::string& name, std::uint64_t parent, bool counter) {
        event_.clear();
        number(event_, kDescriptorUuid, uuid);
        bytes(event_, kDescriptorName, name);
        if (parent != 0) {
            number(event_, kDescriptorParent, parent);
        }
        if (counter) {
            bytes(event_, kDescriptorCounter, {});
        }
        packet(0, kPacketTrackDescriptor, event_);
    }

    // Begins and ends nest: what a slice holds ends no later than it does.
    void slices(const Track& track, std::uint64_t uuid) {
        std::vector<std::uint64_t> open;
        const auto close = [&] {
            event(kEnd, uuid);
            packet(open.back(), kPacketTrackEvent, event_);
            open.pop_back();
        };
        for (const Slice& slice : track.slices) {
            while (!open.empty() && open.back() <= slice.start) {
                close();
            }
            event(kBegin, uuid);
            bytes(event_, kEventName, track.names->at(slice.name));
            packet(slice.start, kPacketTrackEvent, event_);
            const std::uint64_t end = slice.start + slice.duration;
            open.push_back(open.empty() ? end : std::min(end, open.back()));
        }
        while (!open.empty()) {
            close();
        }
    }

    void event(std::uint32_t type, std::uint64_t track) {
        event_.clear();
        number(event_, kEventType, type);
        number(event_, kEventTrack, track);
    }

    void packet(std::uint64_t time, std::uint32_t tag, std::string_view body) {
        packet_.clear();
        if (tag == kPacketTrackEvent) {
            number(packet_, kPacketTimestamp, time);
        }
        bytes(packet_, tag, body);
        number(packet_, kPacketSequence, kSequence);
        framed_.clear();
        bytes(framed_, kTracePacket, packet_);
        out_.put(framed_);
    }

    Output out_;
    std::string event_;
    std::string packet_;
    std::string framed_;
};

std::string joined(std::initializer_list<std::string_view> parts) {
    std::string out;
    for (const std::string_view part : parts) {
        out += part;
    }
    return out;
}

// Microseconds with three digits after the point: no nanosecond gets lost in a double, up to 2^53 of them.
std::string microseconds(std::uint64_t nanoseconds) {
    std::string fraction = std::to_string(nanoseconds % 1000);
    return std::to_string(nanoseconds / 1000) + "." + std::string(3 - fraction.size(), '0') + fraction;
}

// Whole seconds that all times go without: of a time of day a reader's doubles have quarters of a microsecond.
std::uint64_t seconds_before(const Timeline& timeline) {
    constexpr std::uint64_t second = 1'000'000'000;
    constexpr std::uint64_t exact = std::uint64_t{1} << 53U;
    std::uint64_t first = UINT64_MAX;
    std::uint64_t last = 0;
    const auto see = [&](std::uint64_t time) {
        first = std::min(first, time);
        last = std::max(last, time);
    };
    for (const Track& track : timeline.tracks) {
        for (const Slice& slice : track.slices) {
            see(slice.start);
        }
        for (const auto& [time, value] : track.counter) {
            see(time);
        }
    }
    return last < exact ? 0 : first / second * second;
}

}  // namespace

void write_perfetto(const Timeline& timeline, const std::string& path) {
    Perfetto(path).write(timeline);
}

void write_chrome(const Timeline& timeline, const std::string& path) {
    Output out(path);
    out.put("{\"traceEvents\": [");
    std::string_view comma = "\n";
    const auto line = [&](const std::string& text) {
        out.put(comma);
        out.put(text);
        comma = ",\n";
    };
    const std::uint64_t before = seconds_before(timeline);
    std::map<std::string, std::size_t> groups;
    std::size_t thread = 0;
    for (const Track& track : timeline.tracks) {
        const auto [group, fresh] = groups.try_emplace(track.group, groups.size() + 1);
        const std::string pid = joined({R"("pid": )", std::to_string(group->second)});
        if (fresh) {
            line(joined({R"({"ph": "M", "name": "process_name", )", pid, R"(, "args": {"name": )",
                         json_text(track.group), "}}"}));
        }
        const std::string place = joined({pid, R"(, "tid": )", std::to_string(++thread)});
        const std::string name = json_text(track.name);
        line(joined({R"({"ph": "M", "name": "thread_name", )", place, R"(, "args": {"name": )", name, "}}"}));
        for (const Slice& slice : track.slices) {
            line(joined({R"({"ph": "X", "name": )", json_text(track.names->at(slice.name)), R"(, "ts": )",
                         microseconds(slice.start - before), R"(, "dur": )", microseconds(slice.duration), ", ", place,
                         "}"}));
        }
        for (const auto& [time, value] : track.counter) {
            line(joined({R"({"ph": "C", "name": )", name, R"(, "ts": )", microseconds(time - before), ", ", place,
                         R"(, "args": {"depth": )", std::to_string(value), "}}"}));
        }
    }
    out.put("\n], \"displayTimeUnit\": \"ns\", \"otherData\": {");
    comma = "";
    auto about = timeline.metadata;
    if (before != 0) {
        about["subtracted_ns"] = std::to_string(before);
    }
    for (const auto& [name, value] : about) {
        line(json_text(name) + ": " + json_text(value));
        comma = ", ";
    }
    out.put("}}\n");
    out.finish();
}

}  // namespace sampleblk::trace
