// SPDX-License-Identifier: MIT
// What the sinks of a walk share: the names of the buffers that their rows are of, and walking for several at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "file/walker.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/table.hpp"
#include "sampleblk/trace/file.hpp"

namespace sampleblk::trace {

// The part of a record before its fields: common_type, wherever this kernel puts it.
constexpr std::uint32_t kTypeSize = 2;

// The buffers of a selection, by their numbers in Place. Rows of several carry a column "buffer".
class BufferNames {
  public:
    BufferNames(const TraceFile& file, const std::optional<std::string>& selected) {
        for (const BufferData* buffer : file.select(selected)) {
            names_.push_back(buffer->name);
        }
    }

    [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }
    [[nodiscard]] bool several() const noexcept { return names_.size() > 1; }
    [[nodiscard]] const std::string& at(std::uint16_t number) const { return names_.at(number); }
    // " (NAME)" behind what is of one of several buffers.
    [[nodiscard]] std::string suffix(std::uint16_t number) const {
        return several() ? " (" + (names_.at(number).empty() ? std::string("top level") : names_.at(number)) + ")" : "";
    }
    // Adds the column where there are several.
    void add_column(std::vector<Column>& columns, const std::vector<std::uint16_t>& rows) const {
        if (!several()) {
            return;
        }
        auto pool = std::make_shared<StringPool>();
        std::vector<std::int32_t> numbers;
        for (const std::string& name : names_) {
            numbers.push_back(pool->intern(name));
        }
        std::vector<std::int32_t> codes;
        codes.reserve(rows.size());
        for (const std::uint16_t row : rows) {
            codes.push_back(numbers.at(row));
        }
        columns.emplace_back("buffer", std::move(codes), std::move(pool));
    }

  private:
    std::vector<std::string> names_;
};

// One walk for several sinks.
template <typename... Sinks>
class Together {
  public:
    explicit Together(Sinks&... sinks) : sinks_(sinks...) {}

    void record(const Event& event) {
        std::apply([&event](auto&... sink) { (sink.record(event), ...); }, sinks_);
    }
    void missed(Place place, std::uint64_t time, std::uint64_t count) {
        std::apply([&](auto&... sink) { (sink.missed(place, time, count), ...); }, sinks_);
    }
    void flush() {
        std::apply([](auto&... sink) { (sink.flush(), ...); }, sinks_);
    }

  private:
    std::tuple<Sinks&...> sinks_;
};

// Until when events were lost last, by buffer and CPU.
class Gaps {
  public:
    void add(Place place, std::uint64_t time) { until_[key(place)] = time; }
    // Whether events were lost there: perhaps the end of one thing, and the beginning of the next that looks like it.
    [[nodiscard]] bool since(std::uint64_t time, Place place) const {
        const auto gap = until_.empty() ? until_.end() : until_.find(key(place));
        return gap != until_.end() && gap->second > time;
    }

  private:
    [[nodiscard]] static std::uint32_t key(Place place) noexcept {
        return std::uint32_t{place.buffer} << 16U | place.cpu;
    }

    std::map<std::uint32_t, std::uint64_t> until_;
};

// For sinks that copy what they need of each event, and leave the counting of losses to the walk.
class PlainSink {
  public:
    explicit PlainSink(const TraceFile& file) : file_(file) {}

    static void missed(Place /*place*/, std::uint64_t /*time*/, std::uint64_t /*count*/) noexcept {}
    static void flush() noexcept {}
    // What the sink itself could not take, for loss_metadata().
    [[nodiscard]] const Damage& damage() const noexcept { return damage_; }

  protected:
    // Whether the record has room for `bytes`, those of its format; else it is damage: a FormatError or counted.
    [[nodiscard]] bool whole(const Event& event, std::uint32_t bytes) {
        if (event.size >= bytes) [[likely]] {
            return true;
        }
        refuse(event, "a record of at least " + std::to_string(bytes) + " bytes, not " + std::to_string(event.size));
        return false;
    }
    void refuse(const Event& event, const std::string& expected) {
        const FormatError error(file_.path(), file_.offset_of(event.data), expected);
        if (file_.on_error() == OnError::strict) {
            throw error;
        }
        ++damage_.records;
        damage_.note(error.what());
    }
    [[nodiscard]] const TraceFile& file() const noexcept { return file_; }

  private:
    const TraceFile& file_;
    Damage damage_;
};

}  // namespace sampleblk::trace
