// SPDX-License-Identifier: MIT
// Samples what the CPUs run, with perf_event_open(2), into a perf.data that `perf report` opens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sampleblk::profile {

// A source of samples beside the clock: a trace point, a software or any other event.
struct SampleSource {
    std::string event;               // as perf list names it; a trace point is "system:name"
    std::string filter;              // of a trace point's fields, as the kernel takes it: "nr_sector > 8"; empty: all
    std::uint64_t period = 1;        // a sample each so many times …
    std::uint32_t frequency_hz = 0;  // … or, when > 0, as often as comes to this many a second
    bool stacks = true;
    bool everywhere = false;  // on all CPUs, whatever the processes of the profile
};

struct SamplerOptions {
    std::uint32_t frequency_hz = 997;  // 0: no CPU samples, only `sources`
    // What is sampled at that frequency, of perf-list(1)'s hardware and software events. Empty: cycles where the
    // machine has them, else cpu-clock.
    std::string event;
    std::vector<std::int32_t> pids;  // these processes; empty: all CPUs
    bool children = true;            // and their descendants, those of now and those to come
    bool kernel = true;              // sample kernel code
    bool user = true;
    bool callchains = true;
    std::uint32_t user_stack_bytes = 0;  // > 0: copy registers and this much of the stack, for unwinding later
    std::vector<SampleSource> sources;
    std::uint32_t buffer_pages = 128;                     // of each CPU's ring buffer; a power of two
    std::uint64_t limit_bytes = std::uint64_t{1} << 30U;  // of the file; what comes later is dropped and counted
    std::string tracefs;                                  // where tracefs is mounted, for trace points
};

struct SamplerStats {
    std::string event;        // what was sampled
    std::string fallback;     // why it is not what was asked for first; empty when it is
    std::uint64_t bytes = 0;  // written
    std::uint64_t samples = 0;
    std::uint64_t lost = 0;  // records that found their ring buffer full
    std::uint64_t throttled = 0;
    std::uint64_t dropped_bytes = 0;  // past limit_bytes
};

class Sampler {
  public:
    // Opens the events and writes what there is already (threads and their mappings) to `path`. Throws SystemError,
    // UnsupportedError, InputError.
    Sampler(const SamplerOptions& options, const std::string& path);
    // Stops, if stop() was not called; errors of writing are lost then.
    ~Sampler();
    Sampler(const Sampler&) = delete;
    Sampler& operator=(const Sampler&) = delete;
    Sampler(Sampler&&) = delete;
    Sampler& operator=(Sampler&&) = delete;

    // Sampling begins, and a thread begins to empty the ring buffers.
    void start();
    // Ends both and completes the file. Throws what the thread met. Does nothing the second time.
    SamplerStats stop();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace sampleblk::profile
