// SPDX-License-Identifier: MIT
#include "digest_crc.hpp"

#include <array>
#include <cstring>

#include "digest.hpp"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace sampleblk::workload {

namespace {

// Eight tables, so that a step takes eight bytes ("slicing by 8", Kounavis and Berry 2005).
template <typename T>
using Tables = std::array<std::array<T, 256>, 8>;

template <typename T>
constexpr Tables<T> make_tables(T reversed_polynomial) {
    Tables<T> tables{};
    for (std::size_t byte = 0; byte < 256; ++byte) {
        T value = static_cast<T>(byte);
        for (int bit = 0; bit < 8; ++bit) {
            value = static_cast<T>((value >> 1) ^ ((value & 1) != 0 ? reversed_polynomial : 0));
        }
        tables[0][byte] = value;
    }
    for (std::size_t byte = 0; byte < 256; ++byte) {
        for (std::size_t k = 1; k < 8; ++k) {
            const T before = tables[k - 1][byte];
            tables[k][byte] = static_cast<T>((before >> 8) ^ tables[0][before & 0xff]);
        }
    }
    return tables;
}

template <typename T>
T reflected(const Tables<T>& tables, T value, std::span<const std::byte> data) noexcept {
    const std::byte* at = data.data();
    std::size_t left = data.size();
    for (; left >= 8; left -= 8, at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, at, sizeof(word));
        word ^= value;
        value = 0;
        for (std::size_t k = 0; k < 8; ++k) {
            value = static_cast<T>(value ^ tables[7 - k][(word >> (8 * k)) & 0xff]);
        }
    }
    for (; left != 0; --left, ++at) {
        const auto byte = static_cast<std::uint8_t>(*at);
        value = static_cast<T>((sizeof(T) > 1 ? value >> 8 : 0) ^ tables[0][(value ^ byte) & 0xff]);
    }
    return value;
}

constexpr Tables<std::uint32_t> crc32_tables = make_tables<std::uint32_t>(0xedb88320U);
constexpr Tables<std::uint32_t> crc32c_tables = make_tables<std::uint32_t>(0x82f63b78U);
constexpr Tables<std::uint64_t> crc64_tables = make_tables<std::uint64_t>(0xc96c5795d7870f42U);
constexpr Tables<std::uint16_t> crc16_tables = make_tables<std::uint16_t>(0xa001U);

// CRC-7 is not reflected; shifted up by one bit it is a CRC-8 of polynomial 0x12.
constexpr std::array<std::uint8_t, 256> crc7_table = [] {
    std::array<std::uint8_t, 256> table{};
    for (unsigned byte = 0; byte < 256; ++byte) {
        unsigned value = byte;
        for (int bit = 0; bit < 8; ++bit) {
            value = (value & 0x80) != 0 ? (value << 1) ^ 0x12 : value << 1;
        }
        table[byte] = static_cast<std::uint8_t>(value);
    }
    return table;
}();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_cpu(std::span<const std::byte> data) noexcept {
    std::uint64_t value = 0xffffffffU;
    const std::byte* at = data.data();
    std::size_t left = data.size();
    for (; left >= 8; left -= 8, at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, at, sizeof(word));
        value = _mm_crc32_u64(value, word);
    }
    auto rest = static_cast<std::uint32_t>(value);
    for (; left != 0; --left, ++at) {
        rest = _mm_crc32_u8(rest, static_cast<std::uint8_t>(*at));
    }
    return ~rest;
}
#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> data) noexcept {
#if defined(__x86_64__)
    static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
    if (has_instruction) {
        return crc32c_by_cpu(data);
    }
#endif
    return ~reflected<std::uint32_t>(crc32c_tables, 0xffffffffU, data);
}

std::uint32_t crc32(std::span<const std::byte> data) noexcept {
    return ~reflected<std::uint32_t>(crc32_tables, 0xffffffffU, data);
}

std::uint64_t crc64(std::span<const std::byte> data) noexcept {
    return ~reflected<std::uint64_t>(crc64_tables, ~std::uint64_t{0}, data);
}

std::uint16_t crc16(std::span<const std::byte> data) noexcept {
    return reflected<std::uint16_t>(crc16_tables, 0, data);
}

std::uint8_t crc7(std::span<const std::byte> data) noexcept {
    std::uint8_t value = 0;
    for (const std::byte byte : data) {
        value = crc7_table[value ^ static_cast<std::uint8_t>(byte)];
    }
    return static_cast<std::uint8_t>(value >> 1);
}

}  // namespace sampleblk::workload
