// SPDX-License-Identifier: MIT
#include "fuzz_crash_log.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return sampleblk::crash::fuzz_crash_log(data, size);
}
