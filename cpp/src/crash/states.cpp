// SPDX-License-Identifier: MIT
#include "sampleblk/crash/states.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/mix.hpp"

namespace sampleblk::crash {

namespace {

// The subsets of `size` things that have `chosen` of them, in lexicographic order.
class Combinations {
  public:
    void start(std::size_t size, std::size_t chosen) {
        size_ = size;
        picked_.resize(chosen);
        for (std::size_t i = 0; i < chosen; ++i) {
            picked_[i] = i;
        }
    }

    [[nodiscard]] const std::vector<std::size_t>& picked() const noexcept { return picked_; }

    bool next() {
        for (std::size_t i = picked_.size(); i-- > 0;) {
            if (picked_[i] + (picked_.size() - i) < size_) {
                ++picked_[i];
                for (std::size_t j = i + 1; j < picked_.size(); ++j) {
                    picked_[j] = picked_[j - 1] + 1;
                }
                return true;
            }
        }
        return false;
    }

  private:
    std::size_t size_ = 0;
    std::vector<std::size_t> picked_;
};

// How many subsets of `size` things have `chosen` of them.
double binomial(std::size_t size, std::size_t chosen) {
    double found = 1;
    for (std::size_t i = 0; i < std::min(chosen, size - chosen); ++i) {
        found = found * static_cast<double>(size - i) / static_cast<double>(i + 1);
    }
    return std::round(found);
}

// splitmix64: the same numbers on every machine, which the standard's distributions do not promise.
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() { return mix(state_ += mix_step); }

    // Below `bound` > 0, which is so small beside 2^64 that the bias is nothing.
    std::uint64_t below(std::uint64_t bound) { return next() % bound; }

    bool one_in(std::uint64_t n) { return below(n) == 0; }

  private:
    std::uint64_t state_;
};

constexpr std::size_t states_between_checks = 4096;

}  // namespace

// What a crash may lose changes with each submission only: between two of them, more becomes durable, and what can be
// left then could be left before. So each state belongs to the submission of the last write that is in it, and the
// states of a submission have that write and any set of the others that are open then.
class States::Source {
  public:
    Source(const Log& log, const Model& model) : log_(log), model_(model), random_(model.seed) {
        if (model.complete_up_to > 24) {
            throw InputError("all subsets of " + std::to_string(model.complete_up_to) + " writes", {}, 0, "at most 24");
        }
        if (model.kind == Model::Kind::torn && model.tears == 0) {
            throw InputError("no place to tear a write at", {}, 0, "tears of 1 or more");
        }
        if (model_.unit_sectors == 0) {
            model_.unit_sectors = std::max<std::uint32_t>(log.block_bytes() / sector_bytes, 1);
        }
    }

    bool next(State& state) {
        if (++made_ % states_between_checks == 0) {
            check_interrupt();
        }
        if (!begun_) {
            begun_ = true;
            state = {};
            return true;
        }
        switch (model_.kind) {
            case Model::Kind::prefix:
                state = {};
                return step(state);
            case Model::Kind::reorder:
                return next_reordered(state);
            case Model::Kind::torn:
                return next_torn(state);
            case Model::Kind::sample:
                return next_sample(state);
        }
        return false;
    }

    [[nodiscard]] double count() const {
        Source walk(log_, model_);
        State state;
        double found = 1;
        while (walk.step(state)) {
            const std::size_t open = walk.open_.size();
            switch (model_.kind) {
                case Model::Kind::prefix:
                    found += 1;
                    break;
                case Model::Kind::reorder: {
                    const auto [lost, kept] = walk.limits();
                    for (std::size_t r = 0; r <= lost; ++r) {
                        found += binomial(open, r);
                    }
                    for (std::size_t r = 0; kept && r <= *kept; ++r) {
                        found += binomial(open, r);
                    }
                    break;
                }
                case Model::Kind::torn:
                    found += static_cast<double>(walk.tears().size());
                    break;
                case Model::Kind::sample:
                    found += std::exp2(static_cast<double>(open));
                    break;
            }
        }
        return found;
    }

  private:
    // Goes to the next submission. open_ then has what is neither durable nor the last one, by submission.
    bool step(State& state) {
        const std::vector<std::uint32_t>& order = log_.by_submission();
        if (submitted_ == order.size()) {
            return false;
        }
        if (submitted_ > 0) {
            open_.push_back(order[submitted_ - 1]);
        }
        last_ = order[submitted_];
        ++submitted_;
        const std::uint64_t now = log_.writes()[last_].submit;
        std::erase_if(open_, [&](std::uint32_t write) { return log_.writes()[write].durable_at < now; });
        state.submitted = submitted_;
        return true;
    }

    // Of the open ones: how many may be lost, and, where those are not all subsets, how many may be kept.
    [[nodiscard]] std::pair<std::size_t, std::optional<std::size_t>> limits() const {
        const std::size_t open = open_.size();
        if (open <= model_.complete_up_to || open <= model_.at_most) {
            return {open, std::nullopt};
        }
        const std::size_t lost = model_.at_most;
        return {lost, std::min<std::size_t>(model_.at_most, open - lost - 1)};
    }

    bool next_reordered(State& state) {
        if (!choosing_ || !next_choice()) {
            if (!step(state)) {
                return false;
            }
            choosing_ = true;
            keeping_ = false;
            chosen_ = 0;
            combinations_.start(open_.size(), 0);
        }
        state.submitted = submitted_;
        state.torn.clear();
        state.lost.clear();
        const std::vector<std::size_t>& picked = combinations_.picked();
        if (keeping_) {
            std::size_t kept = 0;
            for (std::size_t i = 0; i < open_.size(); ++i) {
                if (kept < picked.size() && picked[kept] == i) {
                    ++kept;
                } else {
                    state.lost.push_back(open_[i]);
                }
            }
        } else {
            for (const std::size_t i : picked) {
                state.lost.push_back(open_[i]);
            }
        }
        std::ranges::sort(state.lost);
        return true;
    }

    bool next_choice() {
        if (combinations_.next()) {
            return true;
        }
        const auto [lost, kept] = limits();
        ++chosen_;
        if (!keeping_ && chosen_ > lost) {
            keeping_ = true;
            chosen_ = 0;
        }
        if (keeping_ && (!kept || chosen_ > *kept)) {
            return false;
        }
        combinations_.start(open_.size(), chosen_);
        return true;
    }

    // Sectors of a write that are in the same unit of the disk as its first one. A disk's blocks begin at multiples of
    // their size, wherever a write does.
    [[nodiscard]] std::uint64_t head_of(const Write& write) const {
        return model_.unit_sectors - (write.pieces.empty() ? 0 : write.pieces.front().sector % model_.unit_sectors);
    }

    // In how many parts a write may come to the disk.
    [[nodiscard]] std::uint64_t units_of(const Write& write) const {
        const std::uint64_t sectors = write.sectors();
        const std::uint64_t head = head_of(write);
        return write.atomic || sectors <= head ? 1
                                               : 1 + (sectors - head + model_.unit_sectors - 1) / model_.unit_sectors;
    }

    // How many of its sectors so many of these parts are.
    [[nodiscard]] std::uint64_t sectors_in(const Write& write, std::uint64_t units) const {
        return units == 0 ? 0 : std::min(head_of(write) + (units - 1) * model_.unit_sectors, write.sectors());
    }

    // Each place where one of the writes that are not durable may have ended.
    [[nodiscard]] std::vector<Tear> tears() const {
        std::vector<Tear> found;
        const auto add = [&](std::uint32_t write) {
            const Write& about = log_.writes()[write];
            const std::uint64_t units = units_of(about);
            if (units < 2) {
                return;
            }
            const std::uint64_t places = std::min<std::uint64_t>(units - 1, model_.tears);
            for (std::uint64_t place = 1; place <= places; ++place) {
                const std::uint64_t after = units / (places + 1) * place + units % (places + 1) * place / (places + 1);
                found.push_back({write, 0, sectors_in(about, std::max<std::uint64_t>(after, 1))});
            }
        };
        std::ranges::for_each(open_, add);
        add(last_);
        return found;
    }

    bool next_torn(State& state) {
        while (next_tear_ == tears_.size()) {
            if (!step(state)) {
                return false;
            }
            tears_ = tears();
            next_tear_ = 0;
        }
        state.submitted = submitted_;
        state.lost.clear();
        state.torn.assign(1, tears_[next_tear_++]);
        return true;
    }

    bool next_sample(State& state) {
        const std::vector<std::uint32_t>& order = log_.by_submission();
        if (order.empty()) {
            return false;
        }
        const std::size_t submitted = random_.below(order.size()) + 1;
        const std::uint64_t now = log_.writes()[order[submitted - 1]].submit;
        state = {.submitted = submitted, .lost = {}, .torn = {}};
        // Few lost, half of them, nearly all: each finds what the others do not.
        constexpr std::array<std::uint64_t, 3> lost_of_8{1, 4, 7};
        const std::uint64_t lost = lost_of_8[random_.below(lost_of_8.size())];
        for (std::size_t i = 0; i < submitted; ++i) {
            const std::uint32_t write = order[i];
            const Write& about = log_.writes()[write];
            if (about.durable_at < now) {
                continue;
            }
            if (i + 1 < submitted && random_.below(8) < lost) {
                state.lost.push_back(write);
                continue;
            }
            const std::uint64_t units = units_of(about);
            if (units > 1 && random_.one_in(8)) {
                // Any run of units but all of them.
                const std::uint64_t length = random_.below(units - 1) + 1;
                const std::uint64_t first = random_.below(units - length + 1);
                const std::uint64_t begin = sectors_in(about, first);
                state.torn.push_back({write, begin, sectors_in(about, first + length) - begin});
            }
        }
        std::ranges::sort(state.lost);
        std::ranges::sort(state.torn, {}, &Tear::write);
        return true;
    }

    const Log& log_;
    Model model_;
    Random random_;
    std::size_t made_ = 0;
    bool begun_ = false;
    std::size_t submitted_ = 0;
    std::uint32_t last_ = 0;
    std::vector<std::uint32_t> open_;
    // reorder
    bool choosing_ = false;
    bool keeping_ = false;
    std::size_t chosen_ = 0;
    Combinations combinations_;
    // torn
    std::vector<Tear> tears_;
    std::size_t next_tear_ = 0;
};

void check_of(const Log& log, const State& state) {
    const auto can_be = [&](std::uint32_t write) { return log.may_lose(write, state.submitted); };
    const auto can_tear = [&](const Tear& tear) {
        if (!can_be(tear.write)) {
            return false;
        }
        const Write& write = log.writes()[tear.write];
        const std::uint64_t sectors = write.sectors();
        return tear.sectors > 0 && tear.sectors < sectors && tear.first <= sectors - tear.sectors && !write.atomic;
    };
    const auto is_lost = [&](const Tear& tear) { return std::ranges::binary_search(state.lost, tear.write); };
    if (state.submitted > log.writes().size() || !std::ranges::all_of(state.lost, can_be) ||
        std::ranges::adjacent_find(state.lost, std::ranges::greater_equal{}) != state.lost.end() ||
        !std::ranges::all_of(state.torn, can_tear) || std::ranges::any_of(state.torn, is_lost) ||
        std::ranges::adjacent_find(state.torn, std::ranges::greater_equal{}, &Tear::write) != state.torn.end()) {
        throw InputError("a state of " + std::to_string(state.submitted) + " submissions", {}, 0,
                         "one of this log, of " + std::to_string(log.writes().size()));
    }
}

std::size_t marks_set(const Log& log, const State& state) {
    check_of(log, state);
    std::uint64_t until = log.rest_lost_until(state.submitted);
    for (const std::uint32_t write : state.lost) {
        until = std::min(until, log.writes()[write].durable_at);
    }
    for (const Tear& tear : state.torn) {
        until = std::min(until, log.writes()[tear.write].durable_at);
    }
    const auto after = std::ranges::upper_bound(log.marks(), until, {}, &Mark::order);
    return static_cast<std::size_t>(after - log.marks().begin());
}

std::size_t marks_set_first(const Log& log, const State& state) {
    check_of(log, state);
    const std::vector<std::uint32_t>& order = log.by_submission();
    std::size_t submitted = state.submitted;
    while (submitted > 0 && std::ranges::binary_search(state.lost, order[submitted - 1])) {
        --submitted;
    }
    if (submitted == 0) {
        return 0;
    }
    const auto after =
        std::ranges::lower_bound(log.marks(), log.writes()[order[submitted - 1]].submit, {}, &Mark::order);
    return static_cast<std::size_t>(after - log.marks().begin());
}

State at_last_mark(const Log& log, State state) {
    const std::size_t set = marks_set(log, state);
    const std::vector<std::uint32_t>& order = log.by_submission();
    const std::uint64_t crash = set == 0 ? 0 : log.marks()[set - 1].order;
    const std::size_t before = state.lost.size();
    while (state.submitted < order.size() && log.writes()[order[state.submitted]].submit < crash) {
        state.lost.push_back(order[state.submitted++]);
    }
    if (state.lost.size() != before) {
        std::ranges::sort(state.lost);
    }
    return state;
}

States::States(const Log& log, const Model& model) : source_(std::make_unique<Source>(log, model)) {}
States::~States() = default;

bool States::next(State& state) {
    return source_->next(state);
}

double States::count() const {
    return source_->count();
}

}  // namespace sampleblk::crash
