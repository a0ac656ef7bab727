// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "sampleblk/interrupt.hpp"
#include "sampleblk/trace/import_text.hpp"
#include "text.hpp"

namespace sampleblk::trace {

namespace {

constexpr std::uint64_t kMaxNs = UINT64_MAX / 2;

std::string_view trim(std::string_view text) {
    const auto first = text.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) {
        return {};
    }
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// "12.345 us" with a mark before it, in ns; nullopt where the column is empty.
std::optional<std::uint64_t> duration_of(std::string_view text) {
    const auto us = text.find(" us");
    if (us == std::string_view::npos) {
        return std::nullopt;
    }
    text = text.substr(0, us);
    const auto begin = text.find_first_of("0123456789");
    if (begin == std::string_view::npos) {
        return std::nullopt;
    }
    double value = 0;
    const auto parsed = std::from_chars(text.data() + begin, text.data() + text.size(), value);
    if (parsed.ec != std::errc() || value < 0 || value > 1e15) {
        return std::nullopt;
    }
    return static_cast<std::uint64_t>(std::llround(value * 1000));
}

// The number after the last '-' of "fio-95069", as the proc column and the switch lines have it.
std::optional<std::int32_t> pid_of(std::string_view text) {
    text = trim(text);
    const auto dash = text.rfind('-');
    if (dash == std::string_view::npos) {
        return std::nullopt;
    }
    std::int32_t pid = 0;
    const auto rest = text.substr(dash + 1);
    const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), pid);
    return parsed.ec == std::errc() && parsed.ptr == rest.data() + rest.size() ? std::optional(pid) : std::nullopt;
}

class GraphText {
  public:
    GraphText(const std::string& source, OnError on_error) : source_(source), on_error_(on_error) {}

    CallGraph read(std::string_view text) {
        std::size_t at = 0;
        std::uint64_t lines = 0;
        while (at < text.size()) {
            if ((++lines & 0xfff) == 0) {
                check_interrupt();
            }
            const auto end = std::min(text.find('\n', at), text.size());
            if (!line(text.substr(at, end - at))) {
                const auto error = [&] {
                    return FormatError(source_, at,
                                       "a line of function_graph output, such as \" 0)   0.740 us    |    fn();\"");
                };
                if (on_error_ == OnError::strict) {
                    throw error();
                }
                ++unread_;
                damage_.note(error().what());
            }
            at = end + 1;
        }
        std::uint64_t incomplete = 0;
        out_.self = out_.duration;
        for (std::size_t row = 0; row < out_.size(); ++row) {
            incomplete += out_.complete[row] == 0 ? 1 : 0;
            if (out_.parent[row] >= 0) {
                std::uint64_t& self = out_.self[static_cast<std::size_t>(out_.parent[row])];
                self -= std::min(self, out_.duration[row]);
            }
        }
        out_.metadata["lost_events"] = std::to_string(lost_);
        for (const auto& [name, count] : {std::pair{"incomplete_calls", incomplete}, std::pair{"unpaired", unpaired_},
                                          std::pair{"unread_lines", unread_}}) {
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
    // False for a line that we do not know.
    bool line(std::string_view raw) {
        const auto text = trim(raw);
        if (text.empty() || text.front() == '#' || text.starts_with("Tracing ") || text.starts_with("Ending ") ||
            text.find_first_not_of('-') == std::string_view::npos || text.starts_with("^C")) {
            return true;
        }
        if (text.starts_with("CPU:") && text.find("LOST") != std::string_view::npos) {
            std::uint64_t count = 0;
            const auto digits = text.substr(std::min(text.find("LOST ") + 5, text.size()));
            std::from_chars(digits.data(), digits.data() + digits.size(), count);
            lost_ += std::min<std::uint64_t>(std::max<std::uint64_t>(count, 1), kMaxNs);
            return true;
        }
        const auto paren = text.find(')');
        std::uint32_t cpu = 0;
        const auto parsed = std::from_chars(text.data(), text.data() + std::min(paren, text.size()), cpu);
        if (paren == std::string_view::npos || parsed.ec != std::errc() || parsed.ptr != text.data() + paren ||
            cpu > 0xffff) {
            return false;
        }
        auto rest = text.substr(paren + 1);
        if (const auto arrow = rest.find("=>");
            arrow != std::string_view::npos && rest.find('|') == std::string_view::npos) {
            if (const auto pid = pid_of(rest.substr(arrow + 2))) {
                pids_[cpu] = *pid;
            }
            return true;
        }
        const auto bar = rest.find('|');
        if (bar == std::string_view::npos) {
            return false;
        }
        // With funcgraph-proc there is one column more: "0)  fio-123   |   0.1 us    |  fn();".
        auto duration = rest.substr(0, bar);
        auto body = rest.substr(bar + 1);
        if (!duration_of(duration) && pid_of(duration)) {
            pids_[cpu] = *pid_of(duration);
            const auto second = body.find('|');
            if (second == std::string_view::npos) {
                return false;
            }
            duration = body.substr(0, second);
            body = body.substr(second + 1);
        }
        return call(cpu, duration_of(duration), trim(body), duration);
    }

    bool call(std::uint32_t cpu, std::optional<std::uint64_t> duration, std::string_view body,
              std::string_view column) {
        if (body.empty()) {
            // "==========> |" and "<========== |" mark interrupts.
            return column.find("===") != std::string_view::npos;
        }
        auto& stack = stacks_[cpu];
        if (body.front() == '}') {
            if (stack.empty()) {
                ++unpaired_;
                return true;
            }
            const std::size_t row = stack.back();
            stack.pop_back();
            out_.duration[row] = duration.value_or(0);
            out_.complete[row] = duration ? 1 : 0;
            return true;
        }
        if (body.starts_with("/*")) {
            return true;  // a comment: an event, or a trace_printk
        }
        const auto open = body.find('(');
        if (open == std::string_view::npos || open == 0) {
            return false;
        }
        auto name = trim(body.substr(0, open));
        std::string module;
        if (const auto bracket = name.find(" ["); bracket != std::string_view::npos && name.back() == ']') {
            module = std::string(name.substr(bracket + 2, name.size() - bracket - 3));
            name = name.substr(0, bracket);
        }
        // "fn() {", "fn();", either with a comment behind it.
        const auto comment = body.find("/*");
        const auto code = trim(body.substr(0, comment));
        const bool opens = code.ends_with('{');
        if (!opens && !code.ends_with(';')) {
            return false;
        }
        const std::string text = printable(name);
        if (!module.empty()) {
            out_.modules[text] = printable(module);
        }
        out_.time.push_back(stack.empty() ? roots_++ : out_.time[stack.back()]);
        out_.duration.push_back(duration.value_or(0));
        out_.parent.push_back(stack.empty() ? -1 : static_cast<std::int64_t>(stack.back()));
        out_.depth.push_back(static_cast<std::int32_t>(stack.size()));
        out_.function.push_back(out_.names->intern(text));
        const auto pid = pids_.find(cpu);
        out_.pid.push_back(pid == pids_.end() ? 0 : pid->second);
        out_.cpu.push_back(static_cast<std::uint16_t>(cpu));
        out_.complete.push_back(!opens && duration ? 1 : 0);
        if (opens) {
            stack.push_back(out_.size() - 1);
        }
        return true;
    }

    const std::string& source_;
    OnError on_error_;
    CallGraph out_;
    std::map<std::uint32_t, std::vector<std::size_t>> stacks_;  // open calls by CPU
    std::map<std::uint32_t, std::int32_t> pids_;
    std::uint64_t roots_ = 0;
    std::uint64_t lost_ = 0;
    std::uint64_t unpaired_ = 0;
    std::uint64_t unread_ = 0;
    Damage damage_;
};

}  // namespace

CallGraph read_graph_text(std::string_view text, const std::string& source, OnError on_error) {
    return GraphText(source, on_error).read(text);
}

}  // namespace sampleblk::trace
