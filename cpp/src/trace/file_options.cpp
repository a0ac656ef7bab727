// SPDX-License-Identifier: MIT
#include "file_options.hpp"

#include <charconv>
#include <cstdlib>
#include <limits>

namespace sampleblk::trace {

namespace {

// "… [local] global …" names the clock in brackets.
std::string selected_clock(std::string_view text) {
    const auto open = text.find('[');
    const auto close = text.find(']');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
        const auto end = text.find_last_not_of(" \n");
        return printable(end == std::string_view::npos ? std::string_view{} : text.substr(0, end + 1));
    }
    return printable(text.substr(open + 1, close - open - 1));
}

}  // namespace

void OptionReader::read(std::uint16_t id, ByteReader& data) {
    switch (id) {
        case kDate:
        case kOffset:
            time_offset(id, data);
            break;
        case kCpuStat:
            cpu_stat(up_to_nul(as_text(data.take(data.left(), "CPU statistics"))));
            break;
        case kTraceClock:
            file_.clock = selected_clock(up_to_nul(as_text(data.take(data.left(), "clock"))));
            break;
        case kUname:
            file_.uname = printable(up_to_nul(as_text(data.take(data.left(), "uname"))));
            break;
        case kVersion:
            file_.writer = printable(up_to_nul(as_text(data.take(data.left(), "version"))));
            break;
        case kCpuCount:
            cpu_count_ = data.number<std::uint32_t>("CPU count");
            if (cpu_count_ > kMaxCpus) {
                data.fail("at most 65536 CPUs");
            }
            break;
        case kTsc2Nsec:
            file_.time.mult = data.number<std::uint32_t>("TSC multiplier");
            file_.time.shift = data.number<std::uint32_t>("TSC shift");
            file_.time.base = data.number<std::uint64_t>("TSC offset");
            if (file_.time.shift > 63) {
                data.fail("a shift below 64");
            }
            file_.time.scaled = true;
            break;
        default:
            break;  // what the format says to skip
    }
}

void OptionReader::time_offset(std::uint16_t id, ByteReader& data) {
    const std::string text(up_to_nul(as_text(data.take(data.left(), "offset"))));
    const long long value = std::strtoll(text.c_str(), nullptr, 0);
    // DATE is in microseconds; a value that would overflow is no time.
    const long long scale = id == kDate ? 1000 : 1;
    if (value > std::numeric_limits<std::int64_t>::max() / 4096 ||
        value < std::numeric_limits<std::int64_t>::min() / 4096) {
        data.fail("a time offset");
    }
    file_.time.offset += value * scale;
}

void OptionReader::cpu_stat(std::string_view text) {
    const auto value = [](std::string_view line) {
        std::uint64_t out = 0;
        const auto colon = line.find(": ");
        if (colon != std::string_view::npos) {
            const auto digits = line.substr(colon + 2);
            std::from_chars(digits.data(), digits.data() + digits.size(), out);
        }
        return out;
    };
    while (!text.empty()) {
        const auto line = take_line(text);
        if (line.starts_with("Buffer: ")) {
            stat_buffer_ = printable(line.substr(8));
        } else if (line.starts_with("CPU: ")) {
            CpuLoss loss;
            loss.buffer = stat_buffer_;
            loss.cpu = static_cast<std::uint32_t>(value(line));
            file_.losses.push_back(loss);
        } else if (!file_.losses.empty()) {
            CpuLoss& loss = file_.losses.back();
            if (line.starts_with("entries:")) {
                loss.entries = value(line);
            } else if (line.starts_with("overrun:")) {
                loss.overrun = value(line);
            } else if (line.starts_with("commit overrun:")) {
                loss.commit_overrun = value(line);
            } else if (line.starts_with("dropped events:")) {
                loss.dropped = value(line);
            } else if (line.starts_with("read events:")) {
                loss.read = value(line);
            }
        }
    }
}

}  // namespace sampleblk::trace
