// SPDX-License-Identifier: MIT
// CRCs that neither zlib nor libcrypto has.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sampleblk {

// The table of a reflected CRC, for a byte at a time.
template <typename T>
constexpr std::array<T, 256> make_crc_table(T reversed_polynomial) {
    std::array<T, 256> table{};
    for (std::size_t byte = 0; byte < 256; ++byte) {
        T value = static_cast<T>(byte);
        for (int bit = 0; bit < 8; ++bit) {
            value = static_cast<T>((value >> 1) ^ ((value & 1) != 0 ? reversed_polynomial : 0));
        }
        table[byte] = value;
    }
    return table;
}

template <typename T>
T reflected_crc(const std::array<T, 256>& table, T value, std::span<const std::byte> data) noexcept {
    for (const std::byte byte : data) {
        value = static_cast<T>((value >> 8) ^ table[(value ^ static_cast<std::uint8_t>(byte)) & 0xff]);
    }
    return value;
}

// CRC-32C (Castagnoli), by the CPU's instruction where it has one.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> data) noexcept;

}  // namespace sampleblk
