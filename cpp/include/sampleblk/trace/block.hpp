// SPDX-License-Identifier: MIT
// The life of block I/O out of the block:* events, as blktrace letters it: Q queued, G request gotten, I inserted, D
// issued to the driver, C completed, with merges, splits, plugging. Paired by device, sector and operation.
#pragma once

#include "sampleblk/table.hpp"
#include "sampleblk/trace/file.hpp"
#include "sampleblk/trace/walk.hpp"

namespace sampleblk::trace {

// One row a request (or a bio of a driver without requests), by the time of its first event: "device" ("major,minor"),
// "sector", "sectors" (of 512 bytes), "operation" (R, W, D, F, …), "rwbs", "pid" (who queued it), "issuer" and
// "completer" (the tasks that were running then; -1: no such event), "queued", "gotten", "inserted", "issued",
// "completed" (ns; 0: no such event), "merges" (bios merged into it), "error" (errno, 0: none).
// A flush that the block layer makes itself has sector 0 and was queued by nobody. A completion whose request was not
// seen before has a row with nothing but its end ("pid" -1); so has that of a zone append, which is issued at the start
// of its zone and completes where it was written: which of the appends to a zone it was, no event says.
// The metadata counts plugs, unplugs, splits, requeues, merges, such "unpaired" completions, those of "appends" among
// them, and "flush_sequences": writes that ended once more when the flush behind them was done.
[[nodiscard]] Table block_table(const TraceFile& file, const Selection& selection);

// Where in their files the calls of a system-call table read and wrote: "time", "duration", "pid", "fd", "operation"
// ("read" or "write"), "offset" and "size" (bytes), "known" (0 where the file's position at the recording's start is
// not known and was taken for 0). The offset of plain read(2) and write(2) is followed from open, lseek and the calls
// before.
[[nodiscard]] Table offset_table(const Table& calls);

// For each row of a system-call table, of its "arg0", "arg1" and "arg2" as descriptors when the call begins: the row
// that opened their file, or -1.
[[nodiscard]] Table opened_table(const Table& calls);

}  // namespace sampleblk::trace
