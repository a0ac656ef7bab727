// SPDX-License-Identifier: MIT
#include "sampleblk/profile/from_trace.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "perf/perf_parts.hpp"
#include "perf/record_maker.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/trace/walk.hpp"

namespace sampleblk::profile {

namespace {

constexpr std::uint64_t kSampleType = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU |
                                      PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_RAW;
constexpr std::size_t kDeepest = 512;

// An event on its way, until it is known whether a stack follows.
struct Waiting {
    std::uint32_t id = 0;
    std::int32_t tid = 0;
    std::uint64_t time = 0;
    std::vector<std::byte> raw;
    std::vector<std::uint64_t> stack;
    bool has_stack = false;
};

class Collector final : public trace::EventSink {
  public:
    explicit Collector(const trace::TraceFile& file) : file_(file) {
        for (const trace::EventFormat& format : file.formats()) {
            if (format.name == "kernel_stack" && format.system == "ftrace") {
                stack_id_ = format.id;
                caller_ = format.find("caller");
                size_ = format.find("size");
            }
            if (format.system == "sched" && (format.name == "sched_waking" || format.name == "sched_wakeup")) {
                wakeups_.insert(format.id);
            }
            if (pid_ == nullptr) {
                pid_ = format.find("common_pid");
            }
        }
    }

    void record(const trace::Event& event) override {
        if (event.size < 2) {
            return;
        }
        const std::uint32_t id = load<std::uint16_t>(event.data);
        auto& waiting = waiting_[{event.place.buffer, event.place.cpu}];
        if (id == stack_id_ && stack_id_ != 0) {
            take_stack(event, waiting);
            return;
        }
        // Events of an interrupt come between one and its stack, with stacks of their own.
        constexpr std::size_t nested = 4;
        if (waiting.size() == nested) {
            finish(event.place.cpu, waiting.front());
            waiting.erase(waiting.begin());
        }
        // An event that two buffers hold would count twice, and end each switch twice.
        const auto [first, fresh] = buffers_.try_emplace(id, event.place.buffer);
        if (!fresh && first->second != event.place.buffer) {
            throw InputError("an event that several buffers of " + file_.path() + " hold", {}, 0,
                             "one buffer: write it alone with export_trace_dat(buffer=…)");
        }
        Waiting one;
        one.id = id;
        one.tid = pid_of(event);
        one.time = event.time;
        one.raw.assign(event.data, event.data + event.size);
        waiting.push_back(std::move(one));
    }
    void missed(trace::Place /*place*/, std::uint64_t time, std::uint64_t count) override {
        gaps_.emplace_back(time, std::max<std::uint64_t>(count, 1));
    }
    void flush() override {}

    void end() {
        for (auto& [place, waiting] : waiting_) {
            for (const Waiting& one : waiting) {
                finish(place.second, one);
            }
            waiting.clear();
        }
    }

    [[nodiscard]] std::unique_ptr<PerfContents> take() {
        auto out = std::make_unique<PerfContents>();
        out->path = file_.path();
        for (const std::uint32_t id : used_) {
            Event& event = out->events.emplace_back();
            event.attr.size = sizeof(event.attr);
            event.attr.type = PERF_TYPE_TRACEPOINT;
            event.attr.config = id;
            event.attr.sample_period = 1;
            event.attr.sample_type = kSampleType;
            event.ids.push_back(id);
            if (const trace::EventFormat* format = file_.find_event(id); format != nullptr) {
                out->formats.emplace(id, *format).first->second.text = {};  // it lies in the trace.dat
            }
        }
        finish_events(*out);
        name_events(*out);
        out->kallsyms = file_.texts().kallsyms;
        const auto add = [&](std::uint64_t time, std::vector<std::byte> record) {
            out->records.push_back({time, record.data()});
            out->unpacked.push_back(std::move(record));
        };
        for (const auto& [tid, comm] : file_.commands()) {
            add(0, RecordMaker(PERF_RECORD_COMM, 0).put(tid).put(tid).put_text(comm).finish(0));
        }
        for (const auto& [time, lost] : gaps_) {
            add(time, RecordMaker(PERF_RECORD_LOST, 0).put(std::uint64_t{0}).put(lost).finish(0));
        }
        for (auto& [time, record] : samples_) {
            add(time, std::move(record));
        }
        std::ranges::stable_sort(out->records, {}, &Record::time_ns);
        return out;
    }
    [[nodiscard]] bool any_stack() const noexcept { return any_stack_; }

  private:
    [[nodiscard]] std::int32_t pid_of(const trace::Event& event) const noexcept {
        const bool inside = pid_ != nullptr && pid_->size == 4 && event.size >= 4 && pid_->offset <= event.size - 4;
        return inside ? load<std::int32_t>(event.data + pid_->offset) : 0;
    }

    void take_stack(const trace::Event& event, std::vector<Waiting>& waiting) {
        std::size_t place = waiting.size();
        while (place > 0 && (waiting[place - 1].has_stack || waiting[place - 1].tid != pid_of(event))) {
            --place;
        }
        if (place == 0 || caller_ == nullptr) {
            return;
        }
        Waiting& owner = waiting[place - 1];
        std::size_t count = kDeepest;
        if (size_ != nullptr && size_->size == 4 && event.size >= 4 && size_->offset <= event.size - 4) {
            count = std::min<std::size_t>(count, load<std::uint32_t>(event.data + size_->offset));
        }
        for (std::size_t at = caller_->offset; at + 8 <= event.size && count > 0; at += 8, --count) {
            const auto address = load<std::uint64_t>(event.data + at);
            if (address == ~std::uint64_t{0}) {
                break;  // how older kernels end it
            }
            owner.stack.push_back(address);
        }
        owner.has_stack = true;
        any_stack_ = true;
        // What came after it and waits still has none.
        for (std::size_t i = place; i < waiting.size(); ++i) {
            finish(event.place.cpu, waiting[i]);
        }
        waiting.resize(place);
        finish(event.place.cpu, waiting.back());
        waiting.pop_back();
    }

    void finish(std::uint32_t cpu, const Waiting& one) {
        constexpr std::size_t largest = 60000;  // a record's size has 16 bits
        if ((!one.has_stack && !wakeups_.contains(one.id)) || one.raw.size() > largest - 8 * (kDeepest + 16)) {
            return;
        }
        used_.insert(one.id);
        RecordMaker record(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_KERNEL);
        record.put(std::uint64_t{one.id}).put(one.tid).put(one.tid).put(one.time).put(cpu).put(std::uint32_t{0});
        record.put(std::uint64_t{one.stack.size() + (one.stack.empty() ? 0 : 1)});
        if (!one.stack.empty()) {
            record.put(static_cast<std::uint64_t>(PERF_CONTEXT_KERNEL));
            record.put_bytes(one.stack.data(), one.stack.size() * 8);
        }
        // With its own size, a multiple of 8.
        const std::size_t room = (one.raw.size() + 4 + 7) / 8 * 8 - 4;
        record.put(static_cast<std::uint32_t>(room)).put_bytes(one.raw.data(), one.raw.size());
        samples_.emplace_back(one.time, record.finish(0));
    }

    const trace::TraceFile& file_;
    std::uint32_t stack_id_ = 0;
    const trace::Field* caller_ = nullptr;
    const trace::Field* size_ = nullptr;
    const trace::Field* pid_ = nullptr;
    std::set<std::uint32_t> wakeups_;
    std::map<std::pair<std::uint16_t, std::uint16_t>, std::vector<Waiting>> waiting_;  // by buffer and CPU
    std::map<std::uint32_t, std::uint16_t> buffers_;                                   // of each event's id
    std::set<std::uint32_t> used_;
    std::vector<std::pair<std::uint64_t, std::vector<std::byte>>> samples_;  // by their times
    std::vector<std::pair<std::uint64_t, std::uint64_t>> gaps_;              // until when, and how many
    bool any_stack_ = false;
};

}  // namespace

std::shared_ptr<const PerfFile> perf_file_of_trace(const trace::TraceFile& file) {
    if (file.big_endian() || file.long_size() != 8) {
        throw UnsupportedError("stacks of a trace.dat of another machine",
                               file.path() + " is not of 64 bits, x86's order", "read it with trace-cmd report");
    }
    file.require_ns(std::nullopt, "stacks of a trace.dat");
    Collector collector(file);
    (void)trace::walk(file, {}, collector);
    collector.end();
    if (!collector.any_stack()) {
        throw UnsupportedError("stacks of a trace.dat", file.path() + " has no event with a kernel stack",
                               "record them: trace-cmd record -T, or ftrace's option stacktrace");
    }
    return std::make_shared<const PerfFile>(collector.take());
}

std::shared_ptr<const PerfFile> open_recording(const std::string& path, OnDamage damage) {
    if (std::filesystem::is_directory(path)) {
        return std::make_shared<const PerfFile>(path, damage);
    }
    constexpr std::string_view trace_magic{"\x17\x08\x44tracing", 10};
    std::array<std::byte, trace_magic.size()> start{};
    const std::size_t got = read_full(open_file(path, O_RDONLY).get(), start, path);
    if (got == start.size() && std::memcmp(start.data(), trace_magic.data(), start.size()) == 0) {
        return perf_file_of_trace(
            trace::TraceFile(path, damage == OnDamage::skip ? trace::OnError::skip : trace::OnError::strict));
    }
    return std::make_shared<const PerfFile>(path, damage);
}

}  // namespace sampleblk::profile
