// SPDX-License-Identifier: MIT
// Latency histograms of fixed size and bounded relative error, in the geometry that fio uses
// (29 groups of 64 bins), so that its tools read ours and ours read its.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace sampleblk {

// Values below 128 have a bin each. From there on every power of two is cut into 64 equal bins, so
// the middle of a bin is off by less than 1/128 of the value. The last bin takes all that is longer
// than 2^34 ns (17 s) and more.
struct HistogramGeometry {
    static constexpr unsigned group_bits = 6;
    static constexpr std::size_t bins_per_group = std::size_t{1} << group_bits;
    static constexpr std::size_t groups = 29;
    static constexpr std::size_t bins = groups * bins_per_group;

    [[nodiscard]] static constexpr std::size_t index_of(std::uint64_t value) noexcept {
        // The or keeps the width of small values at one bit more than a group's, so that they need no
        // branch: shifted by nothing, a value below 128 is its own index.
        const auto width = static_cast<unsigned>(std::bit_width(value | (bins_per_group * 2 - 1)));
        const unsigned shift = width - group_bits - 1;
        const std::size_t index = (std::size_t{shift} << group_bits) + static_cast<std::size_t>(value >> shift);
        return index < bins ? index : bins - 1;
    }

    // The smallest value of a bin.
    [[nodiscard]] static constexpr std::uint64_t lower_bound(std::size_t index) noexcept {
        if (index < bins_per_group * 2) {
            return index;
        }
        const std::size_t shift = (index >> group_bits) - 1;
        return (bins_per_group + (index & (bins_per_group - 1))) << shift;
    }

    // How many values a bin stands for.
    [[nodiscard]] static constexpr std::uint64_t width(std::size_t index) noexcept {
        return index < bins_per_group * 2 ? 1 : std::uint64_t{1} << ((index >> group_bits) - 1);
    }

    // The value that a bin stands for: its middle.
    [[nodiscard]] static constexpr std::uint64_t value_of(std::size_t index) noexcept {
        return lower_bound(index) + width(index) / 2;
    }
};

// Count, extremes, mean, deviation and histogram of one kind of latency. A plain aggregate of
// numbers that are all zero at the start, so it can live in zeroed shared memory.
struct LatencyStats {
    std::uint64_t count = 0;
    std::uint64_t sum_ns = 0;
    // One more than the smallest value, so that zeroed memory means "none yet".
    std::uint64_t min_plus_one_ns = 0;
    std::uint64_t max_ns = 0;
    double sum_of_squares = 0;
    std::array<std::uint64_t, HistogramGeometry::bins> bins{};

    void add(std::uint64_t ns) noexcept {
        ++count;
        sum_ns += ns;
        // Wraps for "none yet" (0 - 1), which every value is below.
        if (ns < min_plus_one_ns - 1) {
            min_plus_one_ns = ns + 1;
        }
        max_ns = std::max(max_ns, ns);
        const auto value = static_cast<double>(static_cast<std::int64_t>(ns));
        sum_of_squares += value * value;
        ++bins[HistogramGeometry::index_of(ns)];
    }

    void merge(const LatencyStats& other) noexcept {
        if (other.count == 0) {
            return;
        }
        min_plus_one_ns = std::min(min_plus_one_ns - 1, other.min_plus_one_ns - 1) + 1;
        max_ns = std::max(max_ns, other.max_ns);
        count += other.count;
        sum_ns += other.sum_ns;
        sum_of_squares += other.sum_of_squares;
        for (std::size_t i = 0; i < bins.size(); ++i) {
            bins[i] += other.bins[i];
        }
    }

    [[nodiscard]] std::uint64_t min_ns() const noexcept { return count == 0 ? 0 : min_plus_one_ns - 1; }

    [[nodiscard]] double mean_ns() const noexcept {
        return count == 0 ? 0.0 : static_cast<double>(sum_ns) / static_cast<double>(count);
    }

    // The deviation of a sample, with n - 1.
    [[nodiscard]] double stddev_ns() const noexcept {
        if (count < 2) {
            return 0.0;
        }
        const auto n = static_cast<double>(count);
        const auto total = static_cast<double>(sum_ns);
        return std::sqrt(std::max(0.0, (sum_of_squares - total * total / n) / (n - 1.0)));
    }

    // The middle of the first bin at which `percent` (0 to 100) of all values are reached.
    [[nodiscard]] std::uint64_t percentile_ns(double percent) const noexcept {
        const double wanted = percent / 100.0 * static_cast<double>(count);
        std::uint64_t seen = 0;
        for (std::size_t i = 0; i < bins.size(); ++i) {
            seen += bins[i];
            if (seen != 0 && static_cast<double>(seen) >= wanted) {
                return HistogramGeometry::value_of(i);
            }
        }
        return 0;
    }

    // How many values lie below `ns`, a bin that it cuts counted by the part below.
    [[nodiscard]] std::uint64_t count_below(std::uint64_t ns) const noexcept {
        std::uint64_t below = 0;
        for (std::size_t i = 0; i < bins.size(); ++i) {
            const std::uint64_t start = HistogramGeometry::lower_bound(i);
            if (start >= ns) {
                break;
            }
            const std::uint64_t width = HistogramGeometry::width(i);
            below += start + width <= ns
                         ? bins[i]
                         : static_cast<std::uint64_t>(static_cast<double>(bins[i]) * static_cast<double>(ns - start) /
                                                      static_cast<double>(width));
        }
        return below;
    }
};

}  // namespace sampleblk
