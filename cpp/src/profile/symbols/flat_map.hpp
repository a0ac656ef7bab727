// SPDX-License-Identifier: MIT
// u64 -> u32 by open addressing; for the caches that every sample goes through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sampleblk/mix.hpp"

namespace sampleblk::profile {

class FlatMap {
  public:
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};

    // The place of `key`'s value: kNone where the key is new. Valid until the next call.
    [[nodiscard]] std::uint32_t& at(std::uint64_t key) {
        if ((used_ + 1) * 2 > slots_.size()) {
            grow();
        }
        Slot& slot = probe(key);
        if (slot.value == kNone && !slot.taken) {
            slot.key = key;
            slot.taken = true;
            ++used_;
        }
        return slot.value;
    }

  private:
    struct Slot {
        std::uint64_t key = 0;
        std::uint32_t value = kNone;
        bool taken = false;
    };

    Slot& probe(std::uint64_t key) noexcept {
        const std::size_t mask = slots_.size() - 1;
        std::size_t at = mix(key) & mask;
        while (slots_[at].taken && slots_[at].key != key) {
            at = (at + 1) & mask;
        }
        return slots_[at];
    }

    void grow() {
        std::vector<Slot> old(slots_.empty() ? 1024 : slots_.size() * 2);
        old.swap(slots_);
        for (const Slot& slot : old) {
            if (slot.taken) {
                probe(slot.key) = slot;
            }
        }
    }

    std::vector<Slot> slots_;
    std::size_t used_ = 0;
};

}  // namespace sampleblk::profile
