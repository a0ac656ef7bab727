// SPDX-License-Identifier: MIT
#include "text.hpp"

#include <charconv>

#include "sampleblk/trace/bytes.hpp"

namespace sampleblk::trace {

namespace {

constexpr char kDigits[] = "0123456789abcdef";

// Bytes of the UTF-8 sequence at the start of `text`; 0 when there is none.
std::size_t utf8_length(std::string_view text) {
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

}  // namespace

std::string printable(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        if (length == 0) {
            const auto byte = static_cast<unsigned char>(text.front());
            out += "\\x";
            out += kDigits[byte >> 4];
            out += kDigits[byte & 15];
            text.remove_prefix(1);
        } else {
            out += text.substr(0, length);
            text.remove_prefix(length);
        }
    }
    return out;
}

std::string hex_number(std::uint64_t value) {
    char buffer[16];
    const auto [end, code] = std::to_chars(buffer, buffer + sizeof(buffer), value, 16);
    (void)code;
    return "0x" + std::string(buffer, end);
}

std::string hex_array(std::span<const std::byte> bytes, std::uint32_t element_size, bool swap) {
    std::string out;
    if (element_size != 2 && element_size != 4 && element_size != 8) {
        out.reserve(bytes.size() * 2);
        for (const std::byte byte : bytes) {
            out += kDigits[static_cast<unsigned>(byte) >> 4];
            out += kDigits[static_cast<unsigned>(byte) & 15];
        }
        return out;
    }
    for (std::size_t at = 0; at + element_size <= bytes.size(); at += element_size) {
        const std::byte* from = bytes.data() + at;
        const std::uint64_t value = element_size == 2   ? load<std::uint16_t>(from, swap)
                                    : element_size == 4 ? load<std::uint32_t>(from, swap)
                                                        : load<std::uint64_t>(from, swap);
        out += (out.empty() ? "" : ",") + hex_number(value);
    }
    return out;
}

}  // namespace sampleblk::trace
