// SPDX-License-Identifier: MIT
// The cryptographic hashes among the digests. Here they tell damaged data from whole, nothing more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sampleblk::workload {

void md5(std::span<const std::byte> data, std::uint8_t* out) noexcept;
void sha1(std::span<const std::byte> data, std::uint8_t* out) noexcept;
void sha256(std::span<const std::byte> data, std::uint8_t* out) noexcept;
void sha512(std::span<const std::byte> data, std::uint8_t* out) noexcept;
// `size` is 28, 32, 48 or 64.
void sha3(std::span<const std::byte> data, std::uint8_t* out, std::size_t size) noexcept;

}  // namespace sampleblk::workload
