// SPDX-License-Identifier: MIT
#include "sampleblk/table.hpp"

#include <limits>
#include <stdexcept>

#include "sampleblk/text.hpp"

namespace sampleblk {

std::size_t element_size(ColumnType type) noexcept {
    switch (type) {
        case ColumnType::i8:
        case ColumnType::u8:
            return 1;
        case ColumnType::i16:
        case ColumnType::u16:
            return 2;
        case ColumnType::i32:
        case ColumnType::u32:
        case ColumnType::string:
            return 4;
        case ColumnType::i64:
        case ColumnType::u64:
        case ColumnType::f64:
            break;
    }
    return 8;
}

std::string_view type_name(ColumnType type) noexcept {
    switch (type) {
        case ColumnType::i8:
            return "int8";
        case ColumnType::i16:
            return "int16";
        case ColumnType::i32:
            return "int32";
        case ColumnType::i64:
            return "int64";
        case ColumnType::u8:
            return "uint8";
        case ColumnType::u16:
            return "uint16";
        case ColumnType::u32:
            return "uint32";
        case ColumnType::u64:
            return "uint64";
        case ColumnType::f64:
            return "float64";
        case ColumnType::string:
            break;
    }
    return "string";
}

std::int32_t StringPool::intern(std::string_view text) {
    if (const auto found = codes_.find(text); found != codes_.end()) {
        return found->second;
    }
    if (!is_utf8(text)) {
        return intern(printable(text));
    }
    if (strings_.size() >= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
        throw std::length_error("string pool: more than 2^31 - 1 distinct strings");
    }
    const auto code = static_cast<std::int32_t>(strings_.size());
    const auto [entry, inserted] = codes_.emplace(std::string(text), code);
    (void)inserted;
    strings_.push_back(&entry->first);
    return code;
}

std::optional<std::int32_t> StringPool::find(std::string_view text) const {
    if (const auto found = codes_.find(text); found != codes_.end()) {
        return found->second;
    }
    return is_utf8(text) ? std::nullopt : find(printable(text));
}

Column::Column(std::string name, std::vector<std::int32_t> codes, std::shared_ptr<const StringPool> pool)
    : name_(std::move(name)), type_(ColumnType::string), size_(codes.size()), pool_(std::move(pool)) {
    if (!pool_) {
        throw std::invalid_argument("column '" + name_ + "': a string column needs a pool");
    }
    const auto limit = static_cast<std::int32_t>(pool_->size());
    for (const std::int32_t code : codes) {
        if (code < -1 || code >= limit) {
            throw std::invalid_argument("column '" + name_ + "': code " + std::to_string(code) +
                                        " is outside its pool");
        }
    }
    auto owner = std::make_shared<const std::vector<std::int32_t>>(std::move(codes));
    data_ = std::shared_ptr<const void>(owner, owner->data());
}

Column::Column(std::string name, ColumnType type, std::shared_ptr<const void> data, std::size_t size, std::string unit,
               std::shared_ptr<const StringPool> pool)
    : name_(std::move(name)),
      unit_(std::move(unit)),
      type_(type),
      size_(size),
      data_(std::move(data)),
      pool_(std::move(pool)) {
    if ((type_ == ColumnType::string) != (pool_ != nullptr)) {
        throw std::invalid_argument("column '" + name_ + "': strings, and only they, have a pool");
    }
}

void Column::wrong_type(ColumnType asked) const {
    throw std::invalid_argument("column '" + name_ + "' is " + std::string(type_name(type_)) + ", not " +
                                std::string(type_name(asked)));
}

Table::Table(std::vector<Column> columns, std::map<std::string, std::string> metadata)
    : columns_(std::move(columns)), metadata_(std::move(metadata)) {
    if (columns_.empty()) {
        return;
    }
    rows_ = columns_.front().size();
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        const Column& column = columns_[i];
        if (column.size() != rows_) {
            throw std::invalid_argument("table: column '" + column.name() + "' has " + std::to_string(column.size()) +
                                        " rows, column '" + columns_.front().name() + "' has " + std::to_string(rows_));
        }
        if (find(column.name()) != &column) {
            throw std::invalid_argument("table: two columns are named '" + column.name() + "'");
        }
    }
}

const Column* Table::find(std::string_view name) const noexcept {
    for (const Column& column : columns_) {
        if (column.name() == name) {
            return &column;
        }
    }
    return nullptr;
}

}  // namespace sampleblk
