// SPDX-License-Identifier: MIT
// What both versions of trace.dat are made of: the numbers that name its parts, its header sections, its options, its
// CPUs' data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "file/bytes.hpp"
#include "sampleblk/text.hpp"
#include "sampleblk/trace/file.hpp"

namespace sampleblk::trace {

enum class Compression : std::uint8_t { none, zlib, zstd };

// What a file's header says, and where the pages of its CPUs lie.
struct FileContents {
    std::string path;
    OnError on_error = OnError::strict;
    std::span<const std::byte> bytes;  // the whole file
    int version = 0;
    bool big_endian = false;
    std::uint8_t long_size = 8;
    std::uint32_t page_size = 4096;
    Compression compression = Compression::none;
    PageLayout layout;
    std::vector<EventFormat> formats;
    std::vector<BufferData> buffers;
    HeaderTexts texts;
    std::unordered_map<std::int32_t, std::string> commands;
    std::map<std::uint64_t, std::string> printk_formats;
    std::vector<CpuLoss> losses;
    std::vector<FileOption> time_options;
    std::string uname;
    std::string writer;
    std::string clock;
    TimeConversion time;
    Damage damage;
    std::vector<std::vector<std::byte>> unpacked;  // sections that were compressed
};

inline constexpr std::uint32_t kMaxCpus = 1U << 16;
inline constexpr std::uint32_t kMaxBuffers = 1U << 16;
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

// The clock that a trace_clock text chooses: the one in brackets of "… [local] global …", or all of it.
[[nodiscard]] std::string selected_clock(std::string_view text);

class OptionReader {
  public:
    explicit OptionReader(FileContents& file) : file_(file) {}

    // Reads one; those that we do not know are skipped, as the format says.
    void read(std::uint16_t id, ByteReader& data);

    // Of the CPUCOUNT option; 0 when there was none.
    [[nodiscard]] std::uint32_t cpu_count() const noexcept { return cpu_count_; }

  private:
    void time_offset(std::uint16_t id, ByteReader& data);
    void cpu_stat(std::string_view text);

    FileContents& file_;
    std::uint32_t cpu_count_ = 0;
    std::string stat_buffer_;  // whose statistics follow
};

// Reads the body of a header section, kHeaderInfo to kCmdLines.
void read_header_section(std::uint16_t id, ByteReader& reader, FileContents& file);

// Adds a CPU's data, with their chunks where the buffer is compressed. What lies beyond the end of the file is a
// FormatError or counted, as file.on_error says.
void add_cpu(FileContents& file, BufferData& buffer, CpuData cpu);

[[nodiscard]] ByteReader reader_at(const FileContents& file, std::uint64_t offset);

// Adds a buffer. Throws FormatError past kMaxBuffers.
void add_buffer(FileContents& file, BufferData buffer);

// See TraceFile::unpack().
[[nodiscard]] std::vector<std::byte> unpack(const FileContents& file, std::uint64_t offset, std::uint32_t packed,
                                            std::uint32_t size);

}  // namespace sampleblk::trace
