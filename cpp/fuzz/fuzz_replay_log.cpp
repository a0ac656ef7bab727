// SPDX-License-Identifier: MIT
#include "fuzz_replay_log.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    sampleblk::workload::fuzz_replay_log(data, size);
    return 0;
}
