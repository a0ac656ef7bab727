// SPDX-License-Identifier: MIT
// Bytes of the kernel as text for people: names, and arrays of anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sampleblk/printable.hpp"  // what names go through

namespace sampleblk::trace {

// Bytes as "0a9b"; larger elements as "0x1,0x2".
[[nodiscard]] std::string hex_array(std::span<const std::byte> bytes, std::uint32_t element_size, bool swap);

// "0x" and the digits of `value`.
[[nodiscard]] std::string hex_number(std::uint64_t value);

}  // namespace sampleblk::trace
