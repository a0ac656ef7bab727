// SPDX-License-Identifier: MIT
// The memory that the kernel writes one CPU's records to (perf_event_open(2), "MMAP layout").
#pragma once

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "sampleblk/linux_headers.hpp"
#include "sampleblk/mapping.hpp"

namespace sampleblk::profile {

class RingBuffer {
  public:
    // Maps `pages` (a power of two) of the event `fd`. Throws SystemError; EPERM means perf_event_mlock_kb.
    RingBuffer(int fd, std::size_t pages)
        : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
          size_(pages * page_),
          mapping_(page_ + size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0, "a perf event's ring buffer") {}

    // Hands what there is to `take`, in one or two parts, and frees it afterwards.
    template <typename Take>
    void drain(Take&& take) {
        auto* page = reinterpret_cast<perf_event_mmap_page*>(mapping_.data());
        const std::uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
        const std::uint64_t tail = page->data_tail;
        if (head == tail) {
            return;
        }
        const std::size_t from = tail % size_;
        const std::size_t length = head - tail;
        const std::size_t first = std::min<std::size_t>(length, size_ - from);
        const std::byte* data = mapping_.data() + page_;
        take(std::array{std::span(data + from, first), std::span(data, length - first)});
        __atomic_store_n(&page->data_tail, head, __ATOMIC_RELEASE);
    }

  private:
    std::size_t page_;
    std::size_t size_;
    sampleblk::Mapping mapping_;  // profile::Mapping is a process's
};

}  // namespace sampleblk::profile
