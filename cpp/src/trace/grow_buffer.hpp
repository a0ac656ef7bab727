// SPDX-License-Identifier: MIT
// A growing array of numbers that never copies when it is large: mremap(2) moves its pages instead, and huge pages
// keep the first touch cheap. Columns of tens of millions of events are filled through it.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace sampleblk::trace {

class GrowBuffer {
  public:
    GrowBuffer() noexcept = default;
    GrowBuffer(GrowBuffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)),
          room_(std::exchange(other.room_, 0)) {}
    GrowBuffer& operator=(GrowBuffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(room_, other.room_);
        return *this;
    }
    GrowBuffer(const GrowBuffer&) = delete;
    GrowBuffer& operator=(const GrowBuffer&) = delete;
    ~GrowBuffer() { release(data_, room_); }

    [[nodiscard]] std::size_t size() const noexcept { return size_; }  // bytes
    [[nodiscard]] std::byte* data() noexcept { return data_; }

    // Room for `bytes` more, which the caller fills.
    [[nodiscard]] std::byte* extend(std::size_t bytes) {
        if (bytes > room_ - size_) [[unlikely]] {
            grow(size_ + bytes);
        }
        std::byte* out = data_ + size_;
        size_ += bytes;
        return out;
    }

    // Hands the memory over; the buffer is empty afterwards.
    [[nodiscard]] std::shared_ptr<const void> share() {
        std::byte* data = std::exchange(data_, nullptr);
        const std::size_t room = std::exchange(room_, 0);
        size_ = 0;
        if (data == nullptr) {
            return std::make_shared<std::uint64_t>(0);  // numpy wants an address even for no rows
        }
        return {data, [room](std::byte* held) { release(held, room); }};
    }

  private:
    static constexpr std::size_t kFirst = std::size_t{64} << 10;
    static constexpr std::size_t kHuge = std::size_t{2} << 20;

    static void release(std::byte* data, std::size_t room) noexcept {
        if (data != nullptr) {
            munmap(data, room);
        }
    }

    void grow(std::size_t wanted) {
        std::size_t room = room_ == 0 ? kFirst : room_ * 2;
        while (room < wanted) {
            room *= 2;
        }
        void* data = data_ == nullptr ? mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                      : mremap(data_, room_, room, MREMAP_MAYMOVE);
        if (data == MAP_FAILED) {
            throw std::bad_alloc();
        }
        if (room >= 2 * kHuge) {
            (void)madvise(data, room, MADV_HUGEPAGE);
        }
        data_ = static_cast<std::byte*>(data);
        room_ = room;
    }

    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t room_ = 0;
};

}  // namespace sampleblk::trace
