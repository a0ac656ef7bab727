// SPDX-License-Identifier: MIT
// A growing array of numbers for columns of tens of millions of events. Small ones grow by mremap(2); one that passes
// a megabyte moves once, to an address range as large as it can ever need, in huge pages: the first touch of small
// pages would cost as much as the decoding.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
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
          room_(std::exchange(other.room_, 0)),
          expected_(other.expected_) {}
    GrowBuffer& operator=(GrowBuffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(room_, other.room_);
        std::swap(expected_, other.expected_);
        return *this;
    }
    GrowBuffer(const GrowBuffer&) = delete;
    GrowBuffer& operator=(const GrowBuffer&) = delete;
    ~GrowBuffer() { release(data_, room_); }

    // How large it can get at most, in bytes; a guess costs only addresses.
    void expect(std::size_t bytes) noexcept { expected_ = bytes; }

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
        std::size_t room = std::exchange(room_, 0);
        // The addresses that were not needed, in whole pages.
        const std::size_t used = (size_ + kPage - 1) / kPage * kPage;
        if (data != nullptr && used != 0 && used < room) {
            munmap(data + used, room - used);
            room = used;
        }
        size_ = 0;
        if (data == nullptr) {
            return std::make_shared<std::uint64_t>(0);  // numpy wants an address even for no rows
        }
        return {data, [room](std::byte* held) { release(held, room); }};
    }

  private:
    static constexpr std::size_t kFirst = std::size_t{64} << 10;
    static constexpr std::size_t kPage = std::size_t{64} << 10;  // a multiple of every system's page size
    static constexpr std::size_t kSmall = std::size_t{1} << 20;
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
        if (room > kSmall && expected_ > room) {
            move_to_huge(expected_);
            return;
        }
        void* data = data_ == nullptr ? mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                      : mremap(data_, room_, room, MREMAP_MAYMOVE);
        if (data == MAP_FAILED) {
            throw std::bad_alloc();
        }
        data_ = static_cast<std::byte*>(data);
        room_ = room;
    }

    void move_to_huge(std::size_t wanted) {
        const std::size_t room = (wanted + kHuge - 1) / kHuge * kHuge;
        void* mapped =
            mmap(nullptr, room + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED) {
            throw std::bad_alloc();
        }
        // Only aligned stretches become huge pages.
        const auto start = reinterpret_cast<std::uintptr_t>(mapped);
        const std::uintptr_t aligned = (start + kHuge - 1) / kHuge * kHuge;
        if (aligned != start) {
            munmap(mapped, aligned - start);
        }
        const std::size_t tail = start + kHuge - aligned;
        if (tail != 0) {
            munmap(reinterpret_cast<void*>(aligned + room), tail);
        }
        auto* data = reinterpret_cast<std::byte*>(aligned);
        (void)madvise(data, room, MADV_HUGEPAGE);
        if (size_ != 0) {
            std::memcpy(data, data_, size_);
        }
        release(data_, room_);
        data_ = data;
        room_ = room;
    }

    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t room_ = 0;
    std::size_t expected_ = 0;
};

}  // namespace sampleblk::trace
