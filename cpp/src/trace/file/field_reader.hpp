// SPDX-License-Identifier: MIT
// Reads one number field of records, wherever the format put it.
#pragma once

#include <cstdint>
#include <string_view>

#include "file/bytes.hpp"
#include "sampleblk/trace/format.hpp"

namespace sampleblk::trace {

class FieldReader {
  public:
    FieldReader() = default;
    // The field `name` of `format`; a reader of nothing where it has none.
    FieldReader(const EventFormat& format, std::string_view name, bool swap) : swap_(swap) {
        const Field* field = format.find(name);
        if (field != nullptr && (field->kind == FieldKind::number || field->kind == FieldKind::numbers)) {
            offset_ = field->offset;
            size_ = field->element_size;
            signed_ = field->is_signed;
        }
    }

    [[nodiscard]] explicit operator bool() const noexcept { return size_ != 0; }

    // The value, sign-extended where the field is signed. `index` picks an element of an array.
    [[nodiscard]] std::uint64_t get(const std::byte* data, std::uint32_t index = 0) const noexcept {
        const std::byte* at = data + offset_ + static_cast<std::size_t>(index) * size_;
        switch (size_) {
            case 1: {
                const auto value = load<std::uint8_t, false>(at);
                return signed_ ? static_cast<std::uint64_t>(static_cast<std::int8_t>(value)) : value;
            }
            case 2: {
                const auto value = load<std::uint16_t>(at, swap_);
                return signed_ ? static_cast<std::uint64_t>(static_cast<std::int16_t>(value)) : value;
            }
            case 4: {
                const auto value = load<std::uint32_t>(at, swap_);
                return signed_ ? static_cast<std::uint64_t>(static_cast<std::int32_t>(value)) : value;
            }
            case 8:
                return load<std::uint64_t>(at, swap_);
            default:
                return 0;
        }
    }

  private:
    std::uint32_t offset_ = 0;
    std::uint32_t size_ = 0;
    bool signed_ = false;
    bool swap_ = false;
};

}  // namespace sampleblk::trace
