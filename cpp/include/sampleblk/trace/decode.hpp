// SPDX-License-Identifier: MIT
// Events to typed columns, compiled from the format files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sampleblk/table.hpp"
#include "sampleblk/trace/file.hpp"
#include "sampleblk/trace/walk.hpp"

namespace sampleblk::trace {

struct DecodeRequest {
    std::vector<std::string> events;  // "name" or "system:name", with * and ?; empty: every event
    std::vector<std::string> fields;  // of the events; empty: all. "time" and "cpu" are always there.
    std::vector<std::int32_t> pids;   // common_pid; empty: all
    Selection selection;
    bool comm = false;     // adds "comm": the command of common_pid, as far as the file knows it
    unsigned threads = 0;  // 0: one a processor for large recordings
    bool symbols = false;  // adds "<field>_symbol" for each field that holds a kernel address
};

// What `decode` found: one table an event that occurred (or was asked for by its whole name), by "name", or
// "system:name" where two systems share the name. Each table's columns: "time" (TraceFile::time_unit()), "cpu",
// "buffer" where the events are of several, then the fields of the format under their own names but for common_type;
// arrays of up to 16 numbers as "name[0]", "name[1]"…, other arrays as hex text. A field that is itself named "time" or
// "cpu" gets a "_" at its end.
struct Decoded {
    std::map<std::string, Table> tables;
    WalkStats stats;
};

[[nodiscard]] Decoded decode(const TraceFile& file, const DecodeRequest& request);

// The same in bounded memory: `take` gets a table of at most `rows` rows of one event, again and again. Events come in
// time order within an event's tables.
WalkStats decode_batches(const TraceFile& file, const DecodeRequest& request, std::size_t rows,
                         const std::function<void(const EventFormat&, Table)>& take);

// How often each event occurs: columns "event" ("system:name"), "count", first and last time, and "buffer" where the
// events are of several, each of which has rows of its own; and the walk's own numbers in the metadata.
[[nodiscard]] Table count_events(const TraceFile& file, const Selection& selection);

// What every table made from a walk carries: loss counts of the buffers that were walked, and their names where they
// are several.
[[nodiscard]] std::map<std::string, std::string> loss_metadata(const TraceFile& file, const Selection& selection,
                                                               const WalkStats& stats);

// Whether `name` matches the glob `pattern` (* and ?).
[[nodiscard]] bool glob_match(std::string_view pattern, std::string_view name) noexcept;

}  // namespace sampleblk::trace
