// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace sampleblk::workload {

// The rate of this machine's time stamp counter in kHz, to some 20 ppm; 0 where it cannot be trusted as a clock.
// Measured once per process, which takes a few milliseconds.
[[nodiscard]] std::uint64_t tsc_khz();

}  // namespace sampleblk::workload
