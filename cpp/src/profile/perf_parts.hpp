// SPDX-License-Identifier: MIT
// What a perf.data is made of. Each of these adds what it reads to the file's contents; what is corrupt goes to
// damaged().
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "sampleblk/profile/perf_file.hpp"

namespace sampleblk::profile {

inline constexpr std::size_t kHeaderSize = sizeof(perf_event_header);
inline constexpr std::size_t kFileHeaderSize = 104;  // of a file that is no pipe's

// Throws when the reader is strict; else counts `kind`.
void damaged(PerfContents& file, const std::byte* at, const std::string& kind, const std::string& expected);

// Where `at` lies in the file; 0 for what was decompressed.
[[nodiscard]] std::uint64_t offset_of(const PerfContents& file, const std::byte* at) noexcept;

// The header of a file that is no pipe's: attributes and features. Where its records lie.
[[nodiscard]] std::span<const std::byte> read_file_header(PerfContents& file);

// A header feature, by its number.
void read_feature(PerfContents& file, std::uint32_t feature, std::span<const std::byte> bytes);
void read_build_ids(PerfContents& file, std::span<const std::byte> bytes);
void read_tracing_data(PerfContents& file, std::span<const std::byte> bytes);

// An event's attributes, as many bytes of them as there are.
[[nodiscard]] perf_event_attr read_attr(std::span<const std::byte> bytes);

// To be called when events were added: finds the layout that they share and whose the ids are. Throws UnsupportedError.
void finish_events(PerfContents& file);

// Gives those a name that the file has none for.
void name_events(PerfContents& file);

// All records of the data section or of a pipe, those in compressed ones too.
void read_records(PerfContents& file, std::span<const std::byte> data);

// When a record was made; 0 where it does not say.
[[nodiscard]] std::uint64_t time_of(const SampleLayout& layout, std::span<const std::byte> record);

}  // namespace sampleblk::profile
