// SPDX-License-Identifier: MIT
// The setters that the key tables are made of: each is one function from text to a field.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "sampleblk/error.hpp"
#include "sampleblk/workload/keys.hpp"

namespace sampleblk::workload::setters {

template <auto Member>
void flag(JobOptions& options, std::string_view text) {
    options.*Member = parse_bool(text);
}

template <auto Member>
void text_value(JobOptions& options, std::string_view text) {
    options.*Member = std::string(trim(text));
}

// A count or size; `Least` and `Most` bound it.
template <auto Member, std::uint64_t Least = 0, std::uint64_t Most = UINT64_MAX>
void number(JobOptions& options, std::string_view text) {
    const std::uint64_t value = parse_unsigned(text, options.kb_base);
    if (value < Least || value > Most) {
        throw InputError("'" + std::string(text) + "' is out of range", {}, 0,
                         Most == UINT64_MAX ? "at least " + std::to_string(Least)
                                            : std::to_string(Least) + " to " + std::to_string(Most));
    }
    options.*Member = static_cast<std::remove_cvref_t<decltype(options.*Member)>>(value);
}

template <auto Member, std::int64_t Least, std::int64_t Most>
void signed_number(JobOptions& options, std::string_view text) {
    const std::int64_t value = parse_number(text, options.kb_base);
    if (value < Least || value > Most) {
        throw InputError("'" + std::string(text) + "' is out of range", {}, 0,
                         std::to_string(Least) + " to " + std::to_string(Most));
    }
    options.*Member = static_cast<std::remove_cvref_t<decltype(options.*Member)>>(value);
}

template <auto Member, std::uint64_t UnitNs>
void duration(JobOptions& options, std::string_view text) {
    options.*Member = parse_duration(text, UnitNs);
}

template <auto Member>
void size_or_percent(JobOptions& options, std::string_view text) {
    options.*Member = parse_size_or_percent(text, options.kb_base);
}

template <auto Member>
void fraction(JobOptions& options, std::string_view text) {
    options.*Member = parse_float(text);
}

inline constexpr std::uint64_t nanosecond = 1;
inline constexpr std::uint64_t microsecond = 1'000;
inline constexpr std::uint64_t millisecond = 1'000'000;
inline constexpr std::uint64_t second = 1'000'000'000;

// One of a list of words. `List` is a constexpr array of {word, value}.
template <typename T>
struct Word {
    std::string_view word;
    T value;
};

template <typename T, std::size_t N>
[[nodiscard]] T pick(const std::array<Word<T>, N>& words, std::string_view text) {
    std::string expected;
    for (const Word<T>& entry : words) {
        if (entry.word == trim(text)) {
            return entry.value;
        }
        expected += (expected.empty() ? "" : ", ") + std::string(entry.word);
    }
    throw InputError("'" + std::string(text) + "' is not known", {}, 0, expected);
}

template <auto Member, const auto& Words>
void choice(JobOptions& options, std::string_view text) {
    options.*Member = pick(Words, text);
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

template <auto Member>
void size_triple(JobOptions& options, std::string_view text) {
    each_of_triple(text, [&](std::size_t i, std::string_view part) {
        (options.*Member)[i] = parse_unsigned(part, options.kb_base);
    });
}

template <auto Member, std::uint64_t UnitNs>
void duration_triple(JobOptions& options, std::string_view text) {
    each_of_triple(text,
                   [&](std::size_t i, std::string_view part) { (options.*Member)[i] = parse_duration(part, UnitNs); });
}

}  // namespace sampleblk::workload::setters
