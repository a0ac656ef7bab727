// SPDX-License-Identifier: MIT
// Block I/O that other tools recorded, as a trace.dat: every view, comparison and export then serves it too.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sampleblk/trace/file.hpp"

namespace sampleblk::trace {

// Reads one of
// - the text of events: `perf script`, `trace-cmd report` (with -t or not), ftrace's own `trace` and `trace_pipe`. Of
//   block:* events each field is kept; of all others the text, in the field "text". Stacks are left out, and counted.
// - the text of a snooper: bcc's and libbpf-tools' biosnoop, perf-tools' iosnoop with -s or -t. Each line becomes
//   block_rq_insert (where it tells the time in the queue), block_rq_issue and block_rq_complete, on CPU 0; the task of
//   the completion is -1. A disk told by its name has device 0,1, 0,2 …
// - blktrace's binary files of one recording, a file per CPU or all joined.
// and writes it to `path`, whole or not at all. Which one it is is seen in the first bytes.
// Returns what there is to say of it: "format", "events", and where they are not 0 "lost_events", "unread_lines",
// "stack_lines", "cut_texts", "skipped_NAME" (blktrace's actions that are no block:* event), "device M,N" (a disk's
// name), "cut_off" files, "gaps" in the numbers of blktrace's records.
// Throws FormatError with file and line (or offset) for what cannot be read; with OnError::skip lines are counted.
[[nodiscard]] std::map<std::string, std::string> import_events(const std::vector<std::string>& sources,
                                                               const std::string& path, OnError on_error);

}  // namespace sampleblk::trace
