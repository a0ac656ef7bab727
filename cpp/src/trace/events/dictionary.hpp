// SPDX-License-Identifier: MIT
// Strings of events to dictionary codes, with a small cache in front of the pool: names repeat, and a hash of the
// whole string for each event would cost more than the rest of the decoding.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <string_view>

#include "file/text.hpp"
#include "sampleblk/table.hpp"

namespace sampleblk::trace {

class Dictionary {
  public:
    // The code of the text in `bytes`, which ends at its first NUL or at its end.
    [[nodiscard]] std::int32_t code(std::string_view bytes) {
        const Key key = key_of(bytes);
        Entry& entry = cache_[key.slot];
        if (entry.code >= 0 && entry.head == key.head && entry.tail == key.tail && entry.size == bytes.size() &&
            (bytes.size() <= 16 || std::memcmp(entry.raw.data(), bytes.data(), bytes.size()) == 0)) [[likely]] {
            return entry.code;
        }
        const std::string_view text = bytes.substr(0, bytes.find('\0'));
        entry.head = key.head;
        entry.tail = key.tail;
        entry.size = bytes.size();
        if (bytes.size() > 16) {
            entry.raw.assign(bytes);
        }
        entry.code = pool_->intern(printable(text));
        return entry.code;
    }

    [[nodiscard]] const std::shared_ptr<StringPool>& pool() const noexcept { return pool_; }

    // Hands the pool over and begins a new one.
    [[nodiscard]] std::shared_ptr<const StringPool> take() {
        for (Entry& entry : cache_) {
            entry.code = -1;
        }
        return std::exchange(pool_, std::make_shared<StringPool>());
    }

  private:
    struct Key {
        std::uint64_t head;
        std::uint64_t tail;
        std::size_t slot;
    };
    struct Entry {
        std::uint64_t head = 0;
        std::uint64_t tail = 0;
        std::size_t size = 0;
        std::string raw;
        std::int32_t code = -1;
    };
    static constexpr unsigned kBits = 9;

    static Key key_of(std::string_view bytes) noexcept {
        Key key{0, 0, 0};
        if (bytes.size() >= 8) [[likely]] {
            std::memcpy(&key.head, bytes.data(), 8);
            std::memcpy(&key.tail, bytes.data() + bytes.size() - 8, 8);
        } else if (!bytes.empty()) {
            std::memcpy(&key.head, bytes.data(), bytes.size());
        }
        // Fibonacci hashing of the two halves.
        const std::uint64_t mixed = (key.head ^ (key.tail * 0x9e3779b97f4a7c15ULL)) * 0x9e3779b97f4a7c15ULL;
        key.slot = static_cast<std::size_t>(mixed >> (64 - kBits));
        return key;
    }

    std::array<Entry, std::size_t{1} << kBits> cache_;
    std::shared_ptr<StringPool> pool_ = std::make_shared<StringPool>();
};

}  // namespace sampleblk::trace
