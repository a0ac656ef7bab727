// SPDX-License-Identifier: MIT
#include "fuzz_device_journal.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return sampleblk::fuzz::device_journal(data, size);
}
