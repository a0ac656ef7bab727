// SPDX-License-Identifier: MIT
// Bytes of the kernel as text for people: names, and arrays of anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sampleblk/error.hpp"
#include "sampleblk/text.hpp"  // what names go through

namespace sampleblk::trace {

// Bytes as "0a9b"; larger elements as "0x1,0x2".
[[nodiscard]] std::string hex_array(std::span<const std::byte> bytes, std::uint32_t element_size, bool swap);

// One or more of 0 to 9.
[[nodiscard]] bool is_digits(std::string_view text) noexcept;

// That line `number` (from 1) of `source`, which begins at byte `at`, is not what was `expected`.
[[nodiscard]] FormatError line_error(const std::string& source, std::uint64_t at, std::uint64_t number,
                                     std::string_view line, const std::string& expected);

}  // namespace sampleblk::trace
