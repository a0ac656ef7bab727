// SPDX-License-Identifier: MIT
// What a perf.data is made of. Each of these adds what it reads to the file's contents; what is corrupt goes to
// damaged().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sampleblk/linux_headers.hpp"
#include "sampleblk/profile/perf_file.hpp"

namespace sampleblk::profile {

// Where the records of an event keep their time.
struct SampleLayout {
    std::uint64_t type = 0;         // PERF_SAMPLE_*
    std::size_t time_at = 0;        // in a sample's body
    std::size_t time_from_end = 0;  // in another record
    bool operator==(const SampleLayout&) const = default;
};

// What was read of a recording.
struct PerfContents {
    std::string path;
    OnDamage on_damage = OnDamage::strict;
    std::span<const std::byte> bytes;              // the whole file
    std::vector<std::vector<std::byte>> unpacked;  // records that do not lie in the file as they are point here
    bool pipe = false;
    bool compressed = false;
    std::vector<Event> events;
    std::map<std::uint64_t, std::size_t> event_by_id;
    std::vector<SampleLayout> layouts;  // of each event
    bool one_layout = true;             // they are the same
    bool identifier = false;            // samples begin, and other records end, with their event's id
    bool id_all = false;                // records that are not samples have a trailer
    std::vector<Record> records;
    std::map<std::string, std::string> header;
    std::vector<BuildId> build_ids;
    std::map<std::uint64_t, trace::EventFormat> formats;
    std::string kallsyms;
    std::map<std::string, std::uint64_t> damage;
    std::optional<std::uint64_t> directory;  // the version of the directory that it lies in (perf record --threads)
};

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

// What an MMAP2 record says of its file behind the addresses, in 24 bytes: its build id, where the kernel was asked for
// those and found it; else empty.
[[nodiscard]] std::string mapped_build_id(std::uint16_t misc, std::span<const std::byte> identity);

// An event's attributes, as many bytes of them as there are.
[[nodiscard]] perf_event_attr read_attr(std::span<const std::byte> bytes);

// To be called when events were added: finds their layouts and whose the ids are. Throws UnsupportedError.
void finish_events(PerfContents& file);

// Gives those a name that the file has none for.
void name_events(PerfContents& file);

// All records of the data section or of a pipe, those in compressed ones too.
void read_records(PerfContents& file, std::span<const std::byte> data);

// When a record was made; 0 where it does not say.
[[nodiscard]] std::uint64_t time_of(const PerfContents& file, std::span<const std::byte> record);

}  // namespace sampleblk::profile
