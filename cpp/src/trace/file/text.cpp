// SPDX-License-Identifier: MIT
#include "file/text.hpp"

#include <algorithm>

#include "file/bytes.hpp"

namespace sampleblk::trace {

namespace {

constexpr char kDigits[] = "0123456789abcdef";

}  // namespace

bool is_digits(std::string_view text) noexcept {
    return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

FormatError line_error(const std::string& source, std::uint64_t at, std::uint64_t number, std::string_view line,
                       const std::string& expected) {
    constexpr std::size_t most = 80;
    std::string shown = printable(line.substr(0, most));
    return {source, at,
            expected + ", in line " + std::to_string(number) + ", which is \"" + shown +
                (line.size() > most ? "…\"" : "\"")};
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
