// SPDX-License-Identifier: MIT
// The column builders of one event, compiled from its format. Records are gathered in batches, and each column then
// takes its field from the whole batch in one tight loop.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "events/dictionary.hpp"
#include "events/grow_buffer.hpp"
#include "events/sinks.hpp"
#include "sampleblk/table.hpp"
#include "sampleblk/trace/decode.hpp"

namespace sampleblk::trace {

class EventPlan {
  public:
    // `max_rows` is how many rows the columns can get at most.
    EventPlan(const TraceFile& file, const EventFormat& format, const DecodeRequest& request, std::size_t max_rows);

    [[nodiscard]] const EventFormat& format() const noexcept { return *format_; }
    [[nodiscard]] std::size_t rows() const noexcept { return rows_ + pending_; }

    // Takes one record that is at least format().fixed_size long.
    void add(const Event& event) {
        Batch& batch = *batch_;
        const std::size_t at = pending_;
        batch.time[at] = event.time;
        batch.data[at] = event.data;
        batch.size[at] = event.size;
        batch.place[at] = event.place;
        pending_ = at + 1;
        if (at + 1 == kBatch) [[unlikely]] {
            flush();
        }
    }

    // Moves the batch into the columns.
    void flush();

    // Takes over what another plan of the same event and request has; its rows come after ours.
    void append(EventPlan& later);

    // The columns so far, as a table; the plan begins anew.
    [[nodiscard]] Table take(std::map<std::string, std::string> metadata);

    // Dynamic fields that pointed outside their record, whose value is missing.
    [[nodiscard]] std::uint64_t bad_fields() const noexcept { return bad_fields_; }

  private:
    static constexpr std::size_t kBatch = 128;

    struct Batch {
        std::array<std::uint64_t, kBatch> time;
        std::array<const std::byte*, kBatch> data;
        std::array<std::uint32_t, kBatch> size;
        std::array<Place, kBatch> place;
    };

    enum class Source : std::uint8_t {
        time,
        cpu,
        buffer,   // the name of the one that it was recorded in
        number,   // element_size bytes at offset
        text,     // field.size bytes at offset
        dynamic,  // __data_loc, __rel_loc and what runs to the record's end: text or hex
        array,    // a fixed array too long for columns of its own: hex
        command,  // of the pid at offset
        symbol,   // of the address at offset
        stack,    // addresses to the record's end, as "outer;inner"
    };

    struct Builder {
        std::string name;
        std::string unit;
        ColumnType type = ColumnType::u64;
        Source source = Source::number;
        Field field;
        std::uint32_t offset = 0;
        GrowBuffer out;
        std::unique_ptr<Dictionary> words;
        std::unordered_map<std::uint64_t, std::int32_t> known;  // pid or address to code
    };

    void add_builder(Builder builder);
    void add_field(const Field& field, const DecodeRequest& request);
    template <typename T>
    void copy_numbers(Builder& builder) const;
    void fill(Builder& builder);
    void fill_buffers(Builder& builder);
    [[nodiscard]] std::int32_t dynamic_code(Builder& builder, std::size_t row);
    [[nodiscard]] std::string stack_text(const Builder& builder, std::size_t row) const;

    const TraceFile* file_;
    const EventFormat* format_;
    BufferNames buffers_;
    bool swap_;
    std::vector<Builder> builders_;
    std::unique_ptr<Batch> batch_ = std::make_unique<Batch>();
    std::size_t pending_ = 0;
    std::size_t rows_ = 0;
    std::uint64_t bad_fields_ = 0;
};

}  // namespace sampleblk::trace
