// SPDX-License-Identifier: MIT
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "sampleblk/interrupt.hpp"
#include "sampleblk/trace/import_text.hpp"
#include "text.hpp"

namespace sampleblk::trace {

namespace {

std::string_view trim(std::string_view text) {
    const auto first = text.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) {
        return {};
    }
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

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

bool is_name(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
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

class StraceLog {
  public:
    StraceLog(const std::string& source, OnError on_error) : source_(source), on_error_(on_error) {}

    Table read(std::string_view text) {
        std::size_t at = 0;
        std::uint64_t lines = 0;
        while (at < text.size()) {
            if ((++lines & 0xfff) == 0) {
                check_interrupt();
            }
            const auto end = std::min(text.find('\n', at), text.size());
            const auto here = text.substr(at, end - at);
            if (here.starts_with("% time")) {
                break;  // the table of -C
            }
            if (!line(here)) {
                const auto error = [&] {
                    return FormatError(source_, at, "a line of strace, such as \"write(3, ..., 4096) = 4096\"");
                };
                if (on_error_ == OnError::strict) {
                    throw error();
                }
                ++unread_;
                damage_.note(error().what());
            }
            at = end + 1;
        }
        std::map<std::string, std::string> metadata{{"lost_events", "0"}};
        if (unread_ != 0) {
            metadata["unread_lines"] = std::to_string(unread_);
            metadata["unread_because"] = damage_.because();
        }
        if (omitted_ != 0) {
            metadata["omitted_spots"] = std::to_string(omitted_);
        }
        if (!open_.empty()) {
            metadata["unfinished"] = std::to_string(open_.size());
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

    bool line(std::string_view text) {
        text = trim(text);
        if (text.empty() || text.front() == '#') {
            return true;
        }
        if (text.starts_with("[...")) {
            ++omitted_;  // someone cut lines out by hand and said so
            return true;
        }
        std::int32_t pid = 0;
        if (text.starts_with("[pid")) {
            const auto end = text.find(']');
            if (end == std::string_view::npos) {
                return false;
            }
            const auto digits = trim(text.substr(4, end - 4));
            if (std::from_chars(digits.data(), digits.data() + digits.size(), pid).ec != std::errc()) {
                return false;
            }
            text = trim(text.substr(end + 1));
        } else if (const auto space = text.find(' '); space != std::string_view::npos) {
            // With -f -o the bare number comes first; a time has a point or colons.
            const auto digits = text.substr(0, space);
            const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
            if (parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size()) {
                text = trim(text.substr(space));
            } else {
                pid = 0;
            }
        }
        std::uint64_t time = 0;
        if (const auto space = text.find(' '); space != std::string_view::npos) {
            const auto word = text.substr(0, space);
            const auto stamp = clock_of(word) ? clock_of(word) : seconds_of(word);
            if (stamp) {
                time = *stamp;
                text = trim(text.substr(space));
            }
        }
        if (text.starts_with("---") || text.starts_with("+++") || text.starts_with("strace: ") ||
            text.starts_with("Process ")) {
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
        if (const auto cut = text.rfind("<unfinished ...>"); cut != std::string_view::npos) {
            const std::size_t start = std::min(paren + 1, cut);
            open_[pid] = {time, std::string(name), std::string(trim(text.substr(start, cut - start)))};
            return true;
        }
        const auto close = closing(text, paren + 1);
        if (close == std::string_view::npos) {
            return false;
        }
        return result(time, pid, name, std::string(text.substr(paren + 1, close - paren - 1)), text.substr(close + 1));
    }

    bool resumed(std::int32_t pid, std::string_view text) {
        const auto end = text.find('>');
        const auto found = open_.find(pid);
        if (end == std::string_view::npos || found == open_.end()) {
            return found == open_.end();  // it was called before the log began
        }
        auto rest = text.substr(end + 1);
        const auto close = closing(rest, 0);
        if (close == std::string_view::npos) {
            return false;
        }
        const Open open = std::move(found->second);
        open_.erase(found);
        std::string args = open.args;
        const auto more = trim(rest.substr(0, close));
        if (!more.empty()) {
            args += (args.empty() || args.ends_with(' ') ? "" : " ") + std::string(more);
        }
        return result(open.time, pid, open.name, args, rest.substr(close + 1));
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
            const auto open = text.rfind('<');
            if (open != std::string_view::npos) {
                if (const auto took = seconds_of(text.substr(open + 1, text.size() - open - 2))) {
                    duration = *took;
                    text = trim(text.substr(0, open));
                }
            }
        }
        std::int64_t ret = 0;
        std::int32_t error = -1;
        if (text.starts_with("0x")) {
            std::uint64_t value = 0;
            std::from_chars(text.data() + 2, text.data() + text.size(), value, 16);
            ret = static_cast<std::int64_t>(value);
        } else if (!text.starts_with('?')) {
            if (std::from_chars(text.data(), text.data() + text.size(), ret).ec != std::errc()) {
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
    std::map<std::int32_t, Open> open_;
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
    Damage damage_;
    std::uint64_t omitted_ = 0;
};

}  // namespace

Table read_strace_log(std::string_view text, const std::string& source, OnError on_error) {
    return StraceLog(source, on_error).read(text);
}

Table read_strace_summary(std::string_view text, const std::string& source) {
    std::vector<double> percent;
    std::vector<double> seconds;
    std::vector<double> each;
    std::vector<std::uint64_t> calls;
    std::vector<std::uint64_t> errors;
    std::vector<std::int32_t> name;
    auto names = std::make_shared<StringPool>();
    const auto head = text.find("% time");
    std::size_t at = head == std::string_view::npos ? text.size() : head;
    while (at < text.size()) {
        const auto end = std::min(text.find('\n', at), text.size());
        auto line = trim(text.substr(at, end - at));
        const std::size_t here = at;
        at = end + 1;
        if (line.empty() || line.front() == '%' || line.front() == '-') {
            continue;
        }
        std::vector<std::string_view> words;
        while (!line.empty()) {
            const auto cut = std::min(line.find(' '), line.size());
            words.push_back(line.substr(0, cut));
            line = trim(line.substr(cut));
        }
        if (!words.empty() && words.back() == "total") {
            break;
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
            throw FormatError(source, here, "a row of strace -c: % time, seconds, usecs/call, calls, errors, syscall");
        }
        percent.push_back(numbers[0]);
        seconds.push_back(numbers[1]);
        each.push_back(numbers[2]);
        calls.push_back(static_cast<std::uint64_t>(numbers[3]));
        errors.push_back(has_errors ? static_cast<std::uint64_t>(numbers[4]) : 0);
        name.push_back(names->intern(printable(words.back())));
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
