// SPDX-License-Identifier: MIT
// The CRCs among the digests. Parameters as in the catalogue of parametrised CRC algorithms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sampleblk::workload {

[[nodiscard]] std::uint32_t crc32(std::span<const std::byte> data) noexcept;  // CRC-32/ISO-HDLC, as zlib
[[nodiscard]] std::uint64_t crc64(std::span<const std::byte> data) noexcept;  // CRC-64/XZ
[[nodiscard]] std::uint16_t crc16(std::span<const std::byte> data) noexcept;  // CRC-16/ARC
[[nodiscard]] std::uint8_t crc7(std::span<const std::byte> data) noexcept;    // CRC-7/MMC

}  // namespace sampleblk::workload
