// SPDX-License-Identifier: MIT
// Through the states of a model, each content once.
#pragma once

#include <cstdint>
#include <unordered_set>

#include "sampleblk/crash/image.hpp"
#include "sampleblk/crash/states.hpp"

namespace sampleblk::crash {

// Not for several threads at once.
class Walk {
  public:
    // `log` and `image` must stay.
    Walk(const Log& log, const Model& model, Image& image) : states_(log, model), image_(image) {}

    // Goes on to the next state whose contents have not been met, and has the image take it. False at the end, or when
    // `limit` states more were looked at: then at_end() tells.
    bool next(State& state, std::uint64_t limit);

    // States that were looked at, and of those the ones whose contents had been met.
    [[nodiscard]] std::uint64_t looked_at() const noexcept { return looked_at_; }
    [[nodiscard]] std::uint64_t repeated() const noexcept { return repeated_; }
    [[nodiscard]] bool at_end() const noexcept { return at_end_; }

  private:
    struct Hash {
        std::size_t operator()(const Digest& digest) const noexcept { return digest[0]; }
    };

    States states_;
    Image& image_;
    std::unordered_set<Digest, Hash> met_;
    std::uint64_t looked_at_ = 0;
    std::uint64_t repeated_ = 0;
    bool at_end_ = false;
};

}  // namespace sampleblk::crash
