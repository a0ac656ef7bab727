// SPDX-License-Identifier: MIT
// The checksums that verify= names, each from its specification: RFC 1321 (MD5), FIPS 180-4 (SHA-1,
// SHA-2), FIPS 202 (SHA-3), Rocksoft parameters (CRCs), the xxHash specification (XXH32).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "sampleblk/workload/options.hpp"

namespace sampleblk::workload {

inline constexpr std::size_t longest_digest = 64;

struct Digest {
    std::array<std::uint8_t, longest_digest> bytes{};
    std::size_t size = 0;

    [[nodiscard]] bool operator==(const Digest& other) const noexcept {
        return size == other.size && bytes == other.bytes;
    }
};

// The digest of `data`; size 0 for kinds that have none.
[[nodiscard]] Digest digest_of(Verify kind, std::span<const std::byte> data) noexcept;

[[nodiscard]] std::size_t digest_size(Verify kind) noexcept;

// CRC-32C (Castagnoli), by the CPU's instruction where it has one.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> data) noexcept;

}  // namespace sampleblk::workload
