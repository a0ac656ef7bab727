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

#include "sampleblk/mapping.hpp"
#include "sampleblk/text.hpp"
#include "sampleblk/trace/format.hpp"
#include "sampleblk/trace/symbols.hpp"

namespace sampleblk::trace {

// What to do about what cannot be read: throw FormatError, or go on behind it and count it.
enum class OnError : std::uint8_t { strict, skip };

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

// How stored time stamps become the times that are handed out, which are those of trace-cmd report.
struct TimeConversion {
    bool scaled = false;  // from TSC cycles to ns: (stamp * mult) >> shift
    std::uint32_t mult = 1;
    std::uint32_t shift = 0;
    std::int64_t offset = 0;  // from --date and --ts-offset

    [[nodiscard]] bool identity() const noexcept { return !scaled && offset == 0; }
    [[nodiscard]] std::uint64_t apply(std::uint64_t stamp) const noexcept;
};

// An option as it lies in the file: what an export copies.
struct FileOption {
    std::uint16_t id = 0;
    std::span<const std::byte> bytes;
};

// The texts of the header as they lie in the file.
struct HeaderTexts {
    std::string_view header_page;
    std::string_view header_event;
    std::string_view kallsyms;
    std::string_view printk_formats;
    std::string_view command_lines;
};

struct FileContents;

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
    ~TraceFile();

    [[nodiscard]] const std::string& path() const noexcept;
    [[nodiscard]] int version() const noexcept;
    [[nodiscard]] bool big_endian() const noexcept;
    [[nodiscard]] std::uint32_t page_size() const noexcept;
    [[nodiscard]] std::uint8_t long_size() const noexcept;
    [[nodiscard]] OnError on_error() const noexcept;
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept;
    // Where `at` lies in the file; 0 for what was unpacked.
    [[nodiscard]] std::uint64_t offset_of(const std::byte* at) const noexcept {
        const auto all = bytes();
        return at >= all.data() && at < all.data() + all.size() ? static_cast<std::uint64_t>(at - all.data()) : 0;
    }
    // Throws FormatError when somebody shortened the file since it was opened; every walk ends with it.
    void check_length() const { map_.check(); }
    [[nodiscard]] bool mapped() const noexcept { return owned_.empty(); }

    [[nodiscard]] const std::vector<EventFormat>& formats() const noexcept;
    // By "name", or "system:name"; nullptr when the file has no such format.
    [[nodiscard]] const EventFormat* find_event(std::string_view name) const noexcept;
    [[nodiscard]] const EventFormat* find_event(std::uint32_t id) const noexcept;

    [[nodiscard]] const std::vector<BufferData>& buffers() const noexcept;
    // The buffer of that name, or all that hold data, in the order of the file: the top level (named "") first. Throws
    // InputError for a name that the file has not, and without a name where their clocks differ.
    [[nodiscard]] std::vector<const BufferData*> select(const std::optional<std::string>& name) const;
    // The clock of those, as tracefs names it; the file's own where the buffers say none.
    [[nodiscard]] const std::string& clock(const std::optional<std::string>& buffer) const;
    // What times of that selection count: "ns", or "ticks" of a clock that the file does not convert.
    [[nodiscard]] std::string_view time_unit(const std::optional<std::string>& buffer) const;
    // Throws UnsupportedError unless that is "ns"; `what` needs it.
    void require_ns(const std::optional<std::string>& buffer, std::string_view what) const;

    [[nodiscard]] const SymbolTable& symbols() const;  // parsed when first asked for
    [[nodiscard]] const std::unordered_map<std::int32_t, std::string>& commands() const noexcept;
    [[nodiscard]] const std::map<std::uint64_t, std::string>& printk_formats() const noexcept;
    [[nodiscard]] const std::vector<CpuLoss>& losses() const noexcept;
    [[nodiscard]] const std::string& uname() const noexcept;
    [[nodiscard]] const std::string& writer() const noexcept;
    [[nodiscard]] const std::string& clock() const noexcept;
    [[nodiscard]] const TimeConversion& time() const noexcept;
    // The options that change times (--date, --ts-offset, TSC to ns).
    [[nodiscard]] const std::vector<FileOption>& time_options() const noexcept;
    [[nodiscard]] const HeaderTexts& texts() const noexcept;
    [[nodiscard]] const Damage& header_damage() const noexcept;

    // Unpacks a compressed stretch of the file. Throws FormatError when it does not yield `size` bytes.
    [[nodiscard]] std::vector<std::byte> unpack(std::uint64_t offset, std::uint32_t packed, std::uint32_t size) const;

  private:
    void read();

    MappedFile map_;
    std::vector<std::byte> owned_;
    std::unique_ptr<FileContents> contents_;
    std::unordered_map<std::uint32_t, std::size_t> by_id_;
    mutable std::once_flag symbols_once_;
    mutable SymbolTable symbols_;
};

}  // namespace sampleblk::trace
