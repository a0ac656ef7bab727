// SPDX-License-Identifier: MIT
// Text for XML and JSON out of bytes that may be anything: threads and functions have the names that programs give.
#pragma once

#include <string>
#include <string_view>

namespace sampleblk::profile {

// Valid UTF-8: what is none becomes U+FFFD, as do control characters that XML cannot carry.
[[nodiscard]] std::string clean_text(std::string_view text);
// The same with & < > " escaped.
[[nodiscard]] std::string xml_text(std::string_view text);
// A JSON string with its quotes.
[[nodiscard]] std::string json_text(std::string_view text);

}  // namespace sampleblk::profile
