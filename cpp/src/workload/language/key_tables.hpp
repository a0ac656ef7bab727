// SPDX-License-Identifier: MIT
// The parts that the table of keys is put together from, one per topic.
#pragma once

#include <span>

#include "sampleblk/workload/keys.hpp"

namespace sampleblk::workload {

[[nodiscard]] std::span<const Key> job_keys();      // identity, number, order, process
[[nodiscard]] std::span<const Key> pattern_keys();  // direction, block sizes, randomness
[[nodiscard]] std::span<const Key> file_keys();     // sizes, files, layout, durability, replay
[[nodiscard]] std::span<const Key> engine_keys();   // engines, depth, memory
[[nodiscard]] std::span<const Key> data_keys();     // buffers, verify
[[nodiscard]] std::span<const Key> pacing_keys();   // time, think time, rate, latency target
[[nodiscard]] std::span<const Key> report_keys();   // logs, percentiles, steady state

}  // namespace sampleblk::workload
