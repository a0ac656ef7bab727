// SPDX-License-Identifier: MIT
// The states that a crash may leave, one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sampleblk/crash/log.hpp"

namespace sampleblk::crash {

// A write of which only a run of sectors reached the disk.
struct Tear {
    std::uint32_t write = 0;  // an index into Log::writes()
    std::uint64_t first = 0;  // of its sectors, counted from its own begin
    std::uint64_t sectors = 0;

    friend bool operator==(const Tear&, const Tear&) = default;
};

// A crash after so many submissions: of what was submitted and is not durable, `lost` is missing and `torn` is partly
// there.
struct State {
    std::size_t submitted = 0;
    std::vector<std::uint32_t> lost;  // indices into Log::writes(), ascending
    std::vector<Tear> torn;           // ascending by write

    friend bool operator==(const State&, const State&) = default;
};

// Throws InputError for a state that is not of the log: it loses what is not submitted by then, or durable; or it tears
// an atomic write, or leaves nothing, all or more of a torn one; or it names a write twice.
void check_of(const Log& log, const State& state);

// How many of the log's marks are set at the last moment at which a crash may leave a state's contents. Writes that
// were submitted later than the state's last may be lost, too, until one of them is durable. Throws as check_of().
[[nodiscard]] std::size_t marks_set(const Log& log, const State& state);

// How many are set at the first such moment: just after the submission of the last write that is not lost. Between the
// two a crash may come at any time, and whatever was promised then holds. Throws as check_of().
[[nodiscard]] std::size_t marks_set_first(const Log& log, const State& state);

// The state with the same contents by a crash just after the last mark that marks_set() counts: what was submitted
// since then is lost as well. Throws as check_of().
[[nodiscard]] State at_last_mark(const Log& log, State state);

// Which states to go through. Each model has the empty state first, and no state twice by what it loses and tears.
struct Model {
    enum class Kind : std::uint8_t {
        prefix,   // after each submission, all that was submitted
        reorder,  // and with some of what is not durable lost
        torn,     // after each submission, one write that is not durable torn
        sample    // drawn: what is lost and torn, after any submission; endless
    };

    Kind kind = Kind::reorder;
    // reorder: all subsets where at most this many writes are open beside the last one.
    std::uint32_t complete_up_to = 8;
    // reorder: where there are more, at most this many lost, or at most this many kept.
    std::uint32_t at_most = 2;
    // torn: places to tear a write at, evenly spread where it has more.
    std::uint32_t tears = 16;
    // torn, sample: a write ends between two units of this many sectors, which begin at its multiples. 0: the log's
    // logical block, and 1 where it does not know that.
    std::uint32_t unit_sectors = 0;
    std::uint64_t seed = 1;
};

// Enumerates; deterministic. Not for several threads at once.
class States {
  public:
    // `log` must stay. Throws InputError for a model that has no sense.
    States(const Log& log, const Model& model);
    ~States();
    States(const States&) = delete;
    States& operator=(const States&) = delete;

    // The next state; false at the end. `sample` has no end.
    bool next(State& state);

    // How many there are: of `sample`, those that it could draw without tearing. Infinite above 1.8e308.
    [[nodiscard]] double count() const;

  private:
    class Source;
    std::unique_ptr<Source> source_;
};

}  // namespace sampleblk::crash
