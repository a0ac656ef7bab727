// SPDX-License-Identifier: MIT
// Columns, not rows: what a decoder, a log or a view hands out. Numbers lie in one contiguous
// array, strings as int32 codes into a pool, so numpy sees them without a copy and Arrow takes them
// as they are (arrow.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sampleblk {

enum class ColumnType : std::uint8_t { i8, i16, i32, i64, u8, u16, u32, u64, f64, string };

// Bytes of one element; a string column's element is its i32 code.
[[nodiscard]] std::size_t element_size(ColumnType type) noexcept;
[[nodiscard]] std::string_view type_name(ColumnType type) noexcept;

template <typename T>
[[nodiscard]] constexpr ColumnType column_type_of() {
    if constexpr (std::is_same_v<T, std::int8_t>) {
        return ColumnType::i8;
    } else if constexpr (std::is_same_v<T, std::int16_t>) {
        return ColumnType::i16;
    } else if constexpr (std::is_same_v<T, std::int32_t>) {
        return ColumnType::i32;
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
        return ColumnType::i64;
    } else if constexpr (std::is_same_v<T, std::uint8_t>) {
        return ColumnType::u8;
    } else if constexpr (std::is_same_v<T, std::uint16_t>) {
        return ColumnType::u16;
    } else if constexpr (std::is_same_v<T, std::uint32_t>) {
        return ColumnType::u32;
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
        return ColumnType::u64;
    } else {
        static_assert(std::is_same_v<T, double>, "no column type for this element");
        return ColumnType::f64;
    }
}

// The distinct strings of one or more columns, in their printable() form, each with a stable code counted from 0.
class StringPool {
  public:
    // The code of `text`, new or old. Throws std::length_error past 2^31 - 1 strings.
    std::int32_t intern(std::string_view text);

    [[nodiscard]] std::optional<std::int32_t> find(std::string_view text) const;
    [[nodiscard]] const std::string& at(std::int32_t code) const {
        return *strings_.at(static_cast<std::size_t>(code));
    }
    [[nodiscard]] std::size_t size() const noexcept { return strings_.size(); }

  private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>{}(text); }
    };
    // Map nodes never move, so the vector can point at their keys.
    std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> codes_;
    std::vector<const std::string*> strings_;
};

// One named, typed, immutable array. Copies share the data.
class Column {
  public:
    // Takes a vector over. `unit` is "ns", "bytes", … or empty.
    template <typename T>
    Column(std::string name, std::vector<T> values, std::string unit = {})
        : name_(std::move(name)), unit_(std::move(unit)), type_(column_type_of<T>()), size_(values.size()) {
        auto owner = std::make_shared<const std::vector<T>>(std::move(values));
        data_ = std::shared_ptr<const void>(owner, owner->data());
    }

    // A string column: codes into `pool`; a code of -1 is a missing value.
    Column(std::string name, std::vector<std::int32_t> codes, std::shared_ptr<const StringPool> pool);

    // Shares an array that someone else made: `size` elements of `type`, kept alive by `data`; `pool` for strings.
    // The caller vouches for the codes, which are not looked at again.
    Column(std::string name, ColumnType type, std::shared_ptr<const void> data, std::size_t size, std::string unit = {},
           std::shared_ptr<const StringPool> pool = {});

    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] const std::string& unit() const noexcept { return unit_; }
    [[nodiscard]] ColumnType type() const noexcept { return type_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] const std::shared_ptr<const void>& data() const noexcept { return data_; }
    [[nodiscard]] const std::shared_ptr<const StringPool>& pool() const noexcept { return pool_; }

    // The elements, for a caller who knows the type. Throws std::invalid_argument when it is
    // another.
    template <typename T>
    [[nodiscard]] const T* values() const {
        if (type_ != column_type_of<T>() && !(type_ == ColumnType::string && std::is_same_v<T, std::int32_t>)) {
            wrong_type(column_type_of<T>());
        }
        return static_cast<const T*>(data_.get());
    }

  private:
    [[noreturn]] void wrong_type(ColumnType asked) const;

    std::string name_;
    std::string unit_;
    ColumnType type_;
    std::size_t size_;
    std::shared_ptr<const void> data_;
    std::shared_ptr<const StringPool> pool_;
};

// Columns of equal length, with metadata such as loss counts that must travel with them.
class Table {
  public:
    Table() = default;
    // Throws std::invalid_argument when lengths differ or a name comes twice.
    explicit Table(std::vector<Column> columns, std::map<std::string, std::string> metadata = {});

    [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
    [[nodiscard]] const std::vector<Column>& columns() const noexcept { return columns_; }
    [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }

    // nullptr when there is none of that name.
    [[nodiscard]] const Column* find(std::string_view name) const noexcept;

  private:
    std::vector<Column> columns_;
    std::map<std::string, std::string> metadata_;
    std::size_t rows_ = 0;
};

}  // namespace sampleblk
