// SPDX-License-Identifier: MIT
// The value forms of fio's job files: numbers with units, arithmetic, ranges, triples, percentages.
// Source: fio's HOWTO, "Job file parameters", "Parameter types".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sampleblk/text.hpp"  // trim()

namespace sampleblk::workload {

// How sizes count: fio's default reads k, kB and ki as 1024 and the full KiB as 1000 ("opposite from
// SI, for compatibility with old scripts"); kb_base=1000 turns that round.
enum class KbBase : std::uint16_t { si = 1000, binary = 1024 };

// A whole number, perhaps negative, with an optional size suffix (k M G T P, Ki…, trailing B), in
// hexadecimal (0x), or an expression in parentheses over + - * / % ^. Throws InputError.
[[nodiscard]] std::int64_t parse_number(std::string_view text, KbBase base = KbBase::binary);

// An expression without units, as bc has it, which fio asks: quotients are whole. Throws InputError.
[[nodiscard]] double calculate(std::string_view text);

// parse_number, refused when negative.
[[nodiscard]] std::uint64_t parse_unsigned(std::string_view text, KbBase base = KbBase::binary);

// A duration in nanoseconds: a number (fraction allowed) with d h m s ms us ns; without one it
// counts `default_unit_ns`. Parts may follow one another with colons or without ("1m30s").
[[nodiscard]] std::uint64_t parse_duration(std::string_view text, std::uint64_t default_unit_ns);

[[nodiscard]] double parse_float(std::string_view text);

// "1", "true", "yes" and an absent value are true, "0", "false", "no" false.
[[nodiscard]] bool parse_bool(std::string_view text);

// A size in bytes or in percent of what it is a part of.
struct SizeOrPercent {
    std::uint64_t bytes = 0;
    std::uint32_t percent = 0;
    [[nodiscard]] bool set() const noexcept { return bytes != 0 || percent != 0; }
};
[[nodiscard]] SizeOrPercent parse_size_or_percent(std::string_view text, KbBase base = KbBase::binary);

// "lower-upper" or one number for both.
struct Range {
    std::uint64_t lower = 0;
    std::uint64_t upper = 0;
};
[[nodiscard]] Range parse_range(std::string_view text, KbBase base = KbBase::binary);

// Cuts at `separator`; an empty text is one empty part.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);

// "4k", "4k,8k" or ",4k,": the parts given, in the order read, write, trim. As fio has it, a part
// that is left out at the end takes the last one given, an empty part keeps what was there.
[[nodiscard]] std::vector<std::optional<std::string_view>> split_triple(std::string_view text);

}  // namespace sampleblk::workload
