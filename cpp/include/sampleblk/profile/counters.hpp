// SPDX-License-Identifier: MIT
// Events counted, not sampled: what perf stat shows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sampleblk::profile {

struct CounterOptions {
    std::vector<std::string> events;  // names as perf list gives them, trace points too
    std::vector<std::int32_t> pids;   // these processes; empty: all CPUs
    bool children = true;             // and their descendants, those of now and those to come
    // Instead of the two above: what the calling thread starts from now on, each from its execve(2).
    bool commands = false;
    std::string tracefs;  // where tracefs is mounted, for trace points
};

struct CounterValue {
    std::string event;      // as it was asked for; ":u" was added where only user code may be counted
    bool supported = true;  // by this machine
    std::uint64_t raw = 0;
    std::uint64_t enabled_ns = 0;  // how long it was to count, summed over CPUs or threads
    std::uint64_t running_ns = 0;  // how long it had a hardware counter
    bool clock = false;            // in ns

    [[nodiscard]] bool counted() const noexcept { return supported && running_ns != 0; }
    // For all of the time, where it had to share its hardware counter with others.
    [[nodiscard]] std::uint64_t scaled() const noexcept;
};

class CounterSet {
  public:
    // Opens the counters, at rest. Throws SystemError, InputError; what the machine does not count is no error.
    explicit CounterSet(const CounterOptions& options);
    ~CounterSet();
    CounterSet(const CounterSet&) = delete;
    CounterSet& operator=(const CounterSet&) = delete;
    CounterSet(CounterSet&&) = delete;
    CounterSet& operator=(CounterSet&&) = delete;

    // Those of commands begin by themselves.
    void start();
    // Ends the counting, of what was started and goes on, too.
    void stop();
    // One value an event, in the order of the options; while it is counted, those of now.
    [[nodiscard]] std::vector<CounterValue> read() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace sampleblk::profile
