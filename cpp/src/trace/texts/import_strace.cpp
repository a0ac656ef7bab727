// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "file/text.hpp"
#include "sampleblk/trace/import_text.hpp"
#include "texts/lines.hpp"

namespace sampleblk::trace {

namespace {

// "1466326568.892834" as ns; digits after the point are a fraction whatever their number.
std::optional<std::uint64_t> seconds_of(std::string_view text) {
    std::uint64_t whole = 0;
    const char* end = text.data() + text.size();
    auto parsed = std::from_chars(text.data(), text.data() + text.size(), whole);
    if (parsed.ec != std::errc() || whole > UINT64_MAX / 2'000'000'000) {
        return std::nullopt;
    }
    std::uint64_t ns = 0;
    if (parsed.ptr != end) {
        if (*parsed.ptr != '.') {
            return std::nullopt;
        }
        std::uint64_t place = 100'000'000;
        for (const char* digit = parsed.ptr + 1; digit != end; ++digit) {
            if (*digit < '0' || *digit > '9') {
                return std::nullopt;
            }
            ns += static_cast<std::uint64_t>(*digit - '0') * place;
            place /= 10;
        }
    }
    return whole * 1'000'000'000 + ns;
}

// "22:10:28.123456", since midnight.
std::optional<std::uint64_t> clock_of(std::string_view text) {
    if (text.size() < 8 || text[2] != ':' || text[5] != ':') {
        return std::nullopt;
    }
    const auto hours = seconds_of(text.substr(0, 2));
    const auto minutes = seconds_of(text.substr(3, 2));
    const auto seconds = seconds_of(text.substr(6));
    if (!hours || !minutes || !seconds) {
        return std::nullopt;
    }
    return *hours * 3600 + *minutes * 60 + *seconds;
}

bool starts_a_process(std::string_view call) {
    return call == "clone" || call == "clone3" || call == "fork" || call == "vfork";
}

bool is_name(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
}

// What strace -y puts behind a descriptor, "3</tmp/x>", from its '<' on; 0 where there is none. In a path it escapes
// '>'.
std::size_t annotation(std::string_view text, std::size_t at) {
    const bool behind_a_value = at != 0 && (std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0);
    if (!behind_a_value || at + 1 >= text.size() || text[at + 1] == '<') {
        return 0;  // "21<<MAP_HUGE_SHIFT"
    }
    // Of sockets -yy tells both ends: "3<TCP:[127.0.0.1:2049->127.0.0.1:713]>".
    const auto bracket = text.find_first_of("[>", at);
    const bool is_socket =
        text[at + 1] != '/' && bracket != std::string_view::npos && text[bracket] == '[' && text[bracket - 1] == ':';
    const auto end = is_socket ? text.find("]>", bracket) : text.find('>', at);
    return end == std::string_view::npos ? 0 : end + (is_socket ? 2 : 1) - at;
}

// Whether what is at `at` is within a string of the arguments that begin at `from`.
bool in_string(std::string_view text, std::size_t from, std::size_t at) {
    bool quoted = false;
    for (std::size_t i = from; i < at; ++i) {
        if (quoted && text[i] == '\\') {
            ++i;
        } else if (text[i] == '"') {
            quoted = !quoted;
        } else if (const std::size_t length = quoted || text[i] != '<' ? 0 : annotation(text, i); length != 0) {
            i += length - 1;  // a path may have quotes
        }
    }
    return quoted;
}

// The end of the arguments that begin behind the opening parenthesis at `from`: its closing one, outside strings.
std::size_t closing(std::string_view text, std::size_t from) {
    int depth = 0;
    bool quoted = false;
    for (std::size_t i = from; i < text.size(); ++i) {
        const char c = text[i];
        if (quoted) {
            if (c == '\\') {
                ++i;
            } else if (c == '"') {
                quoted = false;
            }
        } else if (c == '"') {
            quoted = true;
        } else if (c == '<') {
            if (const std::size_t length = annotation(text, i); length != 0) {
                i += length - 1;
            }
        } else if (c == '(' || c == '[' || c == '{') {
            ++depth;
        } else if (c == ')' || c == ']' || c == '}') {
            if (depth == 0) {
                return i;
            }
            --depth;
        }
    }
    return std::string_view::npos;
}

// A number in front of `text`, and what follows it; nullopt where there is none.
std::optional<std::int32_t> leading_number(std::string_view text, std::string_view* rest = nullptr) {
    std::int32_t value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec != std::errc() || value < 0) {
        return std::nullopt;
    }
    if (rest != nullptr) {
        *rest = text.substr(static_cast<std::size_t>(parsed.ptr - text.data()));
    }
    return value;
}

// Before a table of -C that is not of the machine's own calls: "32 bit mode:".
constexpr std::string_view kSummaryOf = "System call usage summary for ";

class StraceLog {
  public:
    StraceLog(const std::string& source, OnError on_error) : source_(source), on_error_(on_error) {}

    Table read(std::string_view text) {
        Lines lines(text);
        while (lines.next()) {
            const auto here = lines.line();
            if (here.starts_with("% time") || here.starts_with(kSummaryOf)) {
                break;  // the table of -C
            }
            if (!whole_line(here)) {
                const FormatError error =
                    lines.error(source_, "a line of strace, such as \"write(3, ..., 4096) = 4096\"");
                if (on_error_ == OnError::strict) {
                    throw error;
                }
                ++unread_;
                damage_.note(error.what());
            }
        }
        std::map<std::string, std::string> metadata{{"lost_events", "0"}};
        const std::uint64_t unfinished = open_.size() + detached_ + (cut_.empty() ? 0 : 1);
        for (const auto& [name, count] : {std::pair{"unread_lines", unread_}, std::pair{"omitted_spots", omitted_},
                                          std::pair{"unfinished", unfinished}, std::pair{"unpaired", unpaired_}}) {
            if (count != 0) {
                metadata[name] = std::to_string(count);
            }
        }
        if (unread_ != 0) {
            metadata["unread_because"] = damage_.because();
        }
        std::vector<Column> columns;
        columns.emplace_back("time", std::move(time_), "ns");
        columns.emplace_back("duration", std::move(duration_), "ns");
        columns.emplace_back("pid", std::move(pid_));
        columns.emplace_back("syscall", std::move(name_), names_);
        columns.emplace_back("args", std::move(args_), arg_texts_);
        columns.emplace_back("ret", std::move(ret_));
        columns.emplace_back("error", std::move(error_), errors_);
        return Table(std::move(columns), std::move(metadata));
    }

  private:
    struct Open {
        std::uint64_t time = 0;
        std::string name;
        std::string args;
    };

    // On stderr, with -f, strace cuts into a call that starts a process: "clone(…strace: Process 12 attached", and goes
    // on with it in the next line. Joins the two.
    bool whole_line(std::string_view raw) {
        std::string_view text = trim(raw);
        std::string_view rest = text;
        if (rest.ends_with(" attached")) {
            rest.remove_suffix(9);
            const auto word = rest.rfind("Process ");
            const auto number = word == std::string_view::npos ? std::string_view{} : rest.substr(word + 8);
            std::string_view behind;
            if (const auto pid = leading_number(number, &behind); pid && (behind.empty() || behind.front() == '<')) {
                const std::int32_t before = only_process();
                said_ = true;
                attached_.insert(*pid);
                alive_.insert(*pid);
                rest = rest.substr(0, word);
                if (rest.ends_with("strace: ")) {
                    rest.remove_suffix(8);
                }
                if (!trim(rest).empty()) {
                    cut_ += rest;
                    cut_pid_ = before;
                }
                return true;
            }
        }
        if (cut_.empty()) {
            return line(text);
        }
        const std::string joined = std::exchange(cut_, {}) + std::string(raw);
        const bool known = line(trim(joined));
        cut_pid_ = 0;
        return known;
    }

    // "[pid 12]", or the bare number of -f -o; nullopt without one.
    bool take_pid(std::string_view& text, std::optional<std::int32_t>& pid) {
        if (text.starts_with("[pid")) {
            // Under -Y with its command, in which '>' is escaped and ']' is not.
            const auto command = text.find_first_of("<]");
            const bool has_command = command != std::string_view::npos && text[command] == '<';
            const auto end = text.find(']', has_command ? text.find('>') : 0);
            if (end == std::string_view::npos) {
                return false;
            }
            pid = leading_number(trim(text.substr(4, end - 4)));
            text = trim(text.substr(end + 1));
            return pid.has_value();
        }
        // With -f -o the number comes first, with its command behind it under -Y; a time has a point or colons.
        std::string_view rest;
        if (const auto number = leading_number(text, &rest)) {
            if (rest.starts_with('<')) {
                rest = rest.substr(std::min(rest.find('>'), rest.size() - 1) + 1);
            }
            if (rest.starts_with(' ')) {
                pid = number;
                text = trim(rest);
            }
        }
        return true;
    }

    // The time of -t -tt -ttt or -r, and the "(+ 0.000083)" of -r beside one of the others.
    std::uint64_t take_time(std::string_view& text) {
        const auto space = text.find(' ');
        if (space == std::string_view::npos) {
            return 0;
        }
        const auto word = text.substr(0, space);
        std::uint64_t time = 0;
        if (const auto clock = clock_of(word)) {
            constexpr std::uint64_t day = 86'400'000'000'000ULL;
            // Midnight: half a day back is half a day on.
            while (*clock + days_ + day / 2 < last_) {
                days_ += day;
            }
            time = *clock + days_;
        } else if (const auto stamp = seconds_of(word); stamp && word.find('.') != std::string_view::npos) {
            // Nobody traced before 1973: such are the times since the line before, of -r.
            constexpr std::uint64_t least = 100'000'000'000'000'000ULL;
            time = *stamp < least ? last_ + *stamp : *stamp;
        } else if (stamp) {
            time = *stamp;
        } else {
            return 0;
        }
        last_ = time;
        text = trim(text.substr(space));
        if (text.starts_with("(+")) {
            if (const auto end = text.find(')'); end != std::string_view::npos) {
                text = trim(text.substr(end + 1));
            }
        }
        return time;
    }

    // The "[   1]" of -n and the "[00007f1234567890]" of -i.
    static void take_brackets(std::string_view& text) {
        while (text.starts_with('[')) {
            const auto end = text.find(']');
            const auto inside = end == std::string_view::npos ? std::string_view{} : trim(text.substr(1, end - 1));
            if (inside.empty() || inside.find_first_not_of("0123456789abcdef?") != std::string_view::npos) {
                return;
            }
            text = trim(text.substr(end + 1));
        }
    }

    // The only process that strace traces; 0 where that is not known.
    [[nodiscard]] std::int32_t only_process() const {
        const bool attached_only = first_ == 0 && nameless_ == 0;  // strace -p
        return alive_.size() == 1 && (first_ != 0 || attached_only) ? *alive_.begin() : 0;
    }

    // Whether a call that starts a process has not returned.
    [[nodiscard]] bool starting() const {
        return std::ranges::any_of(open_, [](const auto& open) { return starts_a_process(open.second.name); });
    }

    // Whose line it is. Without -o strace names the process only while it traces several.
    std::int32_t whose(std::optional<std::int32_t> named) {
        if (named) {
            alive_.insert(*named);
            if (started_.contains(*named)) {
                attached_.insert(*named);
            }
            // Without a word of those attached (-q): what no call has returned, while no call is on its way that may.
            const bool all_known = said_ ? !attached_.empty() : !started_.empty() && !starting();
            if (first_ == 0 && all_known && !attached_.contains(*named)) {
                // The one that was there before any other: all that was seen without a name is its own.
                first_ = *named;
                for (std::size_t row = 0; row < std::min(nameless_, pid_.size()); ++row) {
                    pid_[row] = pid_[row] == 0 ? first_ : pid_[row];
                }
            }
            return *named;
        }
        if (const std::int32_t only = cut_pid_ != 0 ? cut_pid_ : only_process(); only != 0) {
            return only;
        }
        if (first_ == 0) {
            nameless_ = pid_.size() + 1;  // with the row that this line may become
        }
        return 0;
    }

    bool line(std::string_view text) {
        if (text.empty() || text.front() == '#') {
            return true;
        }
        if (text.starts_with("[...")) {
            ++omitted_;  // someone cut lines out by hand and said so
            return true;
        }
        if (text.starts_with("> ") || text.starts_with("[ Process ")) {
            return true;  // a frame of -k; another mode of the CPU
        }
        std::optional<std::int32_t> named;
        if (!take_pid(text, named)) {
            return false;
        }
        const std::uint64_t time = take_time(text);
        take_brackets(text);
        if (text.starts_with("strace: ") || text.starts_with("Process ")) {
            return true;
        }
        const std::int32_t pid = whose(named);
        if (text.starts_with("---")) {
            return true;
        }
        if (text.starts_with("+++")) {
            alive_.erase(pid);
            return true;
        }
        if (text.starts_with("<... ")) {
            return resumed(pid, text);
        }
        const auto paren = text.find('(');
        if (paren == std::string_view::npos || !is_name(text.substr(0, paren))) {
            return false;
        }
        const auto name = text.substr(0, paren);
        if (text.ends_with("<detached ...>")) {
            ++detached_;
            return true;
        }
        if (const auto cut = text.rfind("<unfinished ...>");
            cut != std::string_view::npos && !in_string(text, paren + 1, cut)) {
            begin(pid, time, name, text, paren, cut);
            return true;
        }
        if (const auto cut = text.rfind("<pid changed to "); cut != std::string_view::npos && text.ends_with(" ...>")) {
            // A thread's execve(2): it goes on as the process.
            const auto other = leading_number(text.substr(cut + 16));
            if (!other) {
                return false;
            }
            begin(*other, time, name, text, paren, cut);
            return true;
        }
        const auto close = closing(text, paren + 1);
        if (close == std::string_view::npos) {
            return false;
        }
        return result(time, pid, name, std::string(text.substr(paren + 1, close - paren - 1)), text.substr(close + 1));
    }

    void begin(std::int32_t pid, std::uint64_t time, std::string_view name, std::string_view text, std::size_t paren,
               std::size_t cut) {
        const std::size_t start = std::min(paren + 1, cut);
        open_[pid] = {time, std::string(name), std::string(trim(text.substr(start, cut - start)))};
    }

    bool resumed(std::int32_t pid, std::string_view text) {
        const auto end = text.find('>');
        if (end == std::string_view::npos) {
            return false;
        }
        auto name = text.substr(5, end - 5);
        name = name.substr(0, name.find(' '));
        auto found = open_.find(pid);
        if (found == open_.end() || found->second.name != name) {
            // It was begun, or goes on, in a line without its process: the only open one of that name.
            const auto same = [&](const auto& open) {
                return open.second.name == name && (pid == 0 || open.first == 0);
            };
            found = std::ranges::find_if(open_, same);
            if (found != open_.end() && std::find_if(std::next(found), open_.end(), same) != open_.end()) {
                found = open_.end();
            }
        }
        if (found == open_.end()) {
            ++unpaired_;  // it was called before the log began
            return true;
        }
        auto rest = text.substr(end + 1);
        const auto close = closing(rest, 0);
        if (close == std::string_view::npos) {
            return false;
        }
        const std::int32_t own = pid != 0 ? pid : found->first;
        const Open open = std::move(found->second);
        open_.erase(found);
        std::string args = open.args;
        const auto more = trim(rest.substr(0, close));
        if (!more.empty()) {
            args += (args.empty() || args.ends_with(' ') ? "" : " ") + std::string(more);
        }
        return result(open.time, own, open.name, args, rest.substr(close + 1));
    }

    // " = 4096 <0.000009>", " = -1 ENOENT (No such file or directory)", " = 0x7f…", " = ?".
    bool result(std::uint64_t time, std::int32_t pid, std::string_view name, const std::string& args,
                std::string_view text) {
        text = trim(text);
        if (!text.starts_with("=")) {
            return false;
        }
        text = trim(text.substr(1));
        std::uint64_t duration = 0;
        if (text.ends_with('>')) {
            const auto open = text.rfind(" <");
            if (open != std::string_view::npos) {
                if (const auto took = seconds_of(text.substr(open + 2, text.size() - open - 3))) {
                    duration = *took;
                    text = trim(text.substr(0, open));
                }
            }
        }
        std::int64_t ret = 0;
        std::int32_t error = -1;
        if (text.starts_with("0x")) {
            std::uint64_t value = 0;
            if (std::from_chars(text.data() + 2, text.data() + text.size(), value, 16).ec != std::errc()) {
                return false;
            }
            ret = static_cast<std::int64_t>(value);
        } else if (!text.starts_with('?')) {
            const int base = text.starts_with('0') ? 8 : 10;  // umask(2) returns a mode: "022"
            if (std::from_chars(text.data(), text.data() + text.size(), ret, base).ec != std::errc()) {
                return false;
            }
        }
        if (ret == -1 || text.starts_with('?')) {
            const auto begin = text.find(" E");
            if (begin != std::string_view::npos) {
                auto word = text.substr(begin + 1);
                word = word.substr(0, word.find(' '));
                error = errors_->intern(printable(word));
            }
        }
        if (ret > 0 && ret <= INT32_MAX && starts_a_process(name)) {
            started_.insert(static_cast<std::int32_t>(ret));
        }
        time_.push_back(time);
        duration_.push_back(duration);
        pid_.push_back(pid);
        name_.push_back(names_->intern(name));
        args_.push_back(arg_texts_->intern(printable(args)));
        ret_.push_back(ret);
        error_.push_back(error);
        return true;
    }

    const std::string& source_;
    OnError on_error_;
    std::string cut_;           // a call whose line was cut, up to there
    std::int32_t cut_pid_ = 0;  // whose it is, where that is known
    std::map<std::int32_t, Open> open_;
    bool said_ = false;                // "Process 12 attached" is in the log
    std::set<std::int32_t> attached_;  // processes that are not the first: strace said so, or a call of another
    std::set<std::int32_t> started_;   // what clone(2) and the like returned: processes, if strace names them so
    std::set<std::int32_t> alive_;
    std::int32_t first_ = 0;    // the process that was there before those
    std::size_t nameless_ = 0;  // rows up to here are its own where they have no pid
    std::uint64_t last_ = 0;    // time of the last line that had one
    std::uint64_t days_ = 0;    // passed since the first line, in ns
    std::vector<std::uint64_t> time_;
    std::vector<std::uint64_t> duration_;
    std::vector<std::int32_t> pid_;
    std::vector<std::int32_t> name_;
    std::vector<std::int32_t> args_;
    std::vector<std::int64_t> ret_;
    std::vector<std::int32_t> error_;
    std::shared_ptr<StringPool> names_ = std::make_shared<StringPool>();
    std::shared_ptr<StringPool> arg_texts_ = std::make_shared<StringPool>();
    std::shared_ptr<StringPool> errors_ = std::make_shared<StringPool>();
    std::uint64_t unread_ = 0;
    std::uint64_t unpaired_ = 0;
    std::uint64_t detached_ = 0;
    Damage damage_;
    std::uint64_t omitted_ = 0;
};

}  // namespace

Table read_strace_log(std::string_view text, const std::string& source, OnError on_error) {
    return StraceLog(source, on_error).read(text);
}

namespace {

constexpr std::string_view kSummaryHead[] = {"%", "time", "seconds", "usecs/call", "calls", "errors", "syscall"};

// Where a line begins with that, which may stand in a call's arguments as well; npos where none does.
std::size_t line_with(std::string_view text, std::string_view words) {
    auto at = text.find(words);
    while (at != std::string_view::npos && at != 0 && text[at - 1] != '\n') {
        at = text.find(words, at + 1);
    }
    return at;
}

}  // namespace

Table read_strace_summary(std::string_view text, const std::string& source) {
    std::vector<double> percent;
    std::vector<double> seconds;
    std::vector<double> each;
    std::vector<std::uint64_t> calls;
    std::vector<std::uint64_t> errors;
    std::vector<std::int32_t> name;
    auto names = std::make_shared<StringPool>();
    Lines lines(text, std::min(line_with(text, "% time"), line_with(text, kSummaryOf)));
    std::string mode;
    bool inside = false;
    while (lines.next()) {
        auto line = trim(lines.line());
        if (line.starts_with(kSummaryOf)) {
            line.remove_prefix(kSummaryOf.size());
            mode = " [" + std::string(line.substr(0, line.find(" mode"))) + "]";
        }
        inside = inside || line.starts_with("% time");
        if (!inside || line.empty() || line.front() == '-') {
            continue;
        }
        std::vector<std::string_view> words;
        while (!line.empty()) {
            const auto cut = std::min(line.find(' '), line.size());
            words.push_back(line.substr(0, cut));
            line = trim(line.substr(cut));
        }
        if (words.front() == "%") {
            if (!std::ranges::equal(words, kSummaryHead)) {
                throw lines.error(source,
                                  "the head of strace -c, without -U: % time, seconds, usecs/call, calls, "
                                  "errors, syscall");
            }
            continue;
        }
        if (words.back() == "total") {
            inside = false;  // another table may follow
            continue;
        }
        // The column of errors is empty where there are none.
        double numbers[5] = {};
        const bool has_errors = words.size() == 6;
        bool good = words.size() == 5 || has_errors;
        for (std::size_t i = 0; good && i + 1 < words.size(); ++i) {
            good = std::from_chars(words[i].data(), words[i].data() + words[i].size(), numbers[i]).ec == std::errc() &&
                   numbers[i] >= 0 && numbers[i] < 1e18;
        }
        if (!good) {
            throw lines.error(source, "a row of strace -c: % time, seconds, usecs/call, calls, errors, syscall");
        }
        percent.push_back(numbers[0]);
        seconds.push_back(numbers[1]);
        each.push_back(numbers[2]);
        calls.push_back(static_cast<std::uint64_t>(numbers[3]));
        errors.push_back(has_errors ? static_cast<std::uint64_t>(numbers[4]) : 0);
        name.push_back(names->intern(printable(words.back()) + mode));
    }
    std::vector<Column> columns;
    columns.emplace_back("percent_time", std::move(percent), "%");
    columns.emplace_back("seconds", std::move(seconds), "s");
    columns.emplace_back("usecs_per_call", std::move(each), "us");
    columns.emplace_back("calls", std::move(calls));
    columns.emplace_back("errors", std::move(errors));
    columns.emplace_back("syscall", std::move(name), std::move(names));
    return Table(std::move(columns));
}

}  // namespace sampleblk::trace
