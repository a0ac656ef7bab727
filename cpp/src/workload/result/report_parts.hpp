// SPDX-License-Identifier: MIT
// Numbers that the text and the JSON report share.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sampleblk/workload/job_result.hpp"

namespace sampleblk::workload {

inline constexpr std::array<const char*, 4> direction_names = {"read", "write", "trim", "sync"};

// fio counts run times in whole milliseconds, and a run that took less in one.
[[nodiscard]] std::uint64_t runtime_ms(std::uint64_t ns) noexcept;

// Parts of a whole in percent; what is not zero but below `least` is shown as `least`, as fio does.
template <std::size_t N>
[[nodiscard]] std::array<double, N> shares(const std::array<std::uint64_t, N>& counts, std::uint64_t total,
                                           double least) {
    std::array<double, N> out{};
    for (std::size_t i = 0; i < N && total != 0; ++i) {
        out[i] = 100.0 * static_cast<double>(counts[i]) / static_cast<double>(total);
        if (out[i] < least && counts[i] != 0) {
            out[i] = least;
        }
    }
    return out;
}

// fio's bounds of latency classes, upper ends, within each unit; the last of the ms are open.
inline constexpr std::array<std::uint64_t, 10> class_bounds = {2, 4, 10, 20, 50, 100, 250, 500, 750, 1000};
struct LatencyClasses {
    std::array<std::uint64_t, 10> ns{};
    std::array<std::uint64_t, 10> us{};
    std::array<std::uint64_t, 12> ms{};
};
[[nodiscard]] LatencyClasses latency_classes(const JobResult& job);

// All directions of a job as one, which unified_rw_reporting shows in the place of read.
[[nodiscard]] DirectionStats mixed_directions(const JobResult& job);

struct GroupTotals {
    std::uint32_t group_id = 0;
    std::array<std::uint64_t, data_directions> bytes{};
    std::array<std::uint64_t, data_directions> min_run_ms{};
    std::array<std::uint64_t, data_directions> max_run_ms{};
    std::array<std::uint64_t, data_directions> min_bw{};
    std::array<std::uint64_t, data_directions> max_bw{};
    std::array<std::uint64_t, data_directions> total_bw{};
    KbBase kb_base = KbBase::binary;
    std::uint32_t unit_base = 8;
    std::uint32_t figures = 4;
    Unified unified = Unified::none;
};
[[nodiscard]] std::vector<GroupTotals> group_totals(const std::vector<std::shared_ptr<const JobResult>>& jobs);

// The share of its group's bandwidth that a job's samples show, in percent.
[[nodiscard]] double share_of_group(const GroupTotals& group, std::size_t direction, double mean_kib);

// fio's short numbers: at most `figures` digits, "42.7", "8982", "12.3k".
[[nodiscard]] std::string short_number(std::uint64_t value, unsigned figures, bool iec, std::string_view unit);

[[nodiscard]] std::string hex(const std::array<std::uint8_t, 16>& bytes, std::uint32_t count);

// As ctime(3) writes it, whatever the locale.
[[nodiscard]] std::string local_time(std::int64_t seconds);

}  // namespace sampleblk::workload
