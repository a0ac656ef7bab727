// SPDX-License-Identifier: MIT
#include "markup.hpp"

#include <array>
#include <cstdint>
#include <cstdio>

namespace sampleblk::profile {

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Bytes of the valid UTF-8 character at the start; 0 where there is none.
std::size_t character(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned first = byte(0);
    if (first < 0x80) {
        return 1;
    }
    const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || text.size() < length) {
        return 0;
    }
    std::uint32_t value = first & (0xffU >> (length + 1));
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0U) != 0x80) {
            return 0;
        }
        value = value << 6U | (byte(i) & 0x3fU);
    }
    constexpr std::array<std::uint32_t, 5> least = {0, 0, 0x80, 0x800, 0x10000};
    const bool surrogate = value >= 0xd800 && value <= 0xdfff;
    const bool no_character = (value & 0xfffeU) == 0xfffe;
    return value < least[length] || value > 0x10ffff || surrogate || no_character ? 0 : length;
}

}  // namespace

std::string clean_text(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const std::size_t length = character(text);
        const bool control =
            length == 1 && static_cast<unsigned char>(text[0]) < 0x20 && text[0] != '\n' && text[0] != '\t';
        if (length == 0 || control || text[0] == 0x7f) {
            out += kReplacement;
            text.remove_prefix(1);
        } else {
            out += text.substr(0, length);
            text.remove_prefix(length);
        }
    }
    return out;
}

std::string xml_text(std::string_view text) {
    std::string out;
    for (const char c : clean_text(text)) {
        switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            default:
                out += c;
        }
    }
    return out;
}

std::string json_text(std::string_view text) {
    std::string out = "\"";
    for (const char c : clean_text(text)) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            std::array<char, 8> code{};
            (void)std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(c));
            out += code.data();
        } else {
            out += c;
        }
    }
    return out + "\"";
}

}  // namespace sampleblk::profile
