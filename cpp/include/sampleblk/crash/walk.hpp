// SPDX-License-Identifier: MIT
// Through the states of a model, each content once for all that may have been promised of it.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sampleblk/crash/image.hpp"
#include "sampleblk/crash/states.hpp"

namespace sampleblk::crash {

// Not for several threads at once.
//
// With kinds of writes, unlike states come first: of each likeness one, then two, then four, until all were looked at.
// Two states are alike if the last write submitted is of one kind in both, and what is lost and what is torn are writes
// of the same kinds (representative testing, as in Pathfinder, OOPSLA 2025); from the second round on also if as many
// flushes were submitted and as many marks set before the crash. Each round goes through the model again, which costs
// little beside a check.
class Walk {
  public:
    // `log` and `image` must stay. `kinds`: a number for each write of the log, or nothing, for the order of the log.
    // Throws InputError for another count of them.
    Walk(const Log& log, const Model& model, Image& image, std::vector<std::uint32_t> kinds = {});

    // Goes on to the next state whose contents have not been met, or with no state of which a crash may have come with
    // as few and as many marks set (marks_set_first(), marks_set()), and has the image take it. False at the end, or
    // when `limit` states more were gone through: then at_end() tells. Of a sample, what is left for later does not
    // count.
    bool next(State& state, std::uint64_t limit);

    // States that were looked at, and of those the ones whose contents had been met.
    [[nodiscard]] std::uint64_t looked_at() const noexcept { return looked_at_; }
    [[nodiscard]] std::uint64_t repeated() const noexcept { return repeated_; }
    // States that were left for a later round; of an enumeration each may be counted in several.
    [[nodiscard]] std::uint64_t passed_over() const noexcept { return passed_over_; }
    [[nodiscard]] bool at_end() const noexcept { return at_end_; }

  private:
    enum class Turn : std::uint8_t { now, earlier, later };  // rounds

    [[nodiscard]] static std::uint64_t wanted(unsigned round);
    Turn turn_of(const State& state);
    void next_round();

    const Log& log_;
    Model model_;
    std::unique_ptr<States> states_;
    Image& image_;
    // Contents, with the fewest and the most marks that were set.
    std::unordered_multimap<Digest, std::pair<std::uint32_t, std::uint32_t>, DigestHash> met_;
    std::uint64_t looked_at_ = 0;
    std::uint64_t repeated_ = 0;
    std::uint64_t passed_over_ = 0;
    bool at_end_ = false;

    std::vector<std::uint32_t> kinds_;
    std::vector<std::uint32_t> before_;  // flushes and marks before each submission
    unsigned round_ = 0;
    // Of this round: states by likeness, how many there were (of draws in all rounds, how many were looked at), and
    // whether any is left.
    std::unordered_map<std::uint64_t, std::uint64_t> alike_;
    std::uint64_t at_ = 0;
    bool any_left_ = false;
    std::uint64_t left_ = 0;  // for later rounds: of draws in this round, else in a row
    std::uint64_t looked_in_round_ = 0;
    std::uint64_t end_ = 0;  // how far the round before came
};

}  // namespace sampleblk::crash
