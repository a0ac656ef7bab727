// SPDX-License-Identifier: MIT
// Protobuf's wire format, for writing (https://protobuf.dev/programming-guides/encoding/).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sampleblk::trace::protobuf {

inline void varint(std::string& out, std::uint64_t value) {
    while (value >= 0x80) {
        out += static_cast<char>(value | 0x80);
        value >>= 7;
    }
    out += static_cast<char>(value);
}

inline void number(std::string& out, std::uint32_t tag, std::uint64_t value) {
    varint(out, std::uint64_t{tag} << 3);
    varint(out, value);
}

// A string, bytes, or a message that was written before.
inline void bytes(std::string& out, std::uint32_t tag, std::string_view value) {
    varint(out, std::uint64_t{tag} << 3 | 2);
    varint(out, value.size());
    out += value;
}

}  // namespace sampleblk::trace::protobuf
