// SPDX-License-Identifier: MIT
// Every event of a recording in time order across its CPUs, in bounded memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "sampleblk/trace/file.hpp"

namespace sampleblk::trace {

// Which part of a recording to look at.
// The times of a CPU's pages ascend, as the kernel writes them: pages before `from` are passed over by bisection, and
// what comes after the first event at `to` is not looked at. Where a clock went back, only a walk through all is
// complete.
struct Selection {
    std::optional<std::string> buffer;                             // see TraceFile::select()
    std::vector<std::uint32_t> cpus;                               // empty: all
    std::uint64_t from = 0;                                        // ns, of the first moment inside
    std::uint64_t to = std::numeric_limits<std::uint64_t>::max();  // ns, of the first moment outside
    const std::atomic<bool>* cancelled = nullptr;                  // ends the walk early when it turns true
};

// What a walk met.
struct WalkStats {
    std::uint64_t events = 0;
    std::uint64_t missed = 0;        // events that the pages say were lost, as far as counted
    std::uint64_t missed_spots = 0;  // places where some were lost, counted or not
    Damage damage;
};

// Where an event was recorded.
struct Place {
    std::uint16_t cpu = 0;
    std::uint16_t buffer = 0;  // of those that the selection means
};

// One event on its way through a walk.
struct Event {
    std::uint64_t time = 0;  // see TraceFile::time_unit()
    const std::byte* data = nullptr;
    std::uint32_t size = 0;  // bytes
    Place place;
};

// What is done with the events of a walk.
class EventSink {
  public:
    EventSink() = default;
    EventSink(const EventSink&) = delete;
    EventSink& operator=(const EventSink&) = delete;
    EventSink(EventSink&&) = delete;
    EventSink& operator=(EventSink&&) = delete;
    virtual ~EventSink() = default;

    virtual void record(const Event& event) = 0;
    // Events were lost before a page; `count` is 0 where the kernel did not store how many.
    virtual void missed(Place place, std::uint64_t time, std::uint64_t count) = 0;
    // What `data` of the events so far points at goes away; also called at the end.
    virtual void flush() = 0;
};

// Shows `sink` each event of the selection in time order. Throws FormatError for damage where the file was opened with
// OnError::strict, InterruptedError when a signal handler of the caller asks for it.
WalkStats walk(const TraceFile& file, const Selection& selection, EventSink& sink);

}  // namespace sampleblk::trace
