// SPDX-License-Identifier: MIT
// What a job's process and its parent share: one zeroed shared mapping per run, with a JobShared per job. The job
// writes; the parent reads the atomics while it runs, and all the rest after it has ended.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sampleblk/workload/measured.hpp"
#include "sampleblk/workload/series.hpp"

namespace sampleblk::workload {

enum class Phase : std::uint8_t {
    created,  // forked, setting itself up
    ready,    // waits for the start signal
    ramp,     // ramp_time
    running,
    verifying,
    finished,  // wrote its last number
};

// A text of bounded length that lies in shared memory.
template <std::size_t Size>
struct SharedText {
    std::array<char, Size> text{};

    void set(std::string_view from) noexcept {
        const std::size_t length = from.size() < Size - 1 ? from.size() : Size - 1;
        from.copy(text.data(), length);
        text[length] = '\0';
    }
    [[nodiscard]] std::string_view view() const noexcept { return text.data(); }
};

struct JobState {
    std::atomic<std::uint32_t> phase{0};  // a Phase
    std::atomic<std::uint32_t> go{0};     // futex: 1 starts the job
    std::atomic<std::uint32_t> stop{0};   // futex: 1 ends it
    std::int32_t pid = 0;
    std::int32_t thread_id = 0;

    // Progress, for the parent to read at any time; verify and ramp included.
    std::atomic<std::uint64_t> done_bytes{0};
    std::atomic<std::uint64_t> done_ios{0};
    std::atomic<std::uint64_t> started_ns{0};  // CLOCK_MONOTONIC when the job phase began

    // For who asks before the job has summed up, in CLOCK_MONOTONIC; 0: not, or not at it.
    std::atomic<std::uint64_t> measured_since_ns{0};  // what completes counts
    std::atomic<std::uint64_t> pass_since_ns{0};
    std::atomic<std::uint64_t> verify_since_ns{0};
    std::atomic<std::uint64_t> died_ns{0};  // its process was found dead

    // What went wrong: the first error, with its errno. Bytes that are not UTF-8 are as they were.
    std::int32_t error = 0;
    SharedText<64> error_operation;
    SharedText<4096> error_path;
    SharedText<512> error_detail;

    Measured measured;
    MismatchList mismatches;
    std::atomic<std::uint64_t> io_log_used{0};
};

// All of a job's part of the shared memory. What a job does not use is never touched, and so takes no memory.
struct JobShared {
    JobState state;
    RateSeries rates;
    HeatSeries heat;
};

}  // namespace sampleblk::workload
