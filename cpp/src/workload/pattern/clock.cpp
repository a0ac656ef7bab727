// SPDX-License-Identifier: MIT
#include "pattern/clock.hpp"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "sampleblk/workload/tsc.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace sampleblk::workload {
namespace {

// Reads a counter before and after CLOCK_MONOTONIC and keeps the closest pair of a few, for an
// interrupt or a hypervisor may come between.
ClockMark closest(auto ticks) {
    ClockMark best;
    for (int i = 0; i < 8; ++i) {
        const std::uint64_t before = ticks();
        const std::uint64_t ns = Clock::monotonic_ns();
        const std::uint64_t after = ticks();
        const auto [first, last] = std::minmax(before, after);
        if (i == 0 || last - first < best.error_ticks) {
            best = {.ticks = first + (last - first) / 2, .monotonic_ns = ns, .error_ticks = last - first};
        }
    }
    return best;
}

}  // namespace

#if defined(__x86_64__)
namespace {

constexpr std::uint64_t window_ns = 2'000'000;
// Two windows of 2 ms, each end known to some tens of ns: they agree far better than this unless
// the counter stops, jumps or changes its rate.
constexpr double tolerance = 500e-6;
constexpr int most_cpus_checked = 64;

ClockMark read_pair() {
    return closest([] { return __rdtsc(); });
}

ClockMark wait_until(std::uint64_t ns) {
    while (Clock::monotonic_ns() < ns) {
    }
    return read_pair();
}

double rate(const ClockMark& from, const ClockMark& to) {
    return static_cast<double>(to.monotonic_ns - from.monotonic_ns) / static_cast<double>(to.ticks - from.ticks);
}

bool is_invariant() {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
}

// Hops over the CPUs that we may run on and looks for one whose counter is off. Returns the worst
// difference in nanoseconds, or a negative number when nothing could be compared.
double worst_offset_ns(const ClockMark& origin, double ns_per_tick) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return -1;
    }
    double worst = 0;
    int checked = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && checked < most_cpus_checked; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed)) {
            continue;
        }
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (::sched_setaffinity(0, sizeof(one), &one) != 0) {
            continue;
        }
        ++checked;
        const ClockMark here = read_pair();
        const double expected = static_cast<double>(origin.monotonic_ns) +
                                static_cast<double>(static_cast<std::int64_t>(here.ticks - origin.ticks)) * ns_per_tick;
        const double blur = static_cast<double>(here.error_ticks + origin.error_ticks) * ns_per_tick;
        worst = std::max(worst, std::abs(static_cast<double>(here.monotonic_ns) - expected) - blur);
    }
    (void)::sched_setaffinity(0, sizeof(allowed), &allowed);
    return worst;
}

}  // namespace

Clock Clock::measure() {
    Clock clock;
    if (!is_invariant()) {
        clock.why_not_ = "the CPU does not promise an invariant TSC";
        return clock;
    }
    const ClockMark first = read_pair();
    const ClockMark second = wait_until(first.monotonic_ns + window_ns);
    const ClockMark third = wait_until(second.monotonic_ns + window_ns);
    if (second.ticks <= first.ticks || third.ticks <= second.ticks) {
        clock.why_not_ = "the TSC does not advance";
        return clock;
    }
    const double whole = rate(first, third);
    const double disagreement = std::abs(rate(first, second) - rate(second, third)) / whole;
    if (disagreement > tolerance) {
        clock.why_not_ = "the TSC ran at two rates, " + std::to_string(std::llround(disagreement * 1e6)) + " ppm apart";
        return clock;
    }
    // 4 ms at the tolerance are 2 us: an offset below that cannot be told from calibration error.
    const double offset = worst_offset_ns(third, whole);
    if (offset > 2000) {
        clock.why_not_ = "the TSCs of the CPUs differ by " + std::to_string(std::llround(offset)) + " ns";
        return clock;
    }
    clock.tsc_ = true;
    clock.multiplier_ =
        static_cast<std::uint64_t>(std::llround(whole * static_cast<double>(std::uint64_t{1} << shift)));
    clock.why_not_.clear();
    return clock;
}
#else
Clock Clock::measure() {
    Clock clock;
    clock.why_not_ = "not an x86-64 CPU";
    return clock;
}
#endif

const Clock& Clock::best() {
    static const Clock clock = measure();
    return clock;
}

std::uint64_t tsc_khz() {
    const Clock& clock = Clock::best();
    return clock.uses_tsc() ? clock.ticks_for(1'000'000) : 0;
}

ClockMark ClockMark::take(const Clock& clock) noexcept {
    return closest([&] { return clock.ticks(); });
}

double ClockMark::drift_ppm(const Clock& clock, const ClockMark& start) const noexcept {
    const auto real = static_cast<double>(monotonic_ns - start.monotonic_ns);
    const double apart = static_cast<double>(clock.ns(ticks - start.ticks)) - real;
    const auto blur = static_cast<double>(clock.ns(error_ticks + start.error_ticks));
    return real <= 0 || std::abs(apart) <= blur ? 0.0 : (apart - std::copysign(blur, apart)) / real * 1e6;
}

}  // namespace sampleblk::workload
