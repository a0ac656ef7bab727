// SPDX-License-Identifier: MIT
// The entry of the fuzz targets of the kernel's own descriptions; SAMPLEBLK_FUZZ_TARGET names which.
#include "fuzz_inspect.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return sampleblk::fuzz::SAMPLEBLK_FUZZ_TARGET(data, size);
}
