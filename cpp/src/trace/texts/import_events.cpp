// SPDX-License-Identifier: MIT
#include "sampleblk/trace/import_events.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "file/text.hpp"
#include "recording/builder.hpp"
#include "sampleblk/blktrace.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/mapping.hpp"
#include "texts/block_events.hpp"
#include "texts/lines.hpp"

namespace sampleblk::trace {

namespace {

constexpr std::uint32_t kMostCpus = 8192;  // NR_CPUS of x86's largest configuration
constexpr std::uint64_t kSector = 512;
constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kMostSeconds = UINT64_MAX / kSecond / 2;

template <typename T>
bool parse(std::string_view text, T& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
}

// "12.345678" in units of `unit` ns, as ns; further digits are cut. A number without a point is not a time here: the
// clocks counter and x86-tsc print such.
bool parse_decimal(std::string_view text, std::uint64_t unit, std::uint64_t& ns,
                   std::uint64_t most_seconds = kMostSeconds) {
    const auto dot = text.find('.');
    std::uint64_t whole = 0;
    if (dot == std::string_view::npos || !is_digits(text.substr(dot + 1)) || !parse(text.substr(0, dot), whole) ||
        whole > most_seconds * (kSecond / unit)) {
        return false;
    }
    ns = whole * unit;
    for (const char digit : text.substr(dot + 1)) {
        unit /= 10;
        ns += unit * static_cast<std::uint64_t>(digit - '0');
    }
    return true;
}

// A difference, in ns. A negative one has its sign, or was printed as 64 unsigned bits.
bool parse_difference(std::string_view text, std::uint64_t unit, std::int64_t& ns) {
    constexpr std::int64_t most = INT64_MAX / 4;  // 73 years: sums of them fit
    const bool negative = text.starts_with('-');
    std::uint64_t size = 0;
    if (!parse_decimal(text.substr(negative ? 1 : 0), unit, size, UINT64_MAX / kSecond)) {
        return false;
    }
    ns = static_cast<std::int64_t>(negative ? 0 - size : size);
    return ns >= -most && ns <= most;
}

// What all three have in common: the file that is made, what is said of it, and how a line is refused.
class Import {
  public:
    Import(const std::string& path, OnError on_error) : recording(path), block(recording), on_error_(on_error) {}

    void add(std::string_view name, BlockShape shape, std::uint32_t cpu, std::uint64_t time, std::int32_t pid,
             const BlockEvent& event) {
        cpu_ = cpu;
        count_added(block.add(name, shape, cpu, time, pid, event));
    }
    void add(std::uint32_t cpu, std::uint64_t time, EventRecord record) {
        cpu_ = cpu;
        count_added(recording.add(cpu, time, std::move(record)));
    }
    void lost(std::uint32_t cpu, std::uint64_t count) {
        recording.add_lost(cpu, count);
        facts["lost_events"] = std::to_string(lost_ += std::max<std::uint64_t>(count, 1));
    }
    void count(const std::string& name, std::uint64_t times = 1) {
        facts[name] = std::to_string(counts_[name] += times);
    }
    // A line that is not what it should be: an error, or counted.
    void refuse(const FormatError& error) {
        if (on_error_ == OnError::strict) {
            throw error;
        }
        // It may have been an event. One gap says so; each begins a page.
        if (!counts_.contains("unread_lines")) {
            recording.add_lost(cpu_, 0);
        }
        count("unread_lines");
        damage_.note(error.what());
    }
    // Whether events before `what` lay within the window; forgets it.
    [[nodiscard]] bool take_in_order() { return std::exchange(in_order_, true); }

    std::map<std::string, std::string> finish(const std::string& from) {
        facts["events"] = std::to_string(events_);
        if (counts_.contains("unread_lines")) {
            facts["unread_because"] = damage_.because();
        }
        recording.write(from);
        return std::move(facts);
    }
    [[nodiscard]] std::uint64_t events() const { return events_; }

    RecordingBuilder recording;
    BlockEventWriter block;
    std::map<std::string, std::string> facts;

  private:
    void count_added(bool added) {
        events_ += added ? 1 : 0;
        in_order_ = in_order_ && added;
    }

    OnError on_error_;
    std::uint64_t events_ = 0;
    std::uint64_t lost_ = 0;
    std::uint32_t cpu_ = 0;  // of the last event
    bool in_order_ = true;
    std::map<std::string, std::uint64_t> counts_;
    Damage damage_;
};

// Calls `line(text)` for each line; what gives false, or comes too late, is refused as `expected`.
template <typename Line>
void each_line(std::string_view text, const std::string& source, Import& import, const std::string& expected,
               Line line) {
    Lines lines(text);
    while (lines.next()) {
        const bool known = line(lines.line());
        if (!import.take_in_order()) {
            import.refuse(lines.error(source, "a time not before those of " +
                                                  std::to_string(RecordingBuilder::kWindow) +
                                                  " earlier events of its CPU: sort the file by time"));
        } else if (!known) {
            import.refuse(lines.error(source, expected));
        }
    }
}

// --- the text of events

class EventText {
  public:
    explicit EventText(Import& import) : import_(import) {}

    bool line(std::string_view raw) {
        const auto text = trim(raw);
        if (text.empty() || raw.front() == '#') {
            return true;
        }
        if (lost_line(text)) {
            return true;
        }
        // A task's name may look like a CPU: the first place behind which a time and an event come.
        for (auto at = raw.find('['); at != std::string_view::npos; at = raw.find('[', at + 1)) {
            if (event(raw.substr(0, at), raw.substr(at))) {
                return true;
            }
        }
        if (is_stack(raw, text)) {
            import_.count("stack_lines");
            return true;
        }
        // A task's name may look like one, so last.
        return is_heading(text);
    }

  private:
    static bool is_heading(std::string_view text) {
        return text.front() == '#' || (text.starts_with("cpus=") && is_digits(text.substr(5))) ||
               text.starts_with("version = ") || (text.starts_with("CPU ") && text.ends_with(" is empty"));
    }

    // "CPU:1 [LOST 5 EVENTS]" of ftrace, "CPU:1 [5 EVENTS DROPPED]" of trace-cmd.
    bool lost_line(std::string_view text) {
        std::uint32_t cpu = 0;
        const auto bracket = text.find('[');
        if (!text.starts_with("CPU:") || bracket == std::string_view::npos ||
            !parse(trim(text.substr(4, bracket - 4)), cpu) || cpu >= kMostCpus) {
            return false;
        }
        auto inside = text.substr(bracket + 1);
        std::uint64_t count = 0;
        if (inside.starts_with("LOST ")) {
            inside.remove_prefix(5);
        } else if (!inside.ends_with("EVENTS DROPPED]")) {
            return false;
        }
        // Of how many, both say only where they know.
        if (!inside.starts_with("EVENTS") && !parse(inside.substr(0, inside.find(' ')), count)) {
            return false;
        }
        import_.lost(cpu, count);
        return true;
    }

    // "ffffffff8116a5a1 submit_bio+0x1 ([kernel.kallsyms])" below an event, and ftrace's "=> submit_bio".
    static bool is_stack(std::string_view raw, std::string_view text) {
        if (text.starts_with("=> ") || text.starts_with("<stack trace")) {
            return true;
        }
        const auto word = text.substr(0, text.find(' '));
        // An event that is malformed may be of a task named like a number; it has a colon, a symbol has none.
        return (raw.starts_with(' ') || raw.starts_with('\t')) && !word.empty() && word.size() <= 16 &&
               word.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
               text.find(": ") == std::string_view::npos;
    }

    // "fio 95069", "fio 95069/95070" (the thread is the second), "fio-95070", "fio-95070 (95069)".
    static bool task(std::string_view text, std::string_view& comm, std::int32_t& pid) {
        text = trim(text);
        if (text.ends_with(')')) {
            const auto open = text.rfind('(');
            if (open == std::string_view::npos) {
                return false;
            }
            text = trim(text.substr(0, open));
        }
        const auto space = text.find_last_of(" \t");
        const auto last = space == std::string_view::npos ? text : text.substr(space + 1);
        const auto slash = last.find('/');
        // perf's name for a task that has exited.
        const bool exited = last == "-1" || last == "-1/-1";
        if (exited && space == std::string_view::npos) {
            return false;
        }
        // A task may have no name.
        if (is_digits(last) || exited) {
            comm = trim(text.substr(0, text.size() - last.size()));
            return parse(last.substr(0, slash), pid);
        }
        if (slash != std::string_view::npos && is_digits(last.substr(0, slash)) && is_digits(last.substr(slash + 1))) {
            comm = trim(text.substr(0, text.size() - last.size()));
            return parse(last.substr(slash + 1), pid);
        }
        const auto dash = text.rfind('-');
        if (dash == std::string_view::npos || !is_digits(text.substr(dash + 1))) {
            return false;
        }
        comm = text.substr(0, dash);
        return parse(text.substr(dash + 1), pid);
    }

    // What stands before "[CPU]", and what from there on.
    bool event(std::string_view before, std::string_view behind) {
        const auto close = behind.find(']');
        std::uint32_t cpu = 0;
        if (close == std::string_view::npos || close < 4 || !is_digits(behind.substr(1, close - 1)) ||
            !parse(behind.substr(1, close - 1), cpu) || cpu >= kMostCpus) {
            return false;
        }
        std::string_view comm;
        std::int32_t pid = 0;
        if (!task(before, comm, pid)) {
            return false;
        }
        behind.remove_prefix(close + 1);
        // Perhaps ftrace's flags, then the time with its colon.
        std::uint64_t time = 0;
        bool timed = false;
        for (int words = 0; words < 2 && !timed; ++words) {
            behind = trim(behind);
            const auto word = behind.substr(0, behind.find(' '));
            behind.remove_prefix(word.size());
            timed = word.ends_with(':') && parse_decimal(word.substr(0, word.size() - 1), kSecond, time);
        }
        if (!timed) {
            return false;
        }
        behind = trim(behind);
        // perf script tells a period where not all events are trace points.
        if (const auto word = behind.substr(0, behind.find(' ')); is_digits(word)) {
            behind = trim(behind.substr(word.size()));
        }
        const auto end = std::min(behind.find(' '), behind.size());
        auto name = behind.substr(0, end);
        const auto text = trim(behind.substr(end));
        if (name == "PERF_RECORD_LOST" || name == "PERF_RECORD_LOST_SAMPLES") {
            std::uint64_t count = 0;
            (void)parse(text.substr(text.find_last_of(' ') + 1), count);
            import_.lost(cpu, count);
            return true;
        }
        if (name.size() < 2 || !name.ends_with(':')) {
            return false;
        }
        name.remove_suffix(1);
        std::string_view system;
        if (const auto colon = name.find(':'); colon != std::string_view::npos) {
            system = name.substr(0, colon);
            name.remove_prefix(colon + 1);
        }
        if (!is_name(name) || (!system.empty() && !is_name(system))) {
            return false;
        }
        time = in_order(cpu, time);
        if (const auto shape = system.empty() || system == "block" ? block_shape(name) : std::nullopt) {
            BlockEvent event;
            if (!parse_block_event(*shape, text, event)) {
                return false;
            }
            import_.add(name, *shape, cpu, time, pid, event);
        } else {
            other(system.empty() ? "text" : system, name, text, cpu, time, pid);
        }
        import_.recording.add_task(pid, comm);
        return true;
    }

    // Of one microsecond the lines have the order, which a recording has by its CPUs: who would go first is a ns later.
    std::uint64_t in_order(std::uint32_t cpu, std::uint64_t time) {
        if (time > given_ || time < told_) {
            given_ = time;
        } else if (cpu < last_cpu_) {
            ++given_;
        }
        told_ = time;
        last_cpu_ = cpu;
        return given_;
    }

    static bool is_name(std::string_view text) {
        return !text.empty() && text.size() < 256 &&
               std::ranges::all_of(
                   text,
                   [](char c) {
                       return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                              c == '-' || c == '.';
                   });
    }

    void other(std::string_view system, std::string_view name, std::string_view text, std::uint32_t cpu,
               std::uint64_t time, std::int32_t pid) {
        key_.assign(system).append(":").append(name);
        auto found = others_.find(key_);
        if (found == others_.end()) {
            EventLayout layout(system, name);
            Other other;
            other.text = layout.dynamic_text("text");
            other.size = layout.size();
            other.id = import_.recording.add_format(layout, "\"%s\", __get_str(text)");
            found = others_.emplace(key_, other).first;
        }
        const Other& other = found->second;
        EventRecord record(other.id, other.size, pid);
        if (!record.put_dynamic(other.text, text)) {
            import_.count("cut_texts");
        }
        import_.add(cpu, time, std::move(record));
    }

    struct Other {
        std::uint16_t id = 0;
        std::uint32_t text = 0;
        std::uint32_t size = 0;
    };

    Import& import_;
    std::uint64_t told_ = 0;  // time of the last line, and what it became
    std::uint64_t given_ = 0;
    std::uint32_t last_cpu_ = 0;
    std::string key_;
    std::map<std::string, Other> others_;
};

// --- the text of a snooper

class SnoopText {
  public:
    explicit SnoopText(Import& import) : import_(import) {}

    // Where its heading is: the line that names COMM and the bytes.
    static bool is_heading(std::string_view line) {
        const auto words = words_of(line);
        const auto has = [&words](std::string_view word) { return std::ranges::find(words, word) != words.end(); };
        return has("COMM") && (has("BYTES") || has("LAT(ms)") || has("LATms"));
    }

    bool line(std::string_view raw) {
        const auto words = words_of(raw);
        if (words.empty() || raw.starts_with("Tracing ") || raw.starts_with("Ending ") || raw.starts_with("^C")) {
            return true;
        }
        if (is_heading(raw)) {
            columns_ = words;
            return true;
        }
        return !columns_.empty() && row(apart(words));
    }

    // biosnoop counts from the first completion that it prints, so that the first requests begin before 0: such a
    // text's times are those of its lines and whole seconds.
    void measure(std::string_view text) {
        measuring_ = true;
        Lines lines(text);
        while (lines.next()) {
            (void)line(lines.line());
        }
        measuring_ = false;
        columns_.clear();
        if (earliest_ <= 0) {
            shift_ = (-earliest_ / second + 1) * second;
            import_.facts["added_ns"] = std::to_string(shift_);
        }
    }

    // What a heading lacks for its lines to be requests; empty: nothing.
    static std::string lacks(std::string_view heading) {
        const auto words = words_of(heading);
        const auto none = [&words](std::initializer_list<std::string_view> names) {
            return std::ranges::none_of(
                names, [&words](std::string_view name) { return std::ranges::find(words, name) != words.end(); });
        };
        if (none({"SECTOR", "BLOCK"})) {
            return "SECTOR (or BLOCK)";
        }
        if (none({"BYTES"})) {
            return "BYTES";
        }
        if (none({"TIME(s)", "STARTs", "ENDs"})) {
            return "the time (TIME(s), or STARTs and ENDs: iosnoop -s -t)";
        }
        return none({"LAT(ms)", "LATms"}) ? "LAT(ms)" : "";
    }

  private:
    static std::vector<std::string_view> words_of(std::string_view line) {
        std::vector<std::string_view> words;
        for (line = trim(line); !line.empty(); line = trim(line)) {
            const auto end = std::min(line.find_first_of(" \t"), line.size());
            words.push_back(line.substr(0, end));
            line.remove_prefix(end);
        }
        return words;
    }

    struct Row {
        std::int32_t pid = 0;
        std::uint64_t bytes = 0;
        std::optional<std::int64_t> inserted;  // ns, as issued and completed
        std::int64_t issued = 0;
        std::int64_t completed = 0;
        std::string_view disk;
        BlockEvent event;
    };

    bool parse_row(const std::vector<std::string_view>& words, Row& row) const {
        if (words.size() < columns_.size()) {
            return false;
        }
        // A task's name may have spaces: what is left of it counts from the left, what is right from the right.
        const auto comm_at = static_cast<std::size_t>(std::ranges::find(columns_, "COMM") - columns_.begin());
        const std::size_t more = words.size() - columns_.size();
        const auto value = [&](std::initializer_list<std::string_view> names) -> std::string_view {
            for (const auto name : names) {
                const auto at = static_cast<std::size_t>(std::ranges::find(columns_, name) - columns_.begin());
                if (at < columns_.size()) {
                    return words[at <= comm_at ? at : at + more];
                }
            }
            return {};
        };
        BlockEvent& event = row.event;
        std::int64_t latency = 0;
        std::int64_t in_queue = 0;
        const auto waited = value({"QUE(ms)"});
        const auto start = value({"STARTs"});
        const auto end = value({"TIME(s)", "ENDs"});
        const auto sector = value({"SECTOR", "BLOCK"});
        const bool nowhere = sector == "-1";  // a flush
        if (!parse(value({"PID", "TID"}), row.pid) || (!nowhere && !parse(sector, event.sector)) ||
            !parse(value({"BYTES"}), row.bytes) ||
            !parse_difference(value({"LAT(ms)", "LATms"}), kSecond / 1000, latency) || latency < 0 ||
            (!waited.empty() && !parse_difference(waited, kSecond / 1000, in_queue)) ||
            (!start.empty() && !parse_difference(start, kSecond, row.issued)) ||
            (!end.empty() && !parse_difference(end, kSecond, row.completed)) || row.bytes / kSector > UINT32_MAX) {
            return false;
        }
        if (start.empty()) {
            row.issued = row.completed - latency;
        } else if (end.empty()) {
            row.completed = row.issued + latency;
        }
        if (row.completed < row.issued) {
            return false;
        }
        // Less than nothing: no scheduler had it.
        if (!waited.empty() && in_queue >= 0) {
            row.inserted = row.issued - in_queue;
        }
        row.disk = value({"DISK", "DEV"});
        event.sector = nowhere ? UINT64_MAX : event.sector;
        event.rwbs = value({"T", "TYPE"});
        event.sectors = static_cast<std::uint32_t>(row.bytes / kSector);
        event.bytes = row.bytes;
        const auto* comm = words[comm_at].data();
        const auto& last = words[comm_at + more];
        event.comm = {comm, static_cast<std::size_t>(last.data() + last.size() - comm)};
        return true;
    }

    // biosnoop -P prints the pattern right behind the bytes, which fill their column from 1 MB on: "1048576S".
    [[nodiscard]] std::vector<std::string_view> apart(std::vector<std::string_view> words) const {
        const auto pattern = std::ranges::find(columns_, "P");
        const auto behind = static_cast<std::size_t>(columns_.end() - pattern);
        if (pattern == columns_.end() || words.size() < behind) {
            return words;
        }
        const auto at = words.end() - static_cast<std::ptrdiff_t>(behind);
        constexpr std::size_t filled = 7;
        const auto letter = at->substr(at->size() - 1);
        if (at->size() > filled && is_digits(at->substr(0, at->size() - 1)) &&
            (letter == "S" || letter == "R" || letter == "?")) {
            at->remove_suffix(1);
            words.insert(at + 1, letter);
        }
        return words;
    }

    bool row(const std::vector<std::string_view>& words) {
        Row row;
        if (!parse_row(words, row)) {
            return false;
        }
        if (measuring_) {
            earliest_ = std::min(earliest_, row.inserted.value_or(row.issued));
            return true;
        }
        const auto time = [this](std::int64_t ns) { return static_cast<std::uint64_t>(ns + shift_); };
        row.event.dev = device(row.disk);
        if (row.inserted) {
            import_.add("block_rq_insert", BlockShape::request, 0, time(*row.inserted), row.pid, row.event);
        }
        import_.add("block_rq_issue", BlockShape::request, 0, time(row.issued), row.pid, row.event);
        import_.add("block_rq_complete", BlockShape::request_end, 0, time(row.completed), -1, row.event);
        import_.recording.add_task(row.pid, row.event.comm);
        return true;
    }

    std::uint32_t device(std::string_view name) {
        std::uint32_t number = 0;
        if (parse_device(name, number)) {
            return number;
        }
        const auto [entry, fresh] = devices_.try_emplace(std::string(name), devices_.size() + 1);
        if (fresh) {
            import_.facts["device 0," + std::to_string(entry->second)] = printable(name);
        }
        return static_cast<std::uint32_t>(entry->second & 0xfffffU);
    }

    static constexpr auto second = static_cast<std::int64_t>(kSecond);

    Import& import_;
    std::vector<std::string_view> columns_;
    std::map<std::string, std::size_t> devices_;
    bool measuring_ = false;
    std::int64_t earliest_ = second;
    std::int64_t shift_ = 0;
};

// --- blktrace's binary files

class BinaryTrace {
  public:
    explicit BinaryTrace(Import& import) : import_(import) {}

    // The files of CPUs and devices, together in the order of time: each device has a file for the same CPU.
    void read(const std::vector<std::string>& sources) {
        std::vector<std::unique_ptr<Source>> files;
        for (const std::string& source : sources) {
            files.push_back(std::make_unique<Source>(source));
            if (sources.size() > 1) {
                learn_names(files.back()->file.bytes(), source);
            }
        }
        read_checked([&] { merge(files, sources); },
                     [&files] {
                         for (const auto& one : files) {
                             one->file.check();
                         }
                     });
        for (const auto& one : files) {
            if (one->reader.cut_off()) {
                import_.count("cut_off");
            }
            if (one->reader.gaps() != 0) {
                import_.count("gaps", one->reader.gaps());
            }
        }
    }

  private:
    struct Source {
        explicit Source(const std::string& name) : file(name), reader(file.bytes(), name) {}
        MappedFile file;
        blktrace::Reader reader;
        blktrace::Record record;
    };

    void merge(const std::vector<std::unique_ptr<Source>>& files, const std::vector<std::string>& sources) {
        using Head = std::pair<std::uint64_t, std::size_t>;
        std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
        const auto advance = [&](std::size_t at) {
            if (files[at]->reader.next(files[at]->record)) {
                heads.emplace(files[at]->record.time_ns, at);
            }
        };
        for (std::size_t at = 0; at < files.size(); ++at) {
            advance(at);
        }
        for (std::uint64_t records = 1; !heads.empty(); ++records) {
            if ((records & 0xfff) == 0) {
                check_interrupt();
            }
            const std::size_t at = heads.top().second;
            heads.pop();
            take(files[at]->record, sources[at]);
            advance(at);
        }
    }

    void take(const blktrace::Record& record, const std::string& source) {
        if ((record.categories & blktrace::category_notify) != 0) {
            notice(record);
            return;
        }
        if (record.cpu >= kMostCpus) {
            import_.refuse(FormatError(source, record.at, "a CPU below " + std::to_string(kMostCpus)));
            return;
        }
        event(record);
        if (!import_.take_in_order()) {
            import_.refuse(FormatError(source, record.at,
                                       "a time not before those of " + std::to_string(RecordingBuilder::kWindow) +
                                           " earlier events of its CPU"));
        }
    }

    // The names of tasks: each is told once, in the file of the CPU where the task was first.
    void learn_names(std::span<const std::byte> bytes, const std::string& source) {
        blktrace::Reader reader(bytes, source);
        std::uint64_t records = 0;
        for (blktrace::Record record; reader.next(record);) {
            if ((++records & 0xfff) == 0) {
                check_interrupt();
            }
            if (is_name(record)) {
                names_.try_emplace(record.pid, name_in(record));
            }
        }
    }

    // fill_rwbs() of kernel/trace/blktrace.c; a driver's command is an N, as to the events.
    static std::string_view rwbs_of(const blktrace::Record& record, std::string& out) {
        const auto is = [&record](std::uint64_t category) { return (record.categories & category) != 0; };
        out.clear();
        if (is(blktrace::category_flush)) {
            out += 'F';
        }
        out += is(blktrace::category_command)          ? "N"
               : is(blktrace::category_discard)        ? "D"
               : is(blktrace::category_zone_append)    ? "ZA"
               : is(blktrace::category_zone_reset)     ? "ZR"
               : is(blktrace::category_zone_reset_all) ? "ZRA"
               : is(blktrace::category_zone_finish)    ? "ZF"
               : is(blktrace::category_zone_open)      ? "ZO"
               : is(blktrace::category_zone_close)     ? "ZC"
               : is(blktrace::category_write_zeroes)   ? "WZ"
               : is(blktrace::category_write)          ? "W"
               : record.bytes != 0                     ? "R"
                                                       : "N";
        for (const auto& [category, letter] : {std::pair{blktrace::category_fua, 'F'},
                                               {blktrace::category_ahead, 'A'},
                                               {blktrace::category_sync, 'S'},
                                               {blktrace::category_meta, 'M'}}) {
            if (is(category)) {
                out += letter;
            }
        }
        return out;
    }

    static bool is_name(const blktrace::Record& record) {
        return (record.categories & blktrace::category_notify) != 0 && record.action == blktrace::process;
    }
    static std::string_view name_in(const blktrace::Record& record) {
        const std::string_view name(reinterpret_cast<const char*>(record.data.data()), record.data.size());
        return name.substr(0, name.find('\0'));
    }

    void notice(const blktrace::Record& record) {
        if (is_name(record)) {
            import_.recording.add_task(static_cast<std::int32_t>(record.pid), name_in(record));
            names_[record.pid] = name_in(record);
        } else if (record.action == blktrace::message) {
            import_.count("skipped_message");
        }
    }

    void event(const blktrace::Record& record) {
        BlockEvent event;
        event.dev = record.device;
        event.sector = record.sector;
        const bool command = (record.categories & blktrace::category_command) != 0;
        const bool request = command || (record.categories & blktrace::category_request) != 0;
        event.sectors = command ? 0 : record.bytes / static_cast<std::uint32_t>(kSector);
        event.bytes = record.bytes;
        event.rwbs = rwbs_of(record, rwbs_);
        if (const auto name = names_.find(record.pid); name != names_.end()) {
            event.comm = name->second;
        }
        const auto add = [&](std::string_view name) {
            import_.add(name, *block_shape(name), record.cpu, record.time_ns, static_cast<std::int32_t>(record.pid),
                        event);
        };
        switch (record.action) {
            case blktrace::queue:
                return add("block_bio_queue");
            case blktrace::back_merge:
                return add(request ? "block_rq_merge" : "block_bio_backmerge");
            case blktrace::front_merge:
                return add("block_bio_frontmerge");
            case blktrace::get_request:
                return add("block_getrq");
            case blktrace::sleep_request:
                return add("block_sleeprq");
            case blktrace::requeue:
                return add("block_rq_requeue");
            case blktrace::issue:
                return add("block_rq_issue");
            case blktrace::insert:
                return add("block_rq_insert");
            case blktrace::complete:
                event.error = static_cast<std::int16_t>(record.error);
                if (record.categories & blktrace::category_complete) {
                    return add(request ? "block_rq_complete" : "block_bio_complete");
                }
                // BLK_TA_ZONE_APPEND: says once more where one was written.
                return import_.count("skipped_zone_append");
            case blktrace::plug:
                return add("block_plug");
            case blktrace::unplug_io:
            case blktrace::unplug_timer:
                event.requests = static_cast<std::int32_t>(record.data_u64(0));
                return add("block_unplug");
            case blktrace::split:
                event.new_sector = record.data_u64(0);
                return add("block_split");
            case blktrace::bounce:
                return add("block_bio_bounce");
            case blktrace::remap:
                event.old_dev = record.data_u32(0);
                event.old_sector = record.data_u64(8);
                return add("block_bio_remap");
            default:
                import_.count("skipped_" + std::to_string(record.action));
        }
    }

    Import& import_;
    std::string rwbs_;
    std::map<std::uint32_t, std::string> names_;
};

enum class Kind : std::uint8_t { events, snoop, blktrace };

bool is_blktrace(std::span<const std::byte> bytes) {
    // BLK_IO_TRACE_MAGIC in either byte order; the version is the other byte.
    return bytes.size() >= 4 && ((std::memcmp(bytes.data() + 1, "tae", 3) == 0) ||
                                 (std::memcmp(bytes.data(), "eat", 3) == 0 && bytes[3] < std::byte{0x20}));
}

// The heading is among the first lines; before it a tool says that it is tracing.
std::optional<std::string_view> snoop_heading(std::string_view text) {
    Lines lines(text);
    for (int count = 0; count < 10 && lines.next(); ++count) {
        if (SnoopText::is_heading(lines.line())) {
            return lines.line();
        }
    }
    return std::nullopt;
}

}  // namespace

std::map<std::string, std::string> import_events(const std::vector<std::string>& sources, const std::string& path,
                                                 OnError on_error) {
    if (sources.empty()) {
        throw InputError("no recording to import", {}, 0, "at least one file");
    }
    Import import(path, on_error);
    std::vector<std::string> binaries;
    std::optional<Kind> kind;
    std::string from = "blktrace";
    for (const std::string& source : sources) {
        const MappedFile file(source);
        const auto bytes = file.bytes();
        const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        const auto heading = is_blktrace(bytes) ? std::nullopt : snoop_heading(text);
        const Kind here = is_blktrace(bytes) ? Kind::blktrace : heading ? Kind::snoop : Kind::events;
        // An idle CPU's file of blktrace is empty.
        if (bytes.empty() && sources.size() > 1) {
            continue;
        }
        if (kind && (*kind != Kind::blktrace || here != Kind::blktrace)) {
            throw InputError("several files that are not one recording of blktrace: " + source, {}, 0,
                             "one file, or blktrace's files of one recording");
        }
        kind = here;
        read_checked(
            [&] {
                if (here == Kind::blktrace) {
                    binaries.push_back(source);
                } else if (here == Kind::snoop) {
                    if (const auto lacking = SnoopText::lacks(*heading); !lacking.empty()) {
                        throw FormatError(source, static_cast<std::uint64_t>(heading->data() - text.data()),
                                          "a heading that has " + lacking);
                    }
                    SnoopText snoop(import);
                    from = "biosnoop or iosnoop";
                    snoop.measure(text);
                    each_line(text, source, import, "a line of the columns of its heading",
                              [&snoop](std::string_view line) { return snoop.line(line); });
                } else {
                    EventText events(import);
                    from = "text of events";
                    each_line(
                        text, source, import,
                        "an event, such as \"fio 95069 [001] 12.345678: block:block_rq_issue: 253,1 W 4096 () 2048 + 8 "
                        "[fio]\"",
                        [&events](std::string_view line) { return events.line(line); });
                }
            },
            [&file] { file.check(); });
    }
    if (!binaries.empty()) {
        BinaryTrace(import).read(binaries);
    }
    if (import.events() == 0) {
        throw FormatError(sources.front(), 0,
                          "at least one event of perf script, trace-cmd report, ftrace, biosnoop, iosnoop or blktrace");
    }
    import.facts["format"] = from;
    return import.finish(from);
}

}  // namespace sampleblk::trace
