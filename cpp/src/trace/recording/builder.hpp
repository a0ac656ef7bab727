// SPDX-License-Identifier: MIT
// Makes a trace.dat out of events that another tool recorded, so that every view and export serves them too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sampleblk/fd.hpp"

namespace sampleblk::trace {

// The fields of an event, as its format file tells them; the common ones are there from the start.
class EventLayout {
  public:
    EventLayout(std::string_view system, std::string_view name);

    // Each gives the field's offset in a record. A number is aligned to its size.
    std::uint32_t number(std::string_view type, std::string_view name, std::uint32_t size, bool is_signed = false);
    std::uint32_t text(std::string_view name, std::uint32_t size);
    std::uint32_t dynamic_text(std::string_view name);  // a __data_loc, whose characters come behind all fields

    [[nodiscard]] const std::string& system() const noexcept { return system_; }
    // The format file; `print` is what stands behind "print fmt: ".
    [[nodiscard]] std::string format(std::uint32_t id, std::string_view print) const;
    // Bytes of a record without dynamic text, a multiple of four.
    [[nodiscard]] std::uint32_t size() const noexcept { return (end_ + 3) & ~3U; }

  private:
    std::uint32_t field(std::string_view declaration, std::uint32_t size, std::uint32_t align, bool is_signed);

    std::string system_;
    std::string name_;
    std::string fields_;
    std::uint32_t end_ = 0;
};

// A record in the making. Its type and task come first, as ftrace has them.
class EventRecord {
  public:
    EventRecord(std::uint16_t type, std::uint32_t size, std::int32_t pid);

    template <typename T>
    void put(std::uint32_t offset, T value) {
        static_assert(std::is_integral_v<T>);
        std::memcpy(bytes_.data() + offset, &value, sizeof(value));
    }
    // As much of `text` as fits before a NUL.
    void put_text(std::uint32_t offset, std::uint32_t size, std::string_view text);
    // False: it was cut, as a record must fit into a page.
    bool put_dynamic(std::uint32_t offset, std::string_view text);

    [[nodiscard]] std::vector<std::byte> take() && noexcept { return std::move(bytes_); }

    static constexpr std::uint32_t kMost = 4072;  // bytes

  private:
    std::vector<std::byte> bytes_;
};

class RecordingBuilder {
  public:
    // `path`: the trace.dat to write. Nothing is there before write().
    explicit RecordingBuilder(std::string path);

    // The number of an event whose fields `layout` tells.
    std::uint16_t add_format(const EventLayout& layout, std::string_view print);
    // What a task is called; the first name stays.
    void add_task(std::int32_t pid, std::string_view comm);
    // Events of a CPU may come out of order by at most kWindow events. False: it is older than what was written.
    [[nodiscard]] bool add(std::uint32_t cpu, std::uint64_t time, EventRecord record);
    // The recorder lost events of a CPU before the next that is added; 0: how many is not known.
    void add_lost(std::uint32_t cpu, std::uint64_t count);
    // Writes the file, whole or not at all. `uname` says where the recording is from.
    void write(const std::string& uname);

    static constexpr std::size_t kWindow = 65536;

  private:
    static constexpr std::size_t kPage = 4096;
    static constexpr std::size_t kHead = 16;  // time stamp and commit of a page
    static constexpr std::size_t kRoom = kPage - kHead;

    struct Waiting {
        std::uint64_t time = 0;
        std::vector<std::byte> bytes;
        bool lost_before = false;
        std::uint64_t lost_count = 0;
    };
    struct Cpu {
        std::deque<Waiting> waiting;       // by time
        std::vector<std::uint64_t> pages;  // where they lie in the spool
        std::array<std::byte, kPage> page{};
        std::size_t used = 0;  // bytes of its data
        bool open = false;     // a page was begun
        bool missed = false;   // events were lost before it
        std::uint64_t missed_count = 0;
        std::uint64_t last = 0;  // the time of what was written last
        bool lost_next = false;
        std::uint64_t lost_count = 0;
    };

    void put(Cpu& cpu, const Waiting& event);
    void begin_page(Cpu& cpu, std::uint64_t time);
    void end_page(Cpu& cpu);
    void flush_spool();

    std::string path_;
    Fd spool_;
    std::string buffered_;       // of the spool's end
    std::uint64_t spooled_ = 0;  // bytes, those with it
    std::map<std::uint32_t, Cpu> cpus_;
    std::map<std::string, std::vector<std::string>> formats_;  // by system
    std::unordered_map<std::int32_t, std::string> tasks_;
    std::uint16_t next_id_ = 1000;  // beyond ftrace's own
};

}  // namespace sampleblk::trace
