// SPDX-License-Identifier: MIT
// Bytes as text for people: recordings hold names that are not UTF-8, which Python, Arrow and JSON refuse.
#pragma once

#include <string>
#include <string_view>

namespace sampleblk {

[[nodiscard]] bool is_utf8(std::string_view text) noexcept;

// `text` itself where it is UTF-8; else with each byte that is not as \xNN.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace sampleblk
