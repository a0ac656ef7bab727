// SPDX-License-Identifier: MIT
// Reads numbers and strings off the front of bytes that may be too few: past the end everything is zero or empty, and
// overrun() tells.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace sampleblk::profile {

class ByteReader {
  public:
    explicit ByteReader(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}

    [[nodiscard]] std::size_t left() const noexcept { return bytes_.size(); }
    [[nodiscard]] bool overrun() const noexcept { return overrun_; }

    template <typename T>
    [[nodiscard]] T number() noexcept {
        T value{};
        if (const auto bytes = take(sizeof(T)); bytes.size() == sizeof(T)) {
            std::memcpy(&value, bytes.data(), sizeof(T));
        }
        return value;
    }

    [[nodiscard]] std::span<const std::byte> take(std::size_t count) noexcept {
        if (count > bytes_.size()) {
            overrun_ = true;
            bytes_ = {};
            return {};
        }
        const auto taken = bytes_.first(count);
        bytes_ = bytes_.subspan(count);
        return taken;
    }

    // `count` elements of `size` bytes; the product cannot overflow.
    [[nodiscard]] std::span<const std::byte> take_many(std::uint64_t count, std::size_t size) noexcept {
        if (count > bytes_.size() / size) {
            overrun_ = true;
            bytes_ = {};
            return {};
        }
        return take(static_cast<std::size_t>(count) * size);
    }

    void skip(std::size_t count) noexcept { (void)take(count); }
    void skip_many(std::uint64_t count, std::size_t size) noexcept { (void)take_many(count, size); }

    // Up to its NUL, or all that is left.
    [[nodiscard]] std::string c_string() {
        const auto end = std::ranges::find(bytes_, std::byte{0});
        const auto length = static_cast<std::size_t>(end - bytes_.begin());
        std::string text(reinterpret_cast<const char*>(bytes_.data()), length);
        bytes_ = bytes_.subspan(std::min(length + 1, bytes_.size()));
        return text;
    }

    // perf's: a u32 of how many bytes follow, and in them a string with its NUL and padding.
    [[nodiscard]] std::string counted_string() {
        const auto size = number<std::uint32_t>();
        return ByteReader(take(size)).c_string();
    }

  private:
    std::span<const std::byte> bytes_;
    bool overrun_ = false;
};

}  // namespace sampleblk::profile
