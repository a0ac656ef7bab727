// SPDX-License-Identifier: MIT
#include "sampleblk/crc.hpp"

#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace sampleblk {

namespace {

constexpr auto crc32c_table = make_crc_table<std::uint32_t>(0x82f63b78U);

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
    return ~reflected_crc(crc32c_table, 0xffffffffU, data);
}

}  // namespace sampleblk
