// SPDX-License-Identifier: MIT
#include "sampleblk/crash/walk.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "sampleblk/error.hpp"
#include "sampleblk/mix.hpp"

namespace sampleblk::crash {

namespace {

// After so many that are like others, the next round begins: a model may be too large to be gone through at all.
constexpr std::uint64_t most_fruitless = 1U << 16U;
// Of draws, those that are rarely drawn would keep a round going for ever: it ends where so many for each that was
// looked at, and as many again as a first look takes, were like others.
constexpr std::uint64_t draws_for_each = 8;
constexpr std::uint64_t draws_at_first = 1024;

}  // namespace

Walk::Walk(const Log& log, const Model& model, Image& image, std::vector<std::uint32_t> kinds)
    : log_(log), model_(model), states_(std::make_unique<States>(log, model)), image_(image), kinds_(std::move(kinds)) {
    if (kinds_.empty()) {
        return;
    }
    if (kinds_.size() != log.writes().size()) {
        throw InputError(std::to_string(kinds_.size()) + " kinds of " + std::to_string(log.writes().size()) + " writes",
                         {}, 0, "one for each");
    }
    std::vector<std::uint64_t> events;
    for (const Flush& flush : log.flushes()) {
        events.push_back(flush.submit);
    }
    for (const Mark& mark : log.marks()) {
        events.push_back(mark.order);
    }
    std::ranges::sort(events);
    for (const std::uint32_t write : log.by_submission()) {
        const auto after = std::ranges::lower_bound(events, log.writes()[write].submit);
        before_.push_back(static_cast<std::uint32_t>(after - events.begin()));
    }
}

// How many states of a likeness a round looks at.
std::uint64_t Walk::wanted(unsigned round) {
    return round == 0 ? 1 : std::uint64_t{1} << std::min(round - 1, 63U);
}

Walk::Turn Walk::turn_of(const State& state) {
    const std::uint64_t at = at_++;
    const std::uint64_t last = state.submitted == 0 ? 0 : kinds_[log_.by_submission()[state.submitted - 1]] + 1ULL;
    std::vector<std::uint64_t> gone;
    gone.reserve(state.lost.size() + state.torn.size());
    for (const std::uint32_t write : state.lost) {
        gone.push_back(std::uint64_t{kinds_[write]} << 1U);
    }
    for (const Tear& tear : state.torn) {
        gone.push_back(std::uint64_t{kinds_[tear.write]} << 1U | 1U);
    }
    // Which kinds they are, not how many of each.
    std::ranges::sort(gone);
    gone.erase(std::ranges::unique(gone).begin(), gone.end());
    std::uint64_t likeness = mix(last + 1);
    for (const std::uint64_t kind : gone) {
        likeness = mix(likeness ^ (kind + mix_step));
    }
    const std::uint64_t place = state.submitted == 0 ? 0 : before_[state.submitted - 1];
    std::uint64_t& rough = alike_[likeness];
    std::uint64_t none = 0;
    std::uint64_t& fine = round_ == 0 ? none : alike_[mix(likeness ^ (place + 1))];
    Turn turn = Turn::now;
    if ((round_ == 0 ? rough : fine) >= wanted(round_)) {
        turn = Turn::later;
    } else if (round_ > 0 && at < end_ && (round_ == 1 ? rough : fine) < wanted(round_ - 1)) {
        // Rounds take in more and more: what one has looked at, the next one would, too.
        turn = Turn::earlier;
    }
    // A draw that is left does not come again: it counts for nothing, or what is drawn often would never be looked at.
    if (turn != Turn::later || model_.kind != Model::Kind::sample) {
        ++rough;
        ++fine;
    }
    return turn;
}

void Walk::next_round() {
    ++round_;
    any_left_ = false;
    left_ = 0;
    looked_in_round_ = 0;
    end_ = 0;
    // Draws do not come again.
    if (model_.kind != Model::Kind::sample) {
        states_ = std::make_unique<States>(log_, model_);
        alike_.clear();
        end_ = std::exchange(at_, 0);
    }
}

bool Walk::next(State& state, std::uint64_t limit) {
    for (std::uint64_t looked = 0; looked < limit; ++looked) {
        if (!states_->next(state)) {
            if (!any_left_) {
                at_end_ = true;
                return false;
            }
            next_round();
            continue;
        }
        const Turn turn = kinds_.empty() ? Turn::now : turn_of(state);
        if (turn == Turn::later) {
            any_left_ = true;
            ++left_;
            ++passed_over_;
            if (model_.kind == Model::Kind::sample) {
                --looked;  // its end is when so many bring nothing new
                if (left_ > draws_at_first + draws_for_each * looked_in_round_) {
                    next_round();
                }
            } else if (left_ == most_fruitless) {
                next_round();
            }
            continue;
        }
        if (model_.kind != Model::Kind::sample) {
            left_ = 0;
        }
        ++looked_in_round_;
        if (turn == Turn::earlier) {
            continue;
        }
        ++looked_at_;
        image_.take(state);
        const auto first = static_cast<std::uint32_t>(marks_set_first(log_, state));
        const auto last = static_cast<std::uint32_t>(marks_set(log_, state));
        const auto [begin, end] = met_.equal_range(image_.digest());
        const bool is_met = std::any_of(
            begin, end, [&](const auto& met) { return met.second.first <= first && last <= met.second.second; });
        if (!is_met) {
            met_.emplace(image_.digest(), std::pair(first, last));
            return true;
        }
        ++repeated_;
    }
    return false;
}

}  // namespace sampleblk::crash
