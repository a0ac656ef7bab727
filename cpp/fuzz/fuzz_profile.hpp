// SPDX-License-Identifier: MIT
// The bodies of the fuzz targets of profiles; a test replays their corpora through the same functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sampleblk::fuzz {

// A whole perf.data: header, samples, their stacks; strict and skipping.
int perf_data(const std::uint8_t* data, std::size_t size);
// Every view of one.
int perf_data_views(const std::uint8_t* data, std::size_t size);
// Every export of one.
int perf_data_exports(const std::uint8_t* data, std::size_t size);
// An ELF file's symbols and build id.
int elf_symbols(const std::uint8_t* data, std::size_t size);
// Folded stacks, and what is drawn of them.
int folded(const std::uint8_t* data, std::size_t size);

// A trace.dat's stacks as a profile.
int trace_stacks(const std::uint8_t* data, std::size_t size);
// A frame's rules, with expressions, and the stack that they read.
int unwind_rules(const std::uint8_t* data, std::size_t size);

}  // namespace sampleblk::fuzz
