// SPDX-License-Identifier: MIT
#include "sampleblk/text.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>

namespace sampleblk {

namespace {

constexpr char kDigits[] = "0123456789abcdef";

void append_byte(std::string& out, char c) {
    const auto byte = static_cast<unsigned char>(c);
    out += "\\x";
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
}

// Bytes of the UTF-8 sequence at the start of `text`; 0 when there is none.
std::size_t utf8_length(std::string_view text) noexcept {
    const auto at = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = at(0);
    if (first < 0x80) {
        return 1;
    }
    std::size_t length = 0;
    std::uint32_t code = 0;
    std::uint32_t least = 0;
    if ((first & 0xe0) == 0xc0) {
        length = 2;
        code = first & 0x1f;
        least = 0x80;
    } else if ((first & 0xf0) == 0xe0) {
        length = 3;
        code = first & 0x0f;
        least = 0x800;
    } else if ((first & 0xf8) == 0xf0) {
        length = 4;
        code = first & 0x07;
        least = 0x10000;
    } else {
        return 0;
    }
    if (text.size() < length) {
        return 0;
    }
    for (std::size_t i = 1; i < length; ++i) {
        if ((at(i) & 0xc0) != 0x80) {
            return 0;
        }
        code = (code << 6) | (at(i) & 0x3fU);
    }
    const bool surrogate = code >= 0xd800 && code < 0xe000;
    return code < least || code > 0x10ffff || surrogate ? 0 : length;
}

// Bytes at the start of `text` that are UTF-8.
std::size_t valid_prefix(std::string_view text) noexcept {
    std::size_t at = 0;
    while (at < text.size()) {
        // Almost all is ASCII: eight at a time.
        std::uint64_t word = 0;
        if (text.size() - at >= sizeof(word)) {
            std::memcpy(&word, text.data() + at, sizeof(word));
            if ((word & 0x8080808080808080U) == 0) {
                at += sizeof(word);
                continue;
            }
        }
        const std::size_t length = utf8_length(text.substr(at));
        if (length == 0) {
            break;
        }
        at += length;
    }
    return at;
}

}  // namespace

bool is_utf8(std::string_view text) noexcept {
    return valid_prefix(text) == text.size();
}

std::string printable(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (;;) {
        const std::size_t valid = valid_prefix(text);
        out += text.substr(0, valid);
        if (valid == text.size()) {
            return out;
        }
        append_byte(out, text[valid]);
        text.remove_prefix(valid + 1);
    }
}

std::string plain_text(std::string_view text) {
    const std::string valid = printable(text);
    std::string out;
    out.reserve(valid.size());
    for (std::size_t i = 0; i < valid.size(); ++i) {
        const char c = valid[i];
        const bool control = static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t';
        const std::string_view here = std::string_view(valid).substr(i, 3);
        if (c == '\xc2' && here.size() > 1 && static_cast<unsigned char>(here[1]) < 0xa0) {
            append_byte(out, c);
            append_byte(out, valid[++i]);
        } else if (here == "\xef\xbf\xbe" || here == "\xef\xbf\xbf") {
            for (const char each : here) {
                append_byte(out, each);
            }
            i += 2;
        } else if (control || c == 0x7f) {
            append_byte(out, c);
        } else {
            out += c;
        }
    }
    return out;
}

std::string xml_text(std::string_view text) {
    std::string out;
    for (const char c : plain_text(text)) {
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
    for (const char c : printable(text)) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (byte < 0x20) {
            out += "\\u00";
            out += kDigits[byte >> 4];
            out += kDigits[byte & 15];
        } else {
            out += c;
        }
    }
    return out + "\"";
}

std::string hex_number(std::uint64_t value) {
    char digits[16];
    const auto [end, code] = std::to_chars(digits, digits + sizeof(digits), value, 16);
    (void)code;
    return "0x" + std::string(digits, end);
}

std::string mount_path(std::string_view text) {
    std::string out;
    const auto octal = [](char c) { return c >= '0' && c <= '7'; };
    while (!text.empty()) {
        const bool escape = text.size() >= 4 && text[0] == '\\' && std::ranges::all_of(text.substr(1, 3), octal);
        out += escape ? static_cast<char>((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0')) : text[0];
        text.remove_prefix(escape ? 4 : 1);
    }
    return out;
}

std::string_view trim(std::string_view text) noexcept {
    const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
    while (!text.empty() && is_space(text.front())) {
        text.remove_prefix(1);
    }
    while (!text.empty() && is_space(text.back())) {
        text.remove_suffix(1);
    }
    return text;
}

}  // namespace sampleblk
