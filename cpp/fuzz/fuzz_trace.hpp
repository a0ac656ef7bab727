// SPDX-License-Identifier: MIT
// The bodies of the fuzz targets of recordings; a test replays their corpora through the same functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sampleblk::fuzz {

// A whole trace.dat: header, all events decoded, at once and in batches; strict and skipping.
int trace_file(const std::uint8_t* data, std::size_t size);
// Every view of one.
int trace_file_views(const std::uint8_t* data, std::size_t size);
// Every export of one: a trace.dat that says the same, and timelines.
int trace_file_exports(const std::uint8_t* data, std::size_t size);
// One ring-buffer page. The first byte picks byte order and long size.
int trace_page(const std::uint8_t* data, std::size_t size);
// One event format file, and header_page.
int event_format(const std::uint8_t* data, std::size_t size);
// Texts that are imported: function_graph, strace.
int trace_text(const std::uint8_t* data, std::size_t size);
// Recordings that are imported: the text of events and of snoopers, blktrace's records.
int trace_import(const std::uint8_t* data, std::size_t size);

}  // namespace sampleblk::fuzz
