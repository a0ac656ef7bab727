// SPDX-License-Identifier: MIT
// A growing array of numbers for columns of tens of millions of events. Small ones are the heap's, which keeps the
// memory for the next table; one that passes a megabyte moves once, to an address range as large as it can ever need,
// in huge pages: the first touch of small pages would cost as much as the decoding.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "events/huge_pool.hpp"

namespace sampleblk::trace {

class GrowBuffer {
  public:
    GrowBuffer() noexcept = default;
    GrowBuffer(GrowBuffer&& other) noexcept
        : memory_(std::exchange(other.memory_, {})), size_(std::exchange(other.size_, 0)), expected_(other.expected_) {}
    GrowBuffer& operator=(GrowBuffer&& other) noexcept {
        std::swap(memory_, other.memory_);
        std::swap(size_, other.size_);
        std::swap(expected_, other.expected_);
        return *this;
    }
    GrowBuffer(const GrowBuffer&) = delete;
    GrowBuffer& operator=(const GrowBuffer&) = delete;
    ~GrowBuffer() { memory_.release(size_); }

    // How large it can get at most, in bytes; a guess costs only addresses.
    void expect(std::size_t bytes) noexcept { expected_ = bytes; }

    [[nodiscard]] std::size_t size() const noexcept { return size_; }  // bytes
    [[nodiscard]] std::byte* data() noexcept { return memory_.data; }

    // Room for `bytes` more, which the caller fills.
    [[nodiscard]] std::byte* extend(std::size_t bytes) {
        if (bytes > memory_.room - size_) [[unlikely]] {
            grow(size_ + bytes);
        }
        std::byte* out = memory_.data + size_;
        size_ += bytes;
        return out;
    }

    // Hands the memory over; the buffer is empty afterwards.
    [[nodiscard]] std::shared_ptr<const void> share() {
        const Memory held = std::exchange(memory_, {});
        const std::size_t used = std::exchange(size_, 0);
        if (held.data == nullptr) {
            return std::make_shared<std::uint64_t>(0);  // numpy wants an address even for no rows
        }
        return {held.data, [held, used](std::byte*) { held.release(used); }};
    }

  private:
    struct Memory {
        std::byte* data = nullptr;
        std::size_t room = 0;
        bool huge = false;

        void release(std::size_t used) const noexcept {
            if (huge) {
                HugePool::instance().give(data, room, used);
            } else {
                std::free(data);  // NOLINT(cppcoreguidelines-no-malloc): realloc() grows in place where it can
            }
        }
    };

    static constexpr std::size_t kFirst = std::size_t{64} << 10;
    static constexpr std::size_t kSmall = std::size_t{1} << 20;

    void grow(std::size_t wanted) {
        std::size_t room = memory_.room == 0 ? kFirst : memory_.room * 2;
        while (room < wanted) {
            room *= 2;
        }
        if (room > kSmall) {
            move_to_huge(std::max(expected_, room));
            return;
        }
        void* data = std::realloc(memory_.data, room);  // NOLINT(cppcoreguidelines-no-malloc)
        if (data == nullptr) {
            throw std::bad_alloc();
        }
        memory_ = {static_cast<std::byte*>(data), room, false};
    }

    void move_to_huge(std::size_t wanted) {
        const auto [data, room] = HugePool::instance().take(wanted);
        if (size_ != 0) {
            std::memcpy(data, memory_.data, size_);
        }
        memory_.release(size_);
        memory_ = {data, room, true};
    }

    Memory memory_;
    std::size_t size_ = 0;
    std::size_t expected_ = 0;
};

}  // namespace sampleblk::trace
