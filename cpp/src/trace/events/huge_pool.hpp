// SPDX-License-Identifier: MIT
// Large mappings that one table gave back, for the next one: the kernel clears every page that it hands out, which
// takes as long as filling it with columns, and a recording read in batches would pay it again for each batch.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace sampleblk::trace {

class HugePool {
  public:
    // The one pool of the process. It is never destroyed: tables may outlive static objects.
    static HugePool& instance() {
        static auto* const pool = new HugePool;
        return *pool;
    }

    // A mapping of `room` bytes at least, a multiple of 2 MiB and aligned to it; its content is anything.
    // Only what is touched takes memory. Throws std::bad_alloc.
    [[nodiscard]] std::pair<std::byte*, std::size_t> take(std::size_t room) {
        room = (room + kHuge - 1) / kHuge * kHuge;
        {
            const std::scoped_lock lock(mutex_);
            // From the back: what came last is likeliest to be in the caches.
            for (auto held = held_.rbegin(); held != held_.rend(); ++held) {
                if (held->room >= room && held->room <= 2 * room) {
                    const std::pair out{held->data, held->room};
                    used_ -= held->used;
                    held_.erase(std::next(held).base());
                    return out;
                }
            }
        }
        return {map(room), room};
    }

    // Gives a mapping back, of which the first `used` bytes were touched.
    void give(std::byte* data, std::size_t room, std::size_t used) noexcept {
        used = (used + kHuge - 1) / kHuge * kHuge;
        if (used <= kMaxUsed) {
            const std::scoped_lock lock(mutex_);
            while (used_ + used > kMaxUsed) {
                used_ -= held_.front().used;
                munmap(held_.front().data, held_.front().room);
                held_.erase(held_.begin());
            }
            if (held_.size() < held_.capacity()) {
                held_.push_back({data, room, used});
                used_ += used;
                return;
            }
        }
        munmap(data, room);
    }

  private:
    struct Held {
        std::byte* data;
        std::size_t room;
        std::size_t used;
    };

    static constexpr std::size_t kHuge = std::size_t{2} << 20;
    // Resident bytes that are kept at most, and mappings: the columns of a table of some million rows.
    static constexpr std::size_t kMaxUsed = std::size_t{128} << 20;
    static constexpr std::size_t kMaxHeld = 64;

    HugePool() { held_.reserve(kMaxHeld); }

    static std::byte* map(std::size_t room) {
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
        return data;
    }

    std::mutex mutex_;
    std::vector<Held> held_;  // oldest first
    std::size_t used_ = 0;    // of all that are held
};

}  // namespace sampleblk::trace
