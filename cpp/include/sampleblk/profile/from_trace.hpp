// SPDX-License-Identifier: MIT
// A trace.dat as a profile: its events with the kernel stacks that ftrace wrote behind them (options/stacktrace, a
// stacktrace trigger, trace-cmd record -T).
#pragma once

#include <memory>
#include <string>

#include "sampleblk/profile/perf_file.hpp"
#include "sampleblk/trace/file.hpp"

namespace sampleblk::profile {

// The recording that perf would have written of the same events: each one that has a stack is a sample, and so are
// wakeups without one. Processes are threads here, for a trace.dat does not tell them apart. Throws UnsupportedError
// when no event has a stack, and for a recording of another word size or byte order; FormatError.
[[nodiscard]] std::shared_ptr<const PerfFile> perf_file_of_trace(const trace::TraceFile& file);

// A perf.data, or a trace.dat by the above; its first bytes tell which.
[[nodiscard]] std::shared_ptr<const PerfFile> open_recording(const std::string& path, OnDamage damage);

}  // namespace sampleblk::profile
