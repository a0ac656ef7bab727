// SPDX-License-Identifier: MIT
#include "sampleblk/trace/decode.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <unordered_set>

#include "events/plan.hpp"
#include "events/sinks.hpp"
#include "sampleblk/signals.hpp"

namespace sampleblk::trace {

namespace {

std::string table_name(const TraceFile& file, const EventFormat& format) {
    const auto same = std::count_if(file.formats().begin(), file.formats().end(),
                                    [&](const EventFormat& other) { return other.name == format.name; });
    return same > 1 ? format.system + ":" + format.name : format.name;
}

bool wanted(const DecodeRequest& request, const EventFormat& format) {
    if (request.events.empty()) {
        return true;
    }
    return std::ranges::any_of(request.events, [&](const std::string& pattern) {
        return pattern.find(':') == std::string::npos ? glob_match(pattern, format.name)
                                                      : glob_match(pattern, format.system + ":" + format.name);
    });
}

// Whether the request names this event itself, so that its table is handed out even without rows.
bool named(const DecodeRequest& request, const EventFormat& format) {
    return std::ranges::any_of(request.events, [&](const std::string& pattern) {
        return pattern == format.name || pattern == format.system + ":" + format.name;
    });
}

class ColumnSink {
  public:
    ColumnSink(const TraceFile& file, const DecodeRequest& request, std::size_t rows,
               const std::function<void(const EventFormat&, Table)>* take)
        : file_(file),
          request_(request),
          rows_(rows),
          take_(take),
          swap_(swap_needed(file.big_endian())),
          pids_(request.pids.begin(), request.pids.end()) {
        std::size_t highest = 0;
        for (const EventFormat& format : file.formats()) {
            highest = std::max<std::size_t>(highest, format.id);
        }
        slots_.resize(highest + 1);
        for (std::size_t i = 0; i < file.formats().size(); ++i) {
            const EventFormat& format = file.formats()[i];
            // Of two formats with one id, the first is the one that the id stands for.
            if (file.find_event(format.id) == &format && wanted(request, format)) {
                slots_[format.id].index = static_cast<std::int32_t>(i);
            }
        }
        plans_.resize(file.formats().size());
    }

    void record(const Event& event) {
        if (event.size < kTypeSize) [[unlikely]] {
            short_record(event, "common_type");
            return;
        }
        const auto id = load<std::uint16_t>(event.data, swap_);
        if (id >= slots_.size()) {
            return;
        }
        Slot& slot = slots_[id];
        EventPlan* plan = slot.plan;
        if (plan == nullptr) [[unlikely]] {
            if (slot.index < 0) {
                return;
            }
            plan = slot.plan = &make(static_cast<std::size_t>(slot.index));
            slot.fixed_size = plan->format().fixed_size;
        }
        if (event.size < slot.fixed_size) [[unlikely]] {
            short_record(event, plan->format().name);
            return;
        }
        if (filters_pids_ && !pid_wanted(event, plan->format())) {
            return;
        }
        plan->add(event);
        if (rows_ != 0 && plan->rows() >= rows_) [[unlikely]] {
            (*take_)(plan->format(), plan->take({}));
        }
    }

    static void missed(Place /*place*/, std::uint64_t /*time*/, std::uint64_t /*count*/) noexcept {}

    void flush() {
        for (const auto& plan : plans_) {
            if (plan) {
                plan->flush();
            }
        }
    }

    // Makes the plans of events that were asked for by name, so that they have a table even when none occurred.
    void make_named() {
        for (std::size_t i = 0; i < plans_.size(); ++i) {
            if (!plans_[i] && named(request_, file_.formats()[i])) {
                (void)make(i);
            }
        }
    }

    [[nodiscard]] std::vector<std::unique_ptr<EventPlan>>& plans() noexcept { return plans_; }

    // Takes over what another sink of the same request has; its events come after ours.
    void append(ColumnSink& later) {
        for (std::size_t i = 0; i < plans_.size(); ++i) {
            if (!plans_[i]) {
                plans_[i] = std::move(later.plans_[i]);
            } else if (later.plans_[i]) {
                plans_[i]->append(*later.plans_[i]);
            }
        }
        damage_.add(later.damage_);
    }

    // Adds what this sink itself left out.
    void finish(WalkStats& stats) {
        stats.damage.add(damage_);
        std::uint64_t bad = 0;
        for (const auto& plan : plans_) {
            bad += plan ? plan->bad_fields() : 0;
        }
        if (bad != 0) {
            stats.damage.records += bad;
            stats.damage.note(std::to_string(bad) + " dynamic fields point outside their record");
            if (file_.on_error() == OnError::strict) {
                throw FormatError(file_.path(), 0,
                                  "__data_loc fields inside their records; " + std::to_string(bad) + " point outside");
            }
        }
    }

  private:
    // What an event id stands for.
    struct Slot {
        EventPlan* plan = nullptr;
        std::uint32_t fixed_size = 0;
        std::int32_t index = -1;  // of the format; -1: not wanted
    };

    EventPlan& make(std::size_t index) {
        const EventFormat& format = file_.formats()[index];
        std::size_t most = rows_;
        if (rows_ == 0) {
            // No record is smaller than its format and its own header.
            std::uint64_t bytes = 0;
            for (const BufferData* buffer : file_.select(request_.selection.buffer)) {
                for (const CpuData& cpu : buffer->cpus) {
                    bytes += cpu.chunks.empty() ? cpu.size : 0;
                    for (const Chunk& chunk : cpu.chunks) {
                        bytes += chunk.size;
                    }
                }
            }
            most = static_cast<std::size_t>(bytes / (std::max<std::uint32_t>(format.fixed_size, 4) + 4)) + 1;
        }
        plans_[index] = std::make_unique<EventPlan>(file_, format, request_, most);
        return *plans_[index];
    }

    void short_record(const Event& event, const std::string& what) {
        const auto error = [&] {
            return FormatError(file_.path(), file_.offset_of(event.data),
                               "a record of " + what + ", longer than " + std::to_string(event.size) + " bytes");
        };
        if (file_.on_error() == OnError::strict) {
            throw error();
        }
        ++damage_.records;
        damage_.note(error().what());
    }

    [[nodiscard]] bool pid_wanted(const Event& event, const EventFormat& format) const {
        // common_pid has been the fourth of the common fields since there were formats.
        for (std::size_t i = 0; i < format.common_fields; ++i) {
            const Field& field = format.fields[i];
            if (field.size == 4 && field.name == "common_pid") {
                return pids_.contains(load<std::int32_t>(event.data + field.offset, swap_));
            }
        }
        return true;
    }

    const TraceFile& file_;
    const DecodeRequest& request_;
    std::size_t rows_;
    const std::function<void(const EventFormat&, Table)>* take_;
    bool swap_;
    std::unordered_set<std::int32_t> pids_;
    bool filters_pids_ = !pids_.empty();
    std::vector<Slot> slots_;
    std::vector<std::unique_ptr<EventPlan>> plans_;
    Damage damage_;
};

// Each field is to be of one of the events at least.
void check_fields(const DecodeRequest& request, const std::vector<const EventFormat*>& formats) {
    for (const std::string& name : request.fields) {
        std::string known;
        bool found = name == "time" || name == "cpu";
        for (const EventFormat* format : formats) {
            for (const Field& field : format->fields) {
                found = found || field.name == name;
                known += (known.empty() ? "" : ", ") + field.name;
            }
        }
        if (!found) {
            throw InputError("no field '" + name + "' of " + request.events.front(), {}, 0, known);
        }
    }
}

void check_known(const TraceFile& file, const DecodeRequest& request) {
    std::vector<const EventFormat*> formats;
    for (const std::string& pattern : request.events) {
        const bool glob = pattern.find_first_of("*?") != std::string::npos;
        const EventFormat* format = glob ? nullptr : file.find_event(pattern);
        if (format != nullptr) {
            formats.push_back(format);
        } else if (!glob) {
            throw InputError("no event '" + pattern + "' in " + file.path(), {}, 0,
                             "one of the " + std::to_string(file.formats().size()) + " events whose formats it holds");
        }
    }
    // Which events a glob means differs from file to file, and so do their fields.
    if (!request.events.empty() && formats.size() == request.events.size()) {
        check_fields(request, formats);
    }
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view name) noexcept {
    std::size_t p = 0;
    std::size_t n = 0;
    std::size_t star = std::string_view::npos;
    std::size_t resume = 0;
    while (n < name.size()) {
        if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] == name[n] && pattern[p] != '*'))) {
            ++p;
            ++n;
        } else if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            resume = n;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            n = ++resume;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*') {
        ++p;
    }
    return p == pattern.size();
}

std::map<std::string, std::string> loss_metadata(const TraceFile& file, const Selection& selection,
                                                 const WalkStats& stats) {
    std::map<std::string, std::string> out;
    std::uint64_t lost = 0;
    std::string by_cpu;
    const auto buffers = file.select(selection.buffer);
    for (const CpuLoss& loss : file.losses()) {
        // A buffer that lost all that it had holds no data, and is of the whole file all the same.
        if (selection.buffer && loss.buffer != *selection.buffer) {
            continue;
        }
        const std::uint64_t here = loss.overrun + loss.commit_overrun + loss.dropped;
        lost += here;
        if (here != 0) {
            by_cpu += (by_cpu.empty() ? "cpu" : ", cpu") + std::to_string(loss.cpu) +
                      (loss.buffer.empty() ? "" : " of " + loss.buffer) + ": " + std::to_string(here);
        }
    }
    // The pages count what was lost between reads; it is in the kernel's own overrun too, where that was kept.
    out["lost_events"] = std::to_string(std::max(lost, stats.missed));
    if (!by_cpu.empty()) {
        out["lost_by_cpu"] = by_cpu;
    }
    if (stats.missed_spots != 0) {
        out["gaps"] = std::to_string(stats.missed_spots);
    }
    if (buffers.size() > 1) {
        std::string names;
        for (const BufferData* buffer : buffers) {
            names += (names.empty() ? "'" : ", '") + buffer->name + "'";
        }
        out["buffers"] = names;
    }
    Damage damage = file.header_damage();
    damage.add(stats.damage);
    if (damage.any()) {
        out["unread"] = std::to_string(damage.bytes) + " bytes, " + std::to_string(damage.pages) + " pages, " +
                        std::to_string(damage.records) + " records";
        out["unread_because"] = damage.because();
    }
    return out;
}

namespace {

// Below this many bytes of pages a second thread costs more than it saves.
constexpr std::uint64_t kParallelBytes = 16U << 20;
constexpr unsigned kMaxThreads = 8;

// Whether no page of a CPU begins before the one before it, as where its clock went back.
bool ascends(const TraceFile& file, const CpuData& cpu, std::uint64_t page_size, bool swap) {
    std::uint64_t before = 0;
    for (std::uint64_t at = 0; at + page_size <= cpu.size; at += page_size) {
        const std::uint64_t time = file.time().apply(load<std::uint64_t>(file.bytes().data() + cpu.offset + at, swap));
        if (time < before) {
            return false;
        }
        before = time;
    }
    return true;
}

// Moments that cut a recording into about equal parts, by the pages of its fullest CPU. Empty where it is to stay
// whole: small or compressed, or read past damage, which must not be counted by both neighbours of a cut; or with a
// clock that went back, of which a moment has more than one place.
std::vector<std::uint64_t> cuts(const TraceFile& file, const DecodeRequest& request) {
    const unsigned processors = std::max(1U, std::thread::hardware_concurrency());
    const unsigned threads = std::min(request.threads == 0 ? processors : request.threads, kMaxThreads);
    const CpuData* fullest = nullptr;
    std::uint64_t page_size = 1;
    std::uint64_t bytes = 0;
    bool compressed = false;
    const auto buffers = file.select(request.selection.buffer);
    for (const BufferData* buffer : buffers) {
        compressed = compressed || buffer->compressed;
        for (const CpuData& cpu : buffer->cpus) {
            bytes += cpu.size;
            if (fullest == nullptr || cpu.size > fullest->size) {
                fullest = &cpu;
                page_size = buffer->layout.page_size;
            }
        }
    }
    if (fullest == nullptr || threads < 2 || (request.threads == 0 && bytes < kParallelBytes) || compressed ||
        file.on_error() == OnError::skip) {
        return {};
    }
    const bool swap = swap_needed(file.big_endian());
    const std::uint64_t pages = fullest->size / page_size;
    if (pages == 0) {
        return {};
    }
    for (const BufferData* buffer : buffers) {
        for (const CpuData& cpu : buffer->cpus) {
            if (!ascends(file, cpu, buffer->layout.page_size, swap)) {
                return {};
            }
        }
    }
    std::vector<std::uint64_t> out;
    for (unsigned i = 1; i < threads; ++i) {
        const std::uint64_t at = fullest->offset + pages * i / threads * page_size;
        const std::uint64_t time = file.time().apply(load<std::uint64_t>(file.bytes().data() + at, swap));
        const std::uint64_t before = out.empty() ? request.selection.from : out.back();
        if (time > before && time < request.selection.to) {
            out.push_back(time);
        }
    }
    return out;
}

struct Part {
    DecodeRequest request;
    std::unique_ptr<ColumnSink> sink;
    WalkStats stats;
    std::exception_ptr failure;
};

// The parts of a recording side by side, joined in time order into the first one's sink.
std::unique_ptr<ColumnSink> decode_parts(const TraceFile& file, const DecodeRequest& request, WalkStats& stats) {
    const auto moments = cuts(file, request);
    std::atomic<bool> cancelled{false};
    std::vector<Part> parts(moments.size() + 1);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        parts[i].request = request;
        parts[i].request.selection.from = i == 0 ? request.selection.from : moments[i - 1];
        parts[i].request.selection.to = i == moments.size() ? request.selection.to : moments[i];
        parts[i].request.selection.cancelled = &cancelled;
        parts[i].sink = std::make_unique<ColumnSink>(file, request, 0, nullptr);
    }
    const auto run = [&file, &cancelled](Part& part) {
        try {
            part.stats = walk(file, part.request.selection, *part.sink);
        } catch (...) {
            part.failure = std::current_exception();
            cancelled = true;
        }
    };
    {
        std::vector<std::jthread> threads;
        try {
            for (std::size_t i = 1; i < parts.size(); ++i) {
                threads.push_back(start_thread<std::jthread>([&run, &part = parts[i]] { run(part); }));
            }
        } catch (...) {
            cancelled = true;  // those that were started are waited for
            throw;
        }
        run(parts[0]);  // here, so that Ctrl-C reaches it
    }
    for (const Part& part : parts) {
        if (part.failure) {
            std::rethrow_exception(part.failure);
        }
    }
    for (Part& part : parts) {
        stats.events += part.stats.events;
        stats.missed += part.stats.missed;
        stats.missed_spots += part.stats.missed_spots;
        stats.damage.add(part.stats.damage);
        if (&part != &parts.front()) {
            parts.front().sink->append(*part.sink);
        }
    }
    return std::move(parts.front().sink);
}

}  // namespace

Decoded decode(const TraceFile& file, const DecodeRequest& request) {
    check_known(file, request);
    Decoded out;
    const auto joined = decode_parts(file, request, out.stats);
    ColumnSink& sink = *joined;
    sink.make_named();
    sink.finish(out.stats);
    const auto metadata = loss_metadata(file, request.selection, out.stats);
    for (const auto& plan : sink.plans()) {
        if (plan && (plan->rows() != 0 || named(request, plan->format()))) {
            out.tables.insert_or_assign(table_name(file, plan->format()), plan->take(metadata));
        }
    }
    return out;
}

WalkStats decode_batches(const TraceFile& file, const DecodeRequest& request, std::size_t rows,
                         const std::function<void(const EventFormat&, Table)>& take) {
    check_known(file, request);
    ColumnSink sink(file, request, std::max<std::size_t>(rows, 1), &take);
    WalkStats stats = walk(file, request.selection, sink);
    for (const auto& plan : sink.plans()) {
        if (plan && plan->rows() != 0) {
            take(plan->format(), plan->take({}));
        }
    }
    sink.finish(stats);
    return stats;
}

namespace {

struct CountSink : PlainSink {
    struct Count {
        std::uint64_t count = 0;
        std::uint64_t first = 0;
        std::uint64_t last = 0;
    };
    static constexpr std::size_t kIds = std::size_t{1} << 16U;

    CountSink(const TraceFile& file, std::size_t buffers)
        : PlainSink(file), swap(swap_needed(file.big_endian())), counts(buffers) {}

    void record(const Event& event) {
        if (!whole(event, kTypeSize)) [[unlikely]] {
            return;
        }
        auto& own = counts[event.place.buffer];
        if (own.empty()) [[unlikely]] {
            own.resize(kIds);
        }
        Count& count = own[load<std::uint16_t>(event.data, swap)];
        if (count.count++ == 0) {
            count.first = event.time;
        }
        count.last = event.time;
    }

    bool swap;
    std::vector<std::vector<Count>> counts;  // by buffer, then by event id
};

}  // namespace

Table count_events(const TraceFile& file, const Selection& selection) {
    const BufferNames buffers(file, selection.buffer);
    CountSink sink(file, buffers.size());
    WalkStats stats = walk(file, selection, sink);
    stats.damage.add(sink.damage());
    auto names = std::make_shared<StringPool>();
    std::vector<std::int32_t> events;
    std::vector<std::uint64_t> count;
    std::vector<std::uint64_t> first;
    std::vector<std::uint64_t> last;
    std::vector<std::uint16_t> buffer;
    for (std::size_t number = 0; number < sink.counts.size(); ++number) {
        const auto& own = sink.counts[number];
        for (std::uint32_t id = 0; id < own.size(); ++id) {
            if (own[id].count == 0) {
                continue;
            }
            const EventFormat* format = file.find_event(id);
            events.push_back(names->intern(format != nullptr ? format->system + ":" + format->name
                                                             : "unknown:" + std::to_string(id)));
            count.push_back(own[id].count);
            first.push_back(own[id].first);
            last.push_back(own[id].last);
            buffer.push_back(static_cast<std::uint16_t>(number));
        }
    }
    const std::string unit(file.time_unit(selection.buffer));
    std::vector<Column> columns;
    columns.emplace_back("event", std::move(events), std::move(names));
    columns.emplace_back("count", std::move(count));
    columns.emplace_back("first", std::move(first), unit);
    columns.emplace_back("last", std::move(last), unit);
    buffers.add_column(columns, buffer);
    auto metadata = loss_metadata(file, selection, stats);
    metadata["events"] = std::to_string(stats.events);
    return Table(std::move(columns), std::move(metadata));
}

}  // namespace sampleblk::trace
