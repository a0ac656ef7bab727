// SPDX-License-Identifier: MIT
// The text of the function_graph tracer, with whichever of its columns were switched on
// (kernel/trace/trace_functions_graph.c, print_graph_prologue()).
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "file/text.hpp"
#include "sampleblk/trace/import_text.hpp"
#include "texts/lines.hpp"
#include "views/graph_sink.hpp"

namespace sampleblk::trace {

namespace {

constexpr std::uint64_t kMaxNs = UINT64_MAX / 2;

// "12.345 us" with a mark before it, in ns; nullopt for anything else.
std::optional<std::uint64_t> duration_of(std::string_view text) {
    text = trim(text);
    if (!text.ends_with(" us")) {
        return std::nullopt;
    }
    text.remove_suffix(3);
    if (!text.empty() && std::string_view("$@*#!+").find(text.front()) != std::string_view::npos) {
        text = trim(text.substr(1));
    }
    double value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || !(value >= 0 && value <= 1e15)) {
        return std::nullopt;
    }
    return static_cast<std::uint64_t>(std::llround(value * 1000));
}

// "25.283804", in ns; nullopt for anything else.
std::optional<std::uint64_t> time_of(std::string_view text) {
    const auto dot = text.find('.');
    if (dot == std::string_view::npos || text.size() - dot != 7 || !is_digits(text.substr(0, dot)) ||
        !is_digits(text.substr(dot + 1)) || dot > 10) {
        return std::nullopt;
    }
    std::uint64_t seconds = 0;
    std::uint64_t microseconds = 0;
    std::from_chars(text.data(), text.data() + dot, seconds);
    std::from_chars(text.data() + dot + 1, text.data() + text.size(), microseconds);
    return seconds * 1'000'000'000 + microseconds * 1000;
}

// The number after the last '-' of "fio-95069", as the task column and the switch lines have it.
std::optional<std::int32_t> pid_of(std::string_view text) {
    text = trim(text);
    const auto dash = text.rfind('-');
    std::int32_t pid = 0;
    if (dash == std::string_view::npos || !is_digits(text.substr(dash + 1))) {
        return std::nullopt;
    }
    const auto rest = text.substr(dash + 1);
    const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), pid);
    return parsed.ec == std::errc() ? std::optional(pid) : std::nullopt;
}

// The same where the name may have anything in it, such as '|', "=>" and "/*"; it is cut after TASK_COMM_LEN at the
// latest.
std::optional<std::int32_t> task_of(std::string_view text) {
    text = trim(text);
    return text.rfind('-') < 16 ? pid_of(text) : std::nullopt;
}

// An event or a trace_printk(): print_graph_comment().
bool is_comment(std::string_view text) {
    return text.starts_with("/* ");
}

// "d.h2.", the column of the latency format: interrupts, rescheduling, context, preemption, migration.
bool is_latency(std::string_view text) {
    text = trim(text);
    return (text.size() == 4 || text.size() == 5) &&
           text.find_first_not_of(".dDXnNpPlLbBhHsSzZ0123456789abcdef#") == std::string_view::npos;
}

// What %ps prints.
bool is_function(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
               c == '$' || c == '@';
    });
}

class GraphText {
  public:
    GraphText(const std::string& source, OnError on_error) : source_(source), on_error_(on_error) {}

    CallGraph read(std::string_view text) {
        Lines lines(text);
        while (lines.next()) {
            if (!line(lines.line())) {
                const FormatError error =
                    lines.error(source_, "a line of function_graph output, such as \" 0)   0.740 us    |    fn();\"");
                if (on_error_ == OnError::strict) {
                    throw error;
                }
                ++unread_;
                damage_.note(error.what());
            }
        }
        arrange_graph(out_, std::vector<std::uint8_t>(out_.size(), 1));
        out_.metadata["lost_events"] = std::to_string(lost_);
        for (const auto& [name, count] : {std::pair{"unpaired", unpaired_}, std::pair{"across_gaps", across_gaps_},
                                          std::pair{"comment_lines", comments_}, std::pair{"unread_lines", unread_}}) {
            if (count != 0) {
                out_.metadata[name] = std::to_string(count);
            }
        }
        if (unread_ != 0) {
            out_.metadata["unread_because"] = damage_.because();
        }
        return std::move(out_);
    }

  private:
    // What the columns before a call say.
    struct Prologue {
        std::optional<std::uint64_t> time;
        std::optional<std::uint32_t> cpu;
        std::optional<std::int32_t> pid;
        std::optional<std::uint64_t> duration;
        bool interrupt = false;  // "==========>", "<=========="
    };
    // A call that has not ended.
    struct Open {
        std::size_t row = 0;
        std::size_t indent = 0;
        std::uint64_t lost = 0;  // events until it began
    };
    // A task; the idle one is another on each CPU, and so is whoever runs there before a line says who.
    struct Task {
        std::vector<Open> stack;
    };

    // Takes "TEXT |" off `text` where `is` takes TEXT.
    template <typename Is>
    static bool take_column(std::string_view& text, Is is) {
        const auto bar = text.find('|');
        if (bar == std::string_view::npos || !is(trim(text.substr(0, bar)))) {
            return false;
        }
        text.remove_prefix(bar + 1);
        return true;
    }

    // Takes the columns off `text`, in their order; what is left is a call or a comment.
    static Prologue columns(std::string_view& text) {
        Prologue out;
        (void)take_column(text, [&out](std::string_view word) { return (out.time = time_of(word)).has_value(); });
        if (out.time) {
            // The time since the trace began, of the latency tracers.
            (void)take_column(text, [](std::string_view word) {
                return word.ends_with(" us") && time_of(trim(word.substr(0, word.size() - 3)));
            });
        }
        const auto start = trim(text);
        std::uint32_t cpu = 0;
        const auto parsed = std::from_chars(start.data(), start.data() + start.size(), cpu);
        if (parsed.ec == std::errc() && parsed.ptr != start.data() + start.size() && *parsed.ptr == ')' &&
            cpu <= 0xffff) {
            out.cpu = cpu;
            text = start.substr(static_cast<std::size_t>(parsed.ptr - start.data()) + 1);
        }
        if (is_comment(trim(text))) {
            return out;
        }
        // Behind another column is a call, or a comment with anything in it.
        const auto first = trim(text.substr(0, text.find('|')));
        const bool other = first.empty() || duration_of(first) || is_latency(first);
        constexpr std::string_view ends = " | ";
        for (auto at = text.find(ends); !other && at != std::string_view::npos; at = text.find(ends, at + 1)) {
            if ((out.pid = task_of(text.substr(0, at)))) {
                text.remove_prefix(at + ends.size());
                break;
            }
        }
        (void)take_column(text, is_latency);
        (void)take_column(text, [&out](std::string_view word) {
            out.interrupt = word == "==========>" || word == "<==========";
            out.duration = duration_of(word);
            return out.interrupt || out.duration || word.empty();
        });
        return out;
    }

    // False for a line that we do not know.
    bool line(std::string_view raw) {
        auto text = trim(raw);
        if (text.empty() || text.find_first_not_of('-') == std::string_view::npos) {
            return true;
        }
        if (text.starts_with("CPU:") && text.find("LOST") != std::string_view::npos) {
            std::uint64_t count = 0;
            const auto digits = text.substr(std::min(text.find("LOST ") + 5, text.size()));
            std::from_chars(digits.data(), digits.data() + digits.size(), count);
            lost_ += std::min<std::uint64_t>(std::max<std::uint64_t>(count, 1), kMaxNs);
            return true;
        }
        const bool may_be_heading = text.front() == '#' || text.starts_with("Tracing ") ||
                                    text.starts_with("Ending ") || text.starts_with("^C") ||
                                    text.starts_with("(Overruns: ");
        const Prologue prologue = columns(text);
        // A task may be named so.
        if (may_be_heading && !prologue.pid) {
            return true;
        }
        const std::size_t indent = std::min(text.find_first_not_of(' '), text.size());
        text = trim(text);
        for (auto arrow = text.find("=>"); prologue.cpu && !prologue.duration && arrow != std::string_view::npos;
             arrow = text.find("=>", arrow + 1)) {
            const auto before = task_of(text.substr(0, arrow));
            const auto after = task_of(text.substr(arrow + 2));
            if (before && after) {
                switched(*prologue.cpu, *before, *after);
                return true;
            }
        }
        if (text.empty()) {
            return prologue.interrupt;
        }
        if (is_comment(text)) {
            ++comments_;
            return true;
        }
        if (prologue.pid && prologue.cpu) {
            switched(*prologue.cpu, *prologue.pid, *prologue.pid);
        }
        // Without its CPU a call may be of any task; the idle one runs on all of them.
        if (!prologue.cpu && (!prologue.pid || *prologue.pid == 0)) {
            return false;
        }
        return call(prologue, text, indent);
    }

    static std::int64_t key_of(std::int32_t pid, std::uint32_t cpu) {
        return pid != 0 ? pid : -1 - static_cast<std::int64_t>(cpu);
    }

    // Who runs on a CPU from now on, and who did before.
    void switched(std::uint32_t cpu, std::int32_t before, std::int32_t after) {
        const auto [running, fresh] = running_.try_emplace(cpu, after);
        if (fresh) {
            // What was seen of this CPU until now was of `before`.
            if (const auto unknown = unknown_.find(cpu); unknown != unknown_.end()) {
                for (const std::size_t row : unknown->second.rows) {
                    out_.pid[row] = before;
                }
                tasks_[key_of(before, cpu)].stack = std::move(unknown->second.stack);
                unknown_.erase(unknown);
            }
        }
        running->second = after;
    }

    // Takes off what ended among lost events: what is as far to the right as `indent`, or further.
    void end_lost(std::vector<Open>& stack, std::size_t indent) const {
        while (lost_ != 0 && indented_ && !stack.empty() && stack.back().indent >= indent) {
            stack.pop_back();
        }
    }

    // Whether "}" with that behind it ends the innermost open call. After lost events it may be of another one, which
    // the kernel then names.
    [[nodiscard]] bool ends(const std::vector<Open>& stack, std::size_t indent, std::string_view comment) const {
        if (stack.empty()) {
            return false;
        }
        if (lost_ == 0) {
            return true;
        }
        comment.remove_prefix(std::min<std::size_t>(comment.find_first_not_of("/* "), comment.size()));
        const auto name = comment.substr(0, comment.find(' '));
        return (!indented_ || stack.back().indent == indent) &&
               (!is_function(name) || name == out_.names->at(out_.function[stack.back().row]));
    }

    bool call(const Prologue& prologue, std::string_view body, std::size_t indent) {
        const std::uint32_t cpu = prologue.cpu.value_or(0);
        std::int32_t pid = prologue.pid.value_or(0);
        Unknown* unknown = nullptr;
        std::vector<Open>* open = nullptr;
        if (prologue.pid) {
            open = &tasks_[key_of(pid, cpu)].stack;
        } else if (const auto running = running_.find(cpu); running != running_.end()) {
            pid = running->second;
            open = &tasks_[key_of(pid, cpu)].stack;
        } else {
            unknown = &unknown_[cpu];
            open = &unknown->stack;
        }
        auto& stack = *open;
        if (body.front() == '}') {
            const auto rest = trim(body.substr(1));
            if (!rest.empty() && !rest.starts_with("/*")) {
                return false;
            }
            end_lost(stack, indent + 1);
            if (!ends(stack, indent, rest)) {
                end_lost(stack, indent);
                ++unpaired_;
                return true;
            }
            const std::size_t row = stack.back().row;
            across_gaps_ += stack.back().lost != lost_ ? 1 : 0;
            stack.pop_back();
            out_.duration[row] = prologue.duration.value_or(0);
            out_.complete[row] = prologue.duration ? 1 : 0;
            return true;
        }
        const auto paren = body.find('(');
        if (paren == std::string_view::npos) {
            return false;
        }
        auto name = trim(body.substr(0, paren));
        std::string_view module;
        if (const auto bracket = name.find(" ["); bracket != std::string_view::npos && name.ends_with(']')) {
            module = name.substr(bracket + 2, name.size() - bracket - 3);
            name = name.substr(0, bracket);
        }
        // "fn() {", "fn();", either with a comment behind it.
        const auto code = trim(body.substr(0, body.find("/*", paren)));
        const bool opens = code.ends_with('{');
        if ((!opens && !code.ends_with(';')) || !is_function(name) ||
            (module.data() != nullptr && !is_function(module)) ||
            stack.size() >= static_cast<std::size_t>(kDeepestCall)) {
            return false;
        }
        indented_ = indented_ || (!stack.empty() && indent > stack.back().indent);
        end_lost(stack, indent);
        out_.time.push_back(prologue.time ? *prologue.time : stack.empty() ? roots_++ : out_.time[stack.back().row]);
        out_.duration.push_back(prologue.duration.value_or(0));
        out_.parent.push_back(stack.empty() ? -1 : static_cast<std::int64_t>(stack.back().row));
        out_.depth.push_back(static_cast<std::int32_t>(stack.size()));
        out_.function.push_back(out_.names->intern(name));
        out_.module.push_back(module.empty() ? -1 : out_.names->intern(module));
        out_.pid.push_back(pid);
        out_.cpu.push_back(static_cast<std::uint16_t>(cpu));
        out_.complete.push_back(!opens && prologue.duration ? 1 : 0);
        if (unknown != nullptr) {
            unknown->rows.push_back(out_.size() - 1);
        }
        if (opens) {
            stack.push_back({out_.size() - 1, indent, lost_});
        }
        return true;
    }

    // Rows of a CPU from before a line said who runs there.
    struct Unknown {
        std::vector<Open> stack;
        std::vector<std::size_t> rows;
    };

    const std::string& source_;
    OnError on_error_;
    CallGraph out_;
    std::map<std::int64_t, Task> tasks_;
    std::map<std::uint32_t, std::int32_t> running_;  // by CPU
    std::map<std::uint32_t, Unknown> unknown_;       // by CPU
    std::uint64_t roots_ = 0;
    std::uint64_t lost_ = 0;
    bool indented_ = false;  // callees are further to the right than their callers, as the kernel prints them
    std::uint64_t unpaired_ = 0;
    std::uint64_t across_gaps_ = 0;
    std::uint64_t comments_ = 0;
    std::uint64_t unread_ = 0;
    Damage damage_;
};

}  // namespace

CallGraph read_graph_text(std::string_view text, const std::string& source, OnError on_error) {
    return GraphText(source, on_error).read(text);
}

}  // namespace sampleblk::trace
