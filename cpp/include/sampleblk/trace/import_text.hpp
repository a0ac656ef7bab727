// SPDX-License-Identifier: MIT
// Recordings that others kept as text: function_graph output and strace logs.
#pragma once

#include <string>
#include <string_view>

#include "sampleblk/table.hpp"
#include "sampleblk/trace/file.hpp"
#include "sampleblk/trace/graph.hpp"

namespace sampleblk::trace {

// The text of the function_graph tracer: `trace`, `trace_pipe`, or perf-tools' funcgraph, with any of its columns
// (funcgraph-abstime, -proc, -duration, -tail, latency-format). Without funcgraph-abstime it has no absolute times;
// roots are `time` 0, 1, 2 … in the order of the text. A line that the tracer did not print, and a call of which
// neither CPU nor task is told, is a FormatError with its offset and line in `source`, or counted in the metadata
// ("unread_lines").
[[nodiscard]] CallGraph read_graph_text(std::string_view text, const std::string& source, OnError on_error);

// A log of strace, on stderr or by -o, with any of -t -tt -ttt -r -T -f -k -n -i -y -Y. One row per call: "time" (ns; 0
// where the log has none; with -r alone since the first line; with -t since midnight), "duration" (ns; 0 without -T),
// "pid" (0 without -f, and where a log on stderr does not tell), "syscall", "args" (text), "ret", "error" (name, or
// missing). Calls that strace split over two lines are joined. The table of -C at the log's end is not part of it.
// Metadata: "unfinished" and "unpaired" calls, of which the log has only one half; "omitted_spots"; "unread_lines".
[[nodiscard]] Table read_strace_log(std::string_view text, const std::string& source, OnError on_error);

// The table of strace -c or -C in a log: "percent_time", "seconds", "usecs_per_call", "calls", "errors", "syscall";
// no rows where the log has none.
[[nodiscard]] Table read_strace_summary(std::string_view text, const std::string& source);

}  // namespace sampleblk::trace
