// SPDX-License-Identifier: MIT
#include "sampleblk/units.hpp"

#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <limits>

#include "sampleblk/error.hpp"

namespace sampleblk {

namespace {

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return out;
}

// The factor of a suffix, or 0 when it is none.
std::uint64_t suffix_factor(const std::string& suffix) {
    if (suffix.empty() || suffix == "b") {
        return 1;
    }
    if (suffix == "s") {
        return 512;
    }
    constexpr std::string_view letters = "kmgtp";
    const std::size_t power = letters.find(suffix[0]);
    if (power == std::string_view::npos) {
        return 0;
    }
    const std::string_view rest = std::string_view(suffix).substr(1);
    std::uint64_t base = 0;
    if (rest.empty() || rest == "ib" || rest == "i") {
        base = 1024;
    } else if (rest == "b") {
        base = 1000;
    } else {
        return 0;
    }
    std::uint64_t factor = 1;
    for (std::size_t i = 0; i <= power; ++i) {
        factor *= base;
    }
    return factor;
}

std::string scaled(double value, const char* unit) {
    std::array<char, 48> text{};
    const int digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    (void)std::snprintf(text.data(), text.size(), "%.*f", digits, value);
    std::string out(text.data());
    if (out.find('.') != std::string::npos) {
        out.erase(out.find_last_not_of('0') + 1);
        if (out.back() == '.') {
            out.pop_back();
        }
    }
    return out + " " + unit;
}

}  // namespace

std::uint64_t parse_bytes(std::string_view text, std::string_view what) {
    const auto refuse = [&](std::string_view why) -> InputError {
        return {std::string(what) + " '" + std::string(text) + "' " + std::string(why),
                {},
                0,
                "a whole number of bytes with an optional suffix, such as 4096, 0x1000, 4k, 64M, "
                "2MiB, 2MB or 8s"};
    };
    std::string_view digits = text;
    int base = 10;
    if (digits.size() > 2 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) {
        base = 16;
        digits.remove_prefix(2);
    }
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
    if (error == std::errc::result_out_of_range) {
        throw refuse("is larger than 64 bits hold");
    }
    if (error != std::errc()) {
        throw refuse("is not a size");
    }
    const std::uint64_t factor = suffix_factor(lower(digits.substr(static_cast<std::size_t>(end - digits.data()))));
    if (factor == 0) {
        throw refuse("is not a size");
    }
    if (number > std::numeric_limits<std::uint64_t>::max() / factor) {
        throw refuse("is larger than 64 bits hold");
    }
    return number * factor;
}

std::string format_bytes(std::uint64_t bytes) {
    constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1023.5 && unit + 1 < units.size()) {
        value /= 1024;
        ++unit;
    }
    return scaled(value, units[unit]);
}

std::string format_duration(std::uint64_t nanoseconds) {
    constexpr std::array units = {"ns", "us", "ms", "s"};
    auto value = static_cast<double>(nanoseconds);
    std::size_t unit = 0;
    while (value >= 999.5 && unit + 1 < units.size()) {
        value /= 1000;
        ++unit;
    }
    return scaled(value, units[unit]);
}

}  // namespace sampleblk
