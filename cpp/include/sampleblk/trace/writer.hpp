// SPDX-License-Identifier: MIT
// Writes a recording as trace.dat version 6, the one that every trace-cmd and KernelShark reads.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sampleblk/trace/file.hpp"
#include "sampleblk/trace/readers.hpp"

namespace sampleblk::trace {

struct TraceHeader {
    bool big_endian = false;
    std::uint8_t long_size = 8;
    std::uint32_t page_size = 4096;
    std::string header_page;
    std::string header_event;
    std::vector<std::string> ftrace_formats;
    std::vector<std::pair<std::string, std::vector<std::string>>> event_formats;  // by system
    std::string kallsyms;
    std::string printk_formats;
    std::string command_lines;
    std::string clock;  // the text of trace_clock
    std::string uname;
    std::string writer;
    std::vector<std::string> cpu_stats;  // a text per CPU: "CPU: 0\nentries: …"; "Buffer: NAME" before an instance's
    std::vector<std::pair<std::uint16_t, std::string>> time_options;  // see TraceFile::time_options()
};

// The pages of one ring buffer.
struct BufferSpool {
    std::string name;             // empty: the top level
    std::vector<SpoolFile> cpus;  // sorted by CPU
};

struct HeaderOptions {
    std::vector<std::string> events;  // "system:name" whose formats the file needs
    bool kallsyms = true;             // reading it costs a second in an emulated guest
};

// Gathers the header from a live tracefs; `instance_dir` gives the clock and the statistics.
[[nodiscard]] TraceHeader gather_header(const std::string& instance_dir, const HeaderOptions& options);

// Which part of another trace.dat to write.
struct ExportRequest {
    std::optional<std::string> buffer;                             // see TraceFile::select()
    std::uint64_t from = 0;                                        // ns; pages that end before are left out
    std::uint64_t to = std::numeric_limits<std::uint64_t>::max();  // ns; pages that begin after are left out
    bool prune = false;  // only the formats of events that occur, and the symbols that they point at
};

// Writes buffers of any trace.dat (either version, compressed or not) as version 6. Throws UnsupportedError for a
// buffer whose sub-buffers have another size than the file's header says: version 6 has one for all.
void export_trace_file(const TraceFile& file, const std::string& path, const ExportRequest& request);

// Writes the file, whole or not at all: to PATH.tmp first, then renamed.
void write_trace_file(const std::string& path, const TraceHeader& header, const std::vector<BufferSpool>& buffers);

}  // namespace sampleblk::trace
