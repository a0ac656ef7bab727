// SPDX-License-Identifier: MIT
#include "report_parts.hpp"

#include <algorithm>
#include <ctime>

namespace sampleblk::workload {

std::uint64_t runtime_ms(std::uint64_t ns) noexcept {
    return (ns + 999'999) / 1'000'000;
}

LatencyClasses latency_classes(const JobResult& job) {
    LatencyClasses classes;
    for (const DirectionStats& stats : job.data) {
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
    for (const DirectionStats& stats : job.data) {
        mixed.ios += stats.ios;
        mixed.bytes += stats.bytes;
        mixed.runtime_ns = std::max(mixed.runtime_ns, stats.runtime_ns);
        mixed.short_ios += stats.short_ios;
        mixed.slat.merge(stats.slat);
        mixed.clat.merge(stats.clat);
        mixed.lat.merge(stats.lat);
        mixed.response.merge(stats.response);
        if (mixed.bw_kib.count == 0) {
            mixed.bw_kib = stats.bw_kib;
            mixed.iops = stats.iops;
        } else if (stats.bw_kib.count != 0) {
            mixed.bw_kib.min += stats.bw_kib.min;
            mixed.bw_kib.max += stats.bw_kib.max;
            mixed.bw_kib.mean += stats.bw_kib.mean;
            mixed.iops.min += stats.iops.min;
            mixed.iops.max += stats.iops.max;
            mixed.iops.mean += stats.iops.mean;
        }
    }
    return mixed;
}

std::vector<GroupTotals> group_totals(const std::vector<JobResult>& jobs) {
    std::vector<GroupTotals> groups;
    for (const JobResult& job : jobs) {
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
            const DirectionStats stats = group.unified != Unified::mixed ? job.data[d]
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

std::string local_time(std::int64_t seconds) {
    const auto when = static_cast<std::time_t>(seconds);
    std::tm parts{};
    (void)::localtime_r(&when, &parts);
    std::array<char, 64> text{};
    const std::size_t length = std::strftime(text.data(), text.size(), "%a %b %e %H:%M:%S %Y", &parts);
    return {text.data(), length};
}

}  // namespace sampleblk::workload
