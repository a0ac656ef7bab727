// SPDX-License-Identifier: MIT
// Which blocks of a file a pass of random I/O has used, so that each is used once.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace sampleblk::workload {

// A tree of bitmaps: a bit of an upper level says that the 64 bits below it are all set, so the next
// free block is found in as many steps as there are levels.
class RandomMap {
  public:
    RandomMap() = default;
    explicit RandomMap(std::uint64_t blocks) : blocks_(blocks) {
        std::uint64_t bits = blocks;
        do {
            const std::uint64_t words = (bits + 63) / 64;
            levels_.emplace_back(static_cast<std::size_t>(words), 0);
            bits = words;
        } while (bits > 1);
        seal();
    }

    [[nodiscard]] std::uint64_t blocks() const noexcept { return blocks_; }

    [[nodiscard]] bool used(std::uint64_t block) const noexcept {
        return (levels_[0][static_cast<std::size_t>(block / 64)] >> (block % 64) & 1) != 0;
    }

    void use(std::uint64_t block) noexcept {
        for (std::vector<std::uint64_t>& level : levels_) {
            std::uint64_t& word = level[static_cast<std::size_t>(block / 64)];
            word |= std::uint64_t{1} << (block % 64);
            if (word != UINT64_MAX) {
                return;
            }
            block /= 64;
        }
    }

    // The first free block at or after `block`, else the first one of all; nullopt when all are used.
    [[nodiscard]] std::optional<std::uint64_t> next_free(std::uint64_t block) const noexcept {
        if (const auto found = free_from(block)) {
            return found;
        }
        return free_from(0);
    }

    void clear() noexcept {
        for (std::vector<std::uint64_t>& level : levels_) {
            level.assign(level.size(), 0);
        }
        seal();
    }

  private:
    // Bits beyond the last block count as used.
    void seal() noexcept {
        std::uint64_t bits = blocks_;
        for (std::vector<std::uint64_t>& level : levels_) {
            if (bits % 64 != 0) {
                level.back() |= UINT64_MAX << (bits % 64);
            }
            bits = level.size();
        }
    }

    [[nodiscard]] std::optional<std::uint64_t> free_from(std::uint64_t position) const noexcept {
        std::size_t level = 0;
        for (;;) {
            const std::uint64_t word_index = position / 64;
            if (word_index < levels_[level].size()) {
                const std::uint64_t free =
                    ~levels_[level][static_cast<std::size_t>(word_index)] & (UINT64_MAX << (position % 64));
                if (free != 0) {
                    position = word_index * 64 + static_cast<std::uint64_t>(std::countr_zero(free));
                    if (level == 0) {
                        return position;
                    }
                    --level;
                    position *= 64;
                    continue;
                }
            }
            // Nothing left in this word: look in the next one, by the level above.
            if (level + 1 >= levels_.size()) {
                return std::nullopt;
            }
            ++level;
            position = word_index + 1;
        }
    }

    std::uint64_t blocks_ = 0;
    std::vector<std::vector<std::uint64_t>> levels_;
};

}  // namespace sampleblk::workload
