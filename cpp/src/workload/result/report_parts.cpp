// SPDX-License-Identifier: MIT
#include "result/report_parts.hpp"

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>

namespace sampleblk::workload {

std::uint64_t runtime_ms(std::uint64_t ns) noexcept {
    return (ns + 999'999) / 1'000'000;
}

LatencyClasses latency_classes(const JobResult& job) {
    LatencyClasses classes;
    for (const DirectionStats& stats : job.measured.data) {
        std::uint64_t below = 0;
        const auto take = [&](std::uint64_t bound) {
            const std::uint64_t now = std::max(stats.clat.count_below(bound), below);
            const std::uint64_t in = now - below;
            below = now;
            return in;
        };
        for (std::size_t i = 0; i < class_bounds.size(); ++i) {
            classes.ns[i] += take(class_bounds[i]);
        }
        for (std::size_t i = 0; i < class_bounds.size(); ++i) {
            classes.us[i] += take(class_bounds[i] * 1'000);
        }
        for (std::size_t i = 0; i < class_bounds.size(); ++i) {
            classes.ms[i] += take(class_bounds[i] * 1'000'000);
        }
        classes.ms[10] += take(2'000'000'000);
        classes.ms[11] += stats.clat.count - below;
    }
    return classes;
}

DirectionStats mixed_directions(const JobResult& job) {
    DirectionStats mixed;
    for (const DirectionStats& stats : job.measured.data) {
        mixed.merge(stats);
    }
    return mixed;
}

std::vector<GroupTotals> group_totals(const std::vector<std::shared_ptr<const JobResult>>& jobs) {
    std::vector<GroupTotals> groups;
    for (const auto& one : jobs) {
        const JobResult& job = *one;
        const std::uint32_t id = job.options.group_id;
        while (groups.size() <= id) {
            groups.emplace_back();
            groups.back().group_id = static_cast<std::uint32_t>(groups.size() - 1);
        }
        GroupTotals& group = groups[id];
        group.kb_base = job.options.kb_base;
        group.unit_base = job.options.unit_base;
        group.figures = job.options.significant_figures;
        group.unified = job.options.unified_rw_reporting;
        for (std::size_t d = 0; d < data_directions; ++d) {
            // With `mixed`, everything counts as the first direction.
            const DirectionStats stats = group.unified != Unified::mixed ? job.measured.data[d]
                                         : d == 0                        ? mixed_directions(job)
                                                                         : DirectionStats();
            const std::uint64_t run = stats.bytes == 0 ? 0 : runtime_ms(stats.runtime_ns);
            if (run == 0) {
                continue;
            }
            const std::uint64_t bw = stats.bytes * 1000 / run;
            const bool first = group.max_run_ms[d] == 0;
            group.min_run_ms[d] = first ? run : std::min(group.min_run_ms[d], run);
            group.max_run_ms[d] = std::max(group.max_run_ms[d], run);
            group.min_bw[d] = first ? bw : std::min(group.min_bw[d], bw);
            group.max_bw[d] = std::max(group.max_bw[d], bw);
            group.bytes[d] += stats.bytes;
        }
    }
    for (GroupTotals& group : groups) {
        for (std::size_t d = 0; d < data_directions; ++d) {
            group.total_bw[d] = group.max_run_ms[d] == 0 ? 0 : group.bytes[d] * 1000 / group.max_run_ms[d];
        }
    }
    return groups;
}

double share_of_group(const GroupTotals& group, std::size_t direction, double mean_kib) {
    if (group.total_bw[direction] <= 1024) {
        return 100.0;
    }
    return std::min(100.0, mean_kib * 100.0 / (static_cast<double>(group.total_bw[direction]) / 1024.0));
}

std::string short_number(std::uint64_t value, unsigned figures, bool iec, std::string_view unit) {
    constexpr std::array<const char*, 7> si = {"", "k", "M", "G", "T", "P", "E"};
    constexpr std::array<const char*, 7> binary = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    const std::uint64_t thousand = iec ? 1024 : 1000;
    std::size_t prefix = 0;
    std::uint64_t rest = 0;
    std::size_t digits = std::to_string(value).size();
    for (; digits > figures && prefix + 1 < si.size(); digits = std::to_string(value).size()) {
        rest = value % thousand;
        value /= thousand;
        ++prefix;
    }
    const char* letters = (iec ? binary : si)[prefix];
    if (prefix == 0 || digits + 1 >= figures) {
        value += prefix != 0 && rest >= thousand / 2 ? 1 : 0;
        return fmt::format("{}{}{}", value, letters, unit);
    }
    const std::string fraction =
        fmt::format("{:.{}f}", static_cast<double>(rest) / static_cast<double>(thousand), figures - digits - 1);
    // Rounding may have carried into the whole part.
    value += fraction.front() == '1' ? 1 : 0;
    return fmt::format("{}{}{}{}", value, fraction.substr(1), letters, unit);
}

std::string hex(const std::array<std::uint8_t, 16>& bytes, std::uint32_t count) {
    return fmt::format("{:02x}",
                       fmt::join(bytes.begin(), bytes.begin() + std::min<std::size_t>(count, bytes.size()), ""));
}

std::string local_time(std::int64_t seconds) {
    const auto when = static_cast<std::time_t>(seconds);
    std::tm parts{};
    (void)::localtime_r(&when, &parts);
    return fmt::format("{:%a %b %e %H:%M:%S %Y}", parts);
}

}  // namespace sampleblk::workload
