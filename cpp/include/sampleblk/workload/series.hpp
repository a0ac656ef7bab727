// SPDX-License-Identifier: MIT
// A job's numbers over time, at bounded memory: when all slots are full, pairs of them are joined and
// a slot stands for twice the time. They lie in zeroed shared memory, so they outlive the job.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "sampleblk/histogram.hpp"
#include "sampleblk/workload/options.hpp"

namespace sampleblk::workload {

// Bandwidth, IOPS and latency: what each direction did in one slot of time.
struct SeriesPoint {
    std::uint64_t end_ns = 0;  // of the slot, since the job began
    PerDirection<std::uint64_t> ios{};
    PerDirection<std::uint64_t> bytes{};
    PerDirection<std::uint64_t> latency_sum_ns{};

    void join(const SeriesPoint& later) noexcept {
        end_ns = later.end_ns;
        for (std::size_t d = 0; d < data_directions; ++d) {
            ios[d] += later.ios[d];
            bytes[d] += later.bytes[d];
            latency_sum_ns[d] += later.latency_sum_ns[d];
        }
    }
};

// Completion latencies by time: a column of the heat map.
struct HeatColumn {
    std::uint64_t end_ns = 0;
    PerDirection<std::array<std::uint32_t, HistogramGeometry::bins>> bins{};

    void join(const HeatColumn& later) noexcept {
        end_ns = later.end_ns;
        for (std::size_t d = 0; d < data_directions; ++d) {
            for (std::size_t i = 0; i < HistogramGeometry::bins; ++i) {
                bins[d][i] += later.bins[d][i];
            }
        }
    }
};

template <typename Slot, std::size_t Slots>
struct TimeSeries {
    std::uint64_t interval_ns = 0;
    std::uint32_t used = 0;
    std::array<Slot, Slots> slots{};

    void clear() noexcept {
        std::fill_n(slots.begin(), used, Slot());
        used = 0;
    }

    // The slot to fill next; makes room by joining pairs.
    [[nodiscard]] Slot& next() noexcept {
        if (used == Slots) {
            for (std::size_t i = 0; i < Slots / 2; ++i) {
                slots[2 * i].join(slots[2 * i + 1]);
                if (i != 0) {
                    slots[i] = slots[2 * i];
                }
            }
            used = Slots / 2;
            interval_ns *= 2;
            for (std::size_t i = used; i < Slots; ++i) {
                slots[i] = Slot();
            }
        }
        return slots[used++];
    }
};

using RateSeries = TimeSeries<SeriesPoint, 1024>;
using HeatSeries = TimeSeries<HeatColumn, 64>;

// One I/O of the per-I/O log (io_log_entries).
struct IoLogEntry {
    std::uint64_t issue_ns = 0;  // since the job began
    std::uint64_t latency_ns = 0;
    std::uint64_t offset_bytes = 0;
    std::uint64_t length_bytes = 0;
    std::uint32_t file = 0;
    std::uint16_t depth = 0;
    std::uint8_t direction = 0;
};

}  // namespace sampleblk::workload
