// SPDX-License-Identifier: MIT
#include "fuzz_job_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return sampleblk::workload::fuzz_job_file(data, size);
}
