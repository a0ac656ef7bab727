// SPDX-License-Identifier: MIT
// A trace.dat file, version 6 or 7, by whomever it was recorded: its header, and where each CPU's pages lie.
// The format: trace-cmd.dat.v6(5), trace-cmd.dat.v7(5). Walking the events: walk.hpp; columns of them: decode.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sampleblk/fd.hpp"
#include "sampleblk/trace/bytes.hpp"
#include "sampleblk/trace/format.hpp"
#include "sampleblk/trace/symbols.hpp"

namespace sampleblk::trace {

// What to do about what cannot be read: throw FormatError, or go on behind it and count it.
enum class OnError : std::uint8_t { strict, skip };

enum class Compression : std::uint8_t { none, zlib, zstd };

// A stretch of pages that was compressed as one.
struct Chunk {
    std::uint64_t offset = 0;  // in the file, of the compressed bytes
    std::uint32_t packed = 0;  // bytes in the file
    std::uint32_t size = 0;    // bytes of pages
};

struct CpuData {
    std::uint32_t cpu = 0;
    std::uint64_t offset = 0;   // in the file
    std::uint64_t size = 0;     // bytes in the file
    std::vector<Chunk> chunks;  // where the buffer is compressed
};

// The ring buffer of the top level (name "") or of one instance.
struct BufferData {
    std::string name;
    std::string clock;
    PageLayout layout;
    bool compressed = false;
    std::vector<CpuData> cpus;
};

// What per_cpu/cpuN/stats said when the recording ended.
struct CpuLoss {
    std::string buffer;
    std::uint32_t cpu = 0;
    std::uint64_t entries = 0;         // left in the ring buffer
    std::uint64_t overrun = 0;         // events overwritten before they were read
    std::uint64_t commit_overrun = 0;  // events lost to nested writers
    std::uint64_t dropped = 0;         // events lost to a full buffer
    std::uint64_t read = 0;            // events read
};

// What reading with OnError::skip left out.
struct Damage {
    std::uint64_t pages = 0;         // pages not read to their end
    std::uint64_t bytes = 0;         // bytes of the file not read
    std::uint64_t records = 0;       // records shorter than their format
    std::vector<std::string> notes;  // the first few, as text

    void note(const std::string& text) {
        if (notes.size() < kMaxNotes) {
            notes.push_back(text);
        }
    }
    void add(const Damage& other);
    // The notes, a line each.
    [[nodiscard]] std::string because() const;
    [[nodiscard]] bool any() const noexcept { return pages != 0 || bytes != 0 || records != 0 || !notes.empty(); }

    static constexpr std::size_t kMaxNotes = 20;
};

// How stored time stamps become the times that are handed out.
struct TimeConversion {
    bool scaled = false;  // from TSC cycles: ((stamp * mult) >> shift) + base
    std::uint32_t mult = 1;
    std::uint32_t shift = 0;
    std::uint64_t base = 0;
    std::int64_t offset = 0;  // ns, from --date and --ts-offset

    [[nodiscard]] bool identity() const noexcept { return !scaled && offset == 0; }
    [[nodiscard]] std::uint64_t apply(std::uint64_t stamp) const noexcept;
};

// The texts of the header as they lie in the file.
struct HeaderTexts {
    std::string_view header_page;
    std::string_view header_event;
    std::string_view kallsyms;
    std::string_view printk_formats;
    std::string_view command_lines;
};

class TraceFile {
  public:
    // Maps the file and reads its header. Throws SystemError, FormatError, or UnsupportedError for a compression that
    // this build lacks and for text-only ("latency") files.
    explicit TraceFile(const std::string& path, OnError on_error = OnError::strict);
    // The same from memory; `name` stands for the path in errors.
    TraceFile(std::vector<std::byte> bytes, std::string name, OnError on_error = OnError::strict);
    TraceFile(const TraceFile&) = delete;
    TraceFile& operator=(const TraceFile&) = delete;
    TraceFile(TraceFile&&) = delete;
    TraceFile& operator=(TraceFile&&) = delete;
    ~TraceFile() = default;

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] int version() const noexcept { return version_; }
    [[nodiscard]] bool big_endian() const noexcept { return big_endian_; }
    [[nodiscard]] std::uint32_t page_size() const noexcept { return page_size_; }
    [[nodiscard]] std::uint8_t long_size() const noexcept { return long_size_; }
    [[nodiscard]] OnError on_error() const noexcept { return on_error_; }
    [[nodiscard]] Compression compression() const noexcept { return compression_; }
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
    [[nodiscard]] bool mapped() const noexcept { return owned_.empty(); }

    [[nodiscard]] const std::vector<EventFormat>& formats() const noexcept { return formats_; }
    // By "name", or "system:name"; nullptr when the file has no such format.
    [[nodiscard]] const EventFormat* find_event(std::string_view name) const noexcept;
    [[nodiscard]] const EventFormat* find_event(std::uint32_t id) const noexcept;

    [[nodiscard]] const std::vector<BufferData>& buffers() const noexcept { return buffers_; }
    // The buffer of that name; nullopt is the top level where it holds data, else the first that does.
    [[nodiscard]] const BufferData& buffer(const std::optional<std::string>& name) const;

    [[nodiscard]] const SymbolTable& symbols() const;  // parsed when first asked for
    [[nodiscard]] const std::unordered_map<std::int32_t, std::string>& commands() const noexcept { return commands_; }
    [[nodiscard]] const std::map<std::uint64_t, std::string>& printk_formats() const noexcept { return printk_; }
    [[nodiscard]] const std::vector<CpuLoss>& losses() const noexcept { return losses_; }
    [[nodiscard]] const std::string& uname() const noexcept { return uname_; }
    [[nodiscard]] const std::string& writer() const noexcept { return writer_; }
    [[nodiscard]] const std::string& clock() const noexcept { return clock_; }
    [[nodiscard]] const TimeConversion& time() const noexcept { return time_; }
    [[nodiscard]] const HeaderTexts& texts() const noexcept { return texts_; }
    [[nodiscard]] const Damage& header_damage() const noexcept { return damage_; }

    // Unpacks a compressed stretch of the file. Throws FormatError when it does not yield `size` bytes.
    [[nodiscard]] std::vector<std::byte> unpack(std::uint64_t offset, std::uint32_t packed, std::uint32_t size) const;

  private:
    struct Section;

    void read();
    void read_v6(ByteReader& reader);
    void read_v7(ByteReader& reader);
    void read_section(std::uint64_t offset, std::uint16_t want);
    void header_info(ByteReader& reader);
    void ftrace_formats(ByteReader& reader);
    void event_formats(ByteReader& reader);
    void kallsyms(ByteReader& reader);
    void printk(ByteReader& reader);
    void command_lines(ByteReader& reader);
    void option(std::uint16_t id, ByteReader& data);
    void buffer_option(ByteReader& data);
    void flyrecord_table(ByteReader& reader, BufferData& buffer);
    void chunk_table(CpuData& cpu);
    void add_cpu(BufferData& buffer, CpuData cpu);
    void add_format(std::span<const std::byte> text, std::string_view system, std::uint64_t at);
    void cpu_stat(std::string_view text);
    void index_events();
    [[nodiscard]] ByteReader reader_at(std::uint64_t offset) const;

    std::string path_;
    MappedFile map_;
    std::vector<std::byte> owned_;
    std::span<const std::byte> bytes_;
    OnError on_error_;
    int version_ = 0;
    bool big_endian_ = false;
    std::uint8_t long_size_ = 8;
    std::uint32_t page_size_ = 4096;
    std::uint32_t cpu_count_ = 0;
    Compression compression_ = Compression::none;
    PageLayout layout_;
    std::vector<EventFormat> formats_;
    std::unordered_map<std::uint32_t, std::size_t> by_id_;
    std::vector<BufferData> buffers_;
    std::vector<std::pair<std::uint64_t, std::string>> v6_instances_;
    HeaderTexts texts_;
    mutable std::once_flag symbols_once_;
    mutable SymbolTable symbols_;
    std::unordered_map<std::int32_t, std::string> commands_;
    std::map<std::uint64_t, std::string> printk_;
    std::vector<CpuLoss> losses_;
    std::string stat_buffer_;
    std::string uname_;
    std::string writer_;
    std::string clock_;
    TimeConversion time_;
    Damage damage_;
    std::vector<std::vector<std::byte>> unpacked_;  // sections that were compressed
};

}  // namespace sampleblk::trace
