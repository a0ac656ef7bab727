// SPDX-License-Identifier: MIT
// Where in its file an I/O goes: on from the last one, or anywhere by a distribution, a random map and zones.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pattern/io.hpp"
#include "pattern/random.hpp"

namespace sampleblk::workload {

class OffsetChoice {
  public:
    // Gives each file its random map and its distribution.
    OffsetChoice(const JobPlan& plan, std::vector<FileState>& files, FileOpener& opener);

    // Back to the first zone; random choices start over where randrepeat asks for it.
    void begin_pass();

    // A file that was opened starts at its beginning.
    void reset(FileState& file) const;

    // Chooses io.offset for its file and direction, in the next zone if the last one is finished; `is_random` says how.
    // False: nothing is left of the file.
    [[nodiscard]] bool choose(Io& io, bool& is_random);

    // Books an I/O whose length is known. It may become shorter, where a block behind the first was used before.
    void take(Io& io, bool is_random);

    // In how many places a random I/O can begin.
    [[nodiscard]] std::uint64_t places(const FileState& file, Direction direction) const noexcept;

    // The short way of jobs whose blocks are all alike: one of the `places`, taken; nullopt when all are.
    [[nodiscard]] std::optional<std::uint64_t> take_any(FileState& file, std::uint64_t places) {
        std::uint64_t block = random_.below(places);
        if (uses_map_) {
            if (file.map.used(block)) {
                const auto free = file.map.next_free(block);
                if (!free) [[unlikely]] {
                    return std::nullopt;
                }
                block = *free;
            }
            file.map.use(block);
        }
        return block;
    }

  private:
    void seed_streams();
    void enter_zone(FileState& file, Direction direction);
    [[nodiscard]] std::uint64_t least_length(Direction direction, bool is_random) const noexcept;
    [[nodiscard]] bool has_room(const FileState& file, Direction direction, std::uint64_t offset) const noexcept;
    [[nodiscard]] bool next_in_order(FileState& file, Direction direction, std::uint64_t& offset);
    [[nodiscard]] bool sequential_offset(FileState& file, Direction direction, std::uint64_t& offset);
    [[nodiscard]] bool random_offset(FileState& file, Direction direction, std::uint64_t& offset);
    [[nodiscard]] bool random_block(FileState& file, Direction direction, std::uint64_t& block);
    [[nodiscard]] std::uint64_t zoned_block(std::uint64_t blocks, std::size_t direction);
    [[nodiscard]] bool free_block(const FileState& file, std::size_t direction, std::uint64_t blocks,
                                  std::uint64_t& block) const;

    const JobPlan& plan_;
    const JobOptions& options_;
    std::vector<FileState>& files_;
    FileOpener& opener_;
    Random random_;
    Random sequential_shares_;
    Random zone_choices_;
    std::uint32_t sequence_left_ = 1;
    std::uint64_t zone_bytes_ = 0;
    bool uses_map_ = false;
    std::uint64_t map_unit_ = UINT64_MAX;  // bytes that a bit of the random map stands for
    std::uint64_t greatest_least_ = 1;     // of the shortest blocks of each direction
};

}  // namespace sampleblk::workload
