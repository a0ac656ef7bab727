// SPDX-License-Identifier: MIT
// The bodies of the fuzz targets of the kernel's own descriptions; a test replays their corpora through them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sampleblk::fuzz {

// A BTF file, and the same once more as a module's on top of itself: each type, name and constant.
int btf(const std::uint8_t* data, std::size_t size);
// The text of /proc/kallsyms.
int kernel_names(const std::uint8_t* data, std::size_t size);

}  // namespace sampleblk::fuzz
