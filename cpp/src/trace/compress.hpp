// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sampleblk/trace/file.hpp"

namespace sampleblk::trace {

// Exactly `size` bytes out of `source`; nullopt when that is not what it holds.
[[nodiscard]] std::optional<std::vector<std::byte>> decompress(Compression how, std::span<const std::byte> source,
                                                               std::uint32_t size);

}  // namespace sampleblk::trace
