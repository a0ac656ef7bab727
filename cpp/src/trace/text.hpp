// SPDX-License-Identifier: MIT
// Bytes of the kernel as text for people: recordings hold names that are not UTF-8, and arrays of anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sampleblk::trace {

// `text` itself where it is UTF-8; else with each byte that is not as \xNN.
[[nodiscard]] std::string printable(std::string_view text);

// Bytes as "0a9b"; larger elements as "0x1,0x2".
[[nodiscard]] std::string hex_array(std::span<const std::byte> bytes, std::uint32_t element_size, bool swap);

// "0x" and the digits of `value`.
[[nodiscard]] std::string hex_number(std::uint64_t value);

}  // namespace sampleblk::trace
