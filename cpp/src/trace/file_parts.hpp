// SPDX-License-Identifier: MIT
// What both versions of trace.dat are made of: the numbers that name its parts, its header sections, its CPUs' data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "sampleblk/printable.hpp"
#include "sampleblk/trace/bytes.hpp"
#include "sampleblk/trace/file.hpp"

namespace sampleblk::trace {

inline constexpr std::uint32_t kMaxCpus = 1U << 16;
inline constexpr std::uint32_t kMaxPage = 1U << 26;

// Option and section numbers of trace-cmd.dat.v7(5).
enum : std::uint8_t {
    kDone = 0,
    kDate = 1,
    kCpuStat = 2,
    kBuffer = 3,
    kTraceClock = 4,
    kUname = 5,
    kOffset = 7,
    kCpuCount = 8,
    kVersion = 9,
    kTsc2Nsec = 14,
    kHeaderInfo = 16,
    kFtraceEvents = 17,
    kEventFormats = 18,
    kKallsyms = 19,
    kPrintk = 20,
    kCmdLines = 21,
};

[[nodiscard]] inline std::string_view up_to_nul(std::string_view text) {
    return text.substr(0, text.find('\0'));
}

// Takes the first line off `text`.
[[nodiscard]] inline std::string_view take_line(std::string_view& text) {
    const auto end = std::min(text.find('\n'), text.size());
    const auto line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return line;
}

// All that follows the byte order, the long and the page size, in the layout of the version.
void read_v6(ByteReader& reader, FileContents& file);
void read_v7(ByteReader& reader, FileContents& file);

// Reads the body of a header section, kHeaderInfo to kCmdLines.
void read_header_section(std::uint16_t id, ByteReader& reader, FileContents& file);

// Adds a CPU's data, with their chunks where the buffer is compressed. What lies beyond the end of the file is a
// FormatError or counted, as file.on_error says.
void add_cpu(FileContents& file, BufferData& buffer, CpuData cpu);

[[nodiscard]] ByteReader reader_at(const FileContents& file, std::uint64_t offset);

// See TraceFile::unpack().
[[nodiscard]] std::vector<std::byte> unpack(const FileContents& file, std::uint64_t offset, std::uint32_t packed,
                                            std::uint32_t size);

}  // namespace sampleblk::trace
