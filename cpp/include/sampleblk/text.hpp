// SPDX-License-Identifier: MIT
// Bytes as text for people and files: recordings hold names that are not UTF-8, which Python, Arrow and JSON refuse.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sampleblk {

[[nodiscard]] bool is_utf8(std::string_view text) noexcept;

// `text` itself where it is UTF-8; else with each byte that is not as \xNN.
[[nodiscard]] std::string printable(std::string_view text);

// The same, for a terminal or XML: control characters but newline and tab, those from U+0080 on as well, and U+FFFE and
// U+FFFF, as \xNN.
[[nodiscard]] std::string plain_text(std::string_view text);

// plain_text() with & < > " escaped.
[[nodiscard]] std::string xml_text(std::string_view text);

// printable() as a JSON string, with its quotes.
[[nodiscard]] std::string json_text(std::string_view text);

// "0x" and the digits of `value`.
[[nodiscard]] std::string hex_number(std::uint64_t value);

// A path of /proc/mounts, which has blanks and backslashes in octal (proc(5)).
[[nodiscard]] std::string mount_path(std::string_view text);

// Without white space at either end.
[[nodiscard]] std::string_view trim(std::string_view text) noexcept;

}  // namespace sampleblk
