// SPDX-License-Identifier: MIT
// What the tables of keys are made of: rows, and setters, each a function from text to a field.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "sampleblk/error.hpp"
#include "sampleblk/workload/keys.hpp"

namespace sampleblk::workload::setters {

using Apply = void (*)(JobOptions& options, std::string_view text);

// A supported key. `names` are its name and its aliases, separated by blanks.
[[nodiscard]] constexpr Key key(std::string_view names, std::string_view form, std::string_view default_text,
                                std::string_view help, Apply apply) {
    const std::size_t end = names.find(' ');
    const std::string_view aliases = end == std::string_view::npos ? std::string_view() : names.substr(end + 1);
    return {names.substr(0, end), aliases, form, default_text, Effect::result, Support::full, help, apply};
}

// The same for a key that changes no I/O, but what is reported of it.
[[nodiscard]] constexpr Key report_key(std::string_view names, std::string_view form, std::string_view default_text,
                                       std::string_view help, Apply apply) {
    Key made = key(names, form, default_text, help, apply);
    made.effect = Effect::report;
    return made;
}

[[noreturn]] inline void out_of_range(std::string_view text, const std::string& expected) {
    throw InputError("'" + std::string(text) + "' is out of range", {}, 0, expected);
}

// Which of `words` the text is, counted from 0: they are separated by blanks, the spellings of one by bars. A word with
// an exclamation mark is one that fio knows and we do not support. Throws InputError.
[[nodiscard]] std::size_t pick(std::string_view words, std::string_view text);

// The first spelling of each word.
[[nodiscard]] std::string_view word_of(std::string_view words, std::size_t index);

template <auto Member>
using MemberType = std::remove_cvref_t<decltype(std::declval<JobOptions&>().*Member)>;

template <auto Member>
void flag(JobOptions& options, std::string_view text) {
    options.*Member = parse_bool(text);
}

template <auto Member>
void text_value(JobOptions& options, std::string_view text) {
    options.*Member = std::string(text);
}

[[nodiscard]] std::uint64_t parse_bounded(std::string_view text, KbBase base, std::uint64_t least, std::uint64_t most);

// A count or a size; `Least` and `Most` bound it, and so does the type of the field.
template <auto Member, std::uint64_t Least = 0, std::uint64_t Most = std::numeric_limits<MemberType<Member>>::max()>
void number(JobOptions& options, std::string_view text) {
    static_assert(Most <= std::numeric_limits<MemberType<Member>>::max());
    options.*Member = static_cast<MemberType<Member>>(parse_bounded(text, options.kb_base, Least, Most));
}

template <auto Member, std::int64_t Least, std::int64_t Most>
void signed_number(JobOptions& options, std::string_view text) {
    const std::int64_t value = parse_number(text, options.kb_base);
    if (value < Least || value > Most) {
        out_of_range(text, std::to_string(Least) + " to " + std::to_string(Most));
    }
    options.*Member = static_cast<MemberType<Member>>(value);
}

template <auto Member, std::uint64_t UnitNs>
void duration(JobOptions& options, std::string_view text) {
    options.*Member = parse_duration(text, UnitNs);
}

template <auto Member>
void size_or_percent(JobOptions& options, std::string_view text) {
    options.*Member = parse_size_or_percent(text, options.kb_base);
}

inline constexpr std::uint64_t microsecond = 1'000;
inline constexpr std::uint64_t millisecond = 1'000'000;
inline constexpr std::uint64_t second = 1'000'000'000;

// An enumeration whose values are in the order of the words.
template <auto Member, const auto& Words>
void choice(JobOptions& options, std::string_view text) {
    options.*Member = static_cast<MemberType<Member>>(pick(Words, text));
}

// A key that has one supported value, which is what happens anyway.
template <const auto& Words>
void only(JobOptions& /*options*/, std::string_view text) {
    (void)pick(Words, text);
}

// Calls `set` with each direction that the triple names.
template <typename Set>
void each_of_triple(std::string_view text, Set set) {
    const auto triple = split_triple(text);
    for (std::size_t i = 0; i < data_directions; ++i) {
        if (const auto& part = triple[i]; part) {
            set(i, *part);
        }
    }
}

template <auto Member, std::uint64_t Least = 0, std::uint64_t Most = UINT64_MAX>
void size_triple(JobOptions& options, std::string_view text) {
    each_of_triple(text, [&](std::size_t i, std::string_view part) {
        (options.*Member)[i] = static_cast<std::remove_cvref_t<decltype((options.*Member)[i])>>(
            parse_bounded(part, options.kb_base, Least, Most));
    });
}

template <auto Member, std::uint64_t UnitNs>
void duration_triple(JobOptions& options, std::string_view text) {
    each_of_triple(text,
                   [&](std::size_t i, std::string_view part) { (options.*Member)[i] = parse_duration(part, UnitNs); });
}

}  // namespace sampleblk::workload::setters
