// SPDX-License-Identifier: MIT
// Sizes and durations as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sampleblk {

// A size in bytes: a decimal or 0x number with an optional suffix. "k", "M", "G", "T", "P" and
// "KiB"… count in 1024; "kB", "MB"… in 1000; "s" is a 512-byte sector. Case does not matter, except
// that no suffix is one letter away from another. Throws InputError naming `what` on anything else,
// a negative number or an overflow.
[[nodiscard]] std::uint64_t parse_bytes(std::string_view text, std::string_view what = "size");

// "64 KiB", "1.5 GiB": three significant digits, powers of 1024.
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);

// "813 ns", "1.24 ms": three significant digits.
[[nodiscard]] std::string format_duration(std::uint64_t nanoseconds);

}  // namespace sampleblk
