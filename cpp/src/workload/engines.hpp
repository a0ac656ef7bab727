// SPDX-License-Identifier: MIT
// Where a worker meets its engine.
#pragma once

namespace sampleblk::workload {

class Worker;

// Runs one pass of a worker's job on the engine that its options name.
void run_engine_loop(Worker& worker);

}  // namespace sampleblk::workload
