// SPDX-License-Identifier: MIT
// The checksums that verify= names: MD5, SHA-1, SHA-2 and SHA-3 by libcrypto, CRC-32 by zlib, XXH32 by xxHash, and the
// CRCs that none of them has.
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
};

// Loads what a kind needs, in the parent: looking an algorithm up takes locks of libcrypto, which another thread may
// hold at the fork. Throws UnsupportedError where libcrypto does not have it (MD5 in FIPS mode).
void load_digest(Verify kind);

// The digest of `data`; size 0 for kinds without one. The kind was loaded.
[[nodiscard]] Digest digest_of(Verify kind, std::span<const std::byte> data) noexcept;

[[nodiscard]] std::size_t digest_size(Verify kind) noexcept;

}  // namespace sampleblk::workload
