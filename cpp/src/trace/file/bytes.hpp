// SPDX-License-Identifier: MIT
// Numbers read from a recording, whose byte order need not be ours.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "sampleblk/error.hpp"

namespace sampleblk::trace {

template <typename T>
[[nodiscard]] constexpr T byte_swap(T value) noexcept {
    if constexpr (sizeof(T) == 2) {
        return static_cast<T>(__builtin_bswap16(static_cast<std::uint16_t>(value)));
    } else if constexpr (sizeof(T) == 4) {
        return static_cast<T>(__builtin_bswap32(static_cast<std::uint32_t>(value)));
    } else if constexpr (sizeof(T) == 8) {
        return static_cast<T>(__builtin_bswap64(static_cast<std::uint64_t>(value)));
    } else {
        return value;
    }
}

// Reads an unaligned T; `Swap` says that the recording's byte order is not ours.
template <typename T, bool Swap>
[[nodiscard]] inline T load(const std::byte* at) noexcept {
    T value;
    std::memcpy(&value, at, sizeof(T));
    if constexpr (Swap) {
        value = byte_swap(value);
    }
    return value;
}

template <typename T>
[[nodiscard]] inline T load(const std::byte* at, bool swap) noexcept {
    return swap ? load<T, true>(at) : load<T, false>(at);
}

[[nodiscard]] inline bool swap_needed(bool big_endian) noexcept {
    return big_endian != (std::endian::native == std::endian::big);
}

[[nodiscard]] inline std::string_view as_text(std::span<const std::byte> bytes) noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A bounded reader of one stretch of a file; running off its end is a FormatError with file and offset.
class ByteReader {
  public:
    // `base` is where `bytes` starts in the file `path`.
    ByteReader(std::span<const std::byte> bytes, std::string path, std::uint64_t base, bool big_endian)
        : bytes_(bytes), path_(std::move(path)), base_(base), swap_(swap_needed(big_endian)) {}

    [[nodiscard]] std::uint64_t offset() const noexcept { return base_ + at_; }
    [[nodiscard]] std::size_t position() const noexcept { return at_; }
    [[nodiscard]] std::size_t left() const noexcept { return bytes_.size() - at_; }
    // All that is left, not taken.
    [[nodiscard]] std::span<const std::byte> rest() const noexcept { return bytes_.subspan(at_); }
    void set_big_endian(bool big_endian) noexcept { swap_ = swap_needed(big_endian); }

    [[nodiscard]] std::span<const std::byte> take(std::uint64_t count, std::string_view what) {
        if (count > left()) {
            fail(std::to_string(count) + " bytes of " + std::string(what) + ", of which " + std::to_string(left()) +
                 " are there");
        }
        const auto out = bytes_.subspan(at_, static_cast<std::size_t>(count));
        at_ += static_cast<std::size_t>(count);
        return out;
    }

    template <typename T>
    [[nodiscard]] T number(std::string_view what) {
        return load<T>(take(sizeof(T), what).data(), swap_);
    }

    // A NUL-terminated string, without its NUL.
    [[nodiscard]] std::string_view text(std::string_view what) {
        const auto rest = as_text(bytes_.subspan(at_));
        const std::size_t end = rest.find('\0');
        if (end == std::string_view::npos) {
            fail("a NUL at the end of " + std::string(what));
        }
        at_ += end + 1;
        return rest.substr(0, end);
    }

    [[noreturn]] void fail(const std::string& expected) const { throw FormatError(path_, offset(), expected); }

  private:
    std::span<const std::byte> bytes_;
    std::string path_;
    std::uint64_t base_;
    std::size_t at_ = 0;
    bool swap_;
};

}  // namespace sampleblk::trace
