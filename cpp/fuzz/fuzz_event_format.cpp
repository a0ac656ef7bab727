// SPDX-License-Identifier: MIT
#include <string_view>

#include "fuzz_trace.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/trace/format.hpp"

namespace sampleblk::fuzz {

int event_format(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
        (void)trace::parse_event_format(text, "ftrace", "fuzz", 0);
    } catch (const FormatError&) {
    }
    try {
        (void)trace::parse_page_layout(text, false, 8, 4096, "fuzz", 0);
    } catch (const FormatError&) {
    }
    return 0;
}

}  // namespace sampleblk::fuzz
