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
#include "sampleblk/printable.hpp"
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
            notes.push_back(printable(text));
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
    std::string uname;
    std::string writer;
    std::string clock;
    TimeConversion time;
    Damage damage;
    std::vector<std::vector<std::byte>> unpacked;  // sections that were compressed
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

    [[nodiscard]] const std::string& path() const noexcept { return contents_.path; }
    [[nodiscard]] int version() const noexcept { return contents_.version; }
    [[nodiscard]] bool big_endian() const noexcept { return contents_.big_endian; }
    [[nodiscard]] std::uint32_t page_size() const noexcept { return contents_.page_size; }
    [[nodiscard]] std::uint8_t long_size() const noexcept { return contents_.long_size; }
    [[nodiscard]] OnError on_error() const noexcept { return contents_.on_error; }
    [[nodiscard]] Compression compression() const noexcept { return contents_.compression; }
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return contents_.bytes; }
    [[nodiscard]] bool mapped() const noexcept { return owned_.empty(); }

    [[nodiscard]] const std::vector<EventFormat>& formats() const noexcept { return contents_.formats; }
    // By "name", or "system:name"; nullptr when the file has no such format.
    [[nodiscard]] const EventFormat* find_event(std::string_view name) const noexcept;
    [[nodiscard]] const EventFormat* find_event(std::uint32_t id) const noexcept;

    [[nodiscard]] const std::vector<BufferData>& buffers() const noexcept { return contents_.buffers; }
    // The buffer of that name; nullopt is the top level where it holds data, else the first that does.
    [[nodiscard]] const BufferData& buffer(const std::optional<std::string>& name) const;

    [[nodiscard]] const SymbolTable& symbols() const;  // parsed when first asked for
    [[nodiscard]] const std::unordered_map<std::int32_t, std::string>& commands() const noexcept {
        return contents_.commands;
    }
    [[nodiscard]] const std::map<std::uint64_t, std::string>& printk_formats() const noexcept {
        return contents_.printk_formats;
    }
    [[nodiscard]] const std::vector<CpuLoss>& losses() const noexcept { return contents_.losses; }
    [[nodiscard]] const std::string& uname() const noexcept { return contents_.uname; }
    [[nodiscard]] const std::string& writer() const noexcept { return contents_.writer; }
    [[nodiscard]] const std::string& clock() const noexcept { return contents_.clock; }
    [[nodiscard]] const TimeConversion& time() const noexcept { return contents_.time; }
    [[nodiscard]] const HeaderTexts& texts() const noexcept { return contents_.texts; }
    [[nodiscard]] const Damage& header_damage() const noexcept { return contents_.damage; }

    // Unpacks a compressed stretch of the file. Throws FormatError when it does not yield `size` bytes.
    [[nodiscard]] std::vector<std::byte> unpack(std::uint64_t offset, std::uint32_t packed, std::uint32_t size) const;

  private:
    void read();

    MappedFile map_;
    std::vector<std::byte> owned_;
    FileContents contents_;
    std::unordered_map<std::uint32_t, std::size_t> by_id_;
    mutable std::once_flag symbols_once_;
    mutable SymbolTable symbols_;
};

}  // namespace sampleblk::trace
