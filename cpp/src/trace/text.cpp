// SPDX-License-Identifier: MIT
#include "text.hpp"

#include <charconv>

#include "sampleblk/trace/bytes.hpp"

namespace sampleblk::trace {

namespace {

constexpr char kDigits[] = "0123456789abcdef";

}  // namespace

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
