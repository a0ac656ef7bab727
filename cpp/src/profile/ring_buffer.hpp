// SPDX-License-Identifier: MIT
// The memory that the kernel writes one CPU's records to (perf_event_open(2), "MMAP layout").
#pragma once

#include <linux/perf_event.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "sampleblk/error.hpp"

namespace sampleblk::profile {

class RingBuffer {
  public:
    // Maps `pages` (a power of two) of the event `fd`. Throws SystemError; EPERM means perf_event_mlock_kb.
    RingBuffer(int fd, std::size_t pages)
        : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))), size_(pages * page_) {
        void* mapping = ::mmap(nullptr, page_ + size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapping == MAP_FAILED) {
            throw_errno("mmap of a perf event's ring buffer");
        }
        base_ = static_cast<std::byte*>(mapping);
    }
    RingBuffer(RingBuffer&& other) noexcept
        : page_(other.page_), size_(other.size_), base_(std::exchange(other.base_, nullptr)) {}
    RingBuffer& operator=(RingBuffer&&) = delete;
    RingBuffer(const RingBuffer&) = delete;
    RingBuffer& operator=(const RingBuffer&) = delete;
    ~RingBuffer() {
        if (base_ != nullptr) {
            ::munmap(base_, page_ + size_);
        }
    }

    // Hands what there is to `take`, in one or two parts, and frees it afterwards.
    template <typename Take>
    void drain(Take&& take) {
        auto* page = reinterpret_cast<perf_event_mmap_page*>(base_);
        const std::uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
        const std::uint64_t tail = page->data_tail;
        if (head == tail) {
            return;
        }
        const std::size_t from = tail % size_;
        const std::size_t length = head - tail;
        const std::size_t first = std::min<std::size_t>(length, size_ - from);
        const std::byte* data = base_ + page_;
        take(std::array{std::span(data + from, first), std::span(data, length - first)});
        __atomic_store_n(&page->data_tail, head, __ATOMIC_RELEASE);
    }

  private:
    std::size_t page_;
    std::size_t size_;
    std::byte* base_ = nullptr;
};

}  // namespace sampleblk::profile
