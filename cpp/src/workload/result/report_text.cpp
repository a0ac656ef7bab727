// SPDX-License-Identifier: MIT
// fio's "normal" output, line for line, so that eyes and scripts trained on it find their way.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "result/report_parts.hpp"
#include "sampleblk/text.hpp"
#include "sampleblk/workload/report.hpp"

namespace sampleblk::workload {

namespace {

template <typename... Values>
void put(std::string& out, fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(out), format, std::forward<Values>(values)...);
}

// How a job wants its quantities written.
struct Style {
    unsigned figures;
    bool binary;
    unsigned unit_base;

    [[nodiscard]] std::string bytes(std::uint64_t value, bool iec) const {
        return short_number(value, figures, iec, "B");
    }
    [[nodiscard]] std::string rate(std::uint64_t value, bool iec) const {
        return unit_base == 1 ? short_number(value * 8, figures, iec, "bit/s")
                              : short_number(value, figures, iec, "B/s");
    }
};

Style style_of(const JobOptions& options) {
    return {.figures = options.significant_figures,
            .binary = options.kb_base == KbBase::binary,
            .unit_base = options.unit_base};
}

void put_latency(std::string& out, const char* name, const LatencyStats& stats) {
    auto min = stats.min_ns();
    auto max = stats.max_ns;
    double mean = stats.mean_ns();
    double deviation = stats.stddev_ns();
    const char* unit = "nsec";
    const auto scale = [&](std::uint64_t by, const char* name_of_unit) {
        min /= by;
        max /= by;
        mean /= static_cast<double>(by);
        deviation /= static_cast<double>(by);
        unit = name_of_unit;
    };
    // fio's rule: a coarser unit once the smallest is above 2000 of the finer and the spread is wide.
    if (min > 2'000'000 && max > 99'999'999 && deviation > 1'000'000.0) {
        scale(1'000'000, "msec");
    } else if (min > 2'000 && max > 99'999 && deviation > 1'000.0) {
        scale(1'000, "usec");
    }
    put(out, "    {} ({}): min={}, max={}, avg={:5.2f}, stdev={:5.2f}\n", name, unit, short_number(min, 6, false, ""),
        short_number(max, 6, false, ""), mean, deviation);
}

// fio prints rates without their fractions.
std::uint64_t whole(double value) {
    return static_cast<std::uint64_t>(value);
}

void put_percentiles(std::string& out, const char* name, const LatencyStats& stats, const std::vector<double>& list) {
    if (stats.count == 0 || list.empty()) {
        return;
    }
    std::vector<std::uint64_t> values;
    for (const double percent : list) {
        values.push_back(stats.percentile_ns(percent));
    }
    const std::uint64_t least = *std::ranges::min_element(values);
    const std::uint64_t most = *std::ranges::max_element(values);
    const bool ms = least > 2'000'000 && most > 99'999'999;
    const bool us = !ms && least > 2'000 && most > 99'999;
    const std::uint64_t divisor = ms ? 1'000'000 : us ? 1'000 : 1;
    put(out, "    {} percentiles ({}):\n     |", name, ms ? "msec" : us ? "usec" : "nsec");
    const int width =
        std::max(5, static_cast<int>(std::log10(static_cast<double>(std::max<std::uint64_t>(most / divisor, 1))) + 1));
    const int per_line = (80 - 7) / (12 + width);
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (i != 0 && i % static_cast<std::size_t>(per_line) == 0) {
            out += "     |";
        }
        std::uint64_t value = values[i];
        for (std::uint64_t step = divisor; step > 1; step /= 1000) {
            value = (value + 999) / 1000;
        }
        put(out, " {:5.2f}th=[{:{}}]{}", list[i], value, width, i + 1 == values.size() ? '\n' : ',');
        if (i + 1 != values.size() &&
            i % static_cast<std::size_t>(per_line) == static_cast<std::size_t>(per_line) - 1) {
            out += "\n";
        }
    }
}

void put_rate_samples(std::string& out, const JobOptions& options, const GroupTotals& group, std::size_t d,
                      const DirectionStats& stats) {
    if (stats.bw_kib.count != 0) {
        const double base = options.kb_base == KbBase::binary ? 1024.0 : 1000.0;
        const bool bits = options.unit_base == 1;
        const bool binary = options.kb_base == KbBase::binary;
        const char* unit = bits ? (binary ? "Kibit" : "kbit") : (binary ? "KiB" : "kB");
        double min = stats.bw_kib.min;
        double max = stats.bw_kib.max;
        double mean = stats.bw_kib.mean;
        double deviation = stats.bw_kib.stddev();
        const double share = share_of_group(group, d, mean);
        double factor = bits ? 8.0 : 1.0;
        if (mean * factor > base * base) {
            factor /= base;
            unit = bits ? "Mibit" : "MiB";
        }
        min *= factor;
        max *= factor;
        mean *= factor;
        deviation *= factor;
        put(out, "   bw ({:>5}/s): min={:5}, max={:5}, per={:3.2f}%, avg={:5.2f}, stdev={:5.2f}, samples={}\n", unit,
            whole(min), whole(max), share, mean, deviation, stats.bw_kib.count);
    }
    if (stats.iops.count != 0) {
        put(out, "   iops        : min={:5}, max={:5}, avg={:5.2f}, stdev={:5.2f}, samples={}\n", whole(stats.iops.min),
            whole(stats.iops.max), stats.iops.mean, stats.iops.stddev(), stats.iops.count);
    }
}

void put_direction(std::string& out, const JobResult& job, const GroupTotals& group, std::size_t d,
                   const DirectionStats& stats, const char* name) {
    const std::uint64_t run = runtime_ms(stats.runtime_ns);
    if (stats.bytes == 0 || run == 0) {
        return;
    }
    const JobOptions& options = job.options;
    const Style style = style_of(options);
    const std::uint64_t bw = stats.bytes * 1000 / run;
    put(out, "  {}: IOPS={}, BW={} ({})({}/{}msec){}\n", name,
        short_number(stats.ios * 1000 / run, style.figures, false, ""), style.rate(bw, style.binary),
        style.rate(bw, !style.binary), style.bytes(stats.bytes, style.binary), run,
        std::strcmp(name, "write") == 0 ? "; 0 zone resets" : "");
    if (stats.slat.count != 0) {
        put_latency(out, "slat", stats.slat);
    }
    if (stats.clat.count != 0) {
        put_latency(out, "clat", stats.clat);
    }
    if (stats.lat.count != 0) {
        put_latency(out, " lat", stats.lat);
    }
    if (stats.response.count != 0) {
        put_latency(out, "response", stats.response);
    }
    if (options.slat_percentiles) {
        put_percentiles(out, "slat", stats.slat, options.percentile_list);
    }
    if (options.clat_percentiles) {
        put_percentiles(out, "clat", stats.clat, options.percentile_list);
    }
    if (options.lat_percentiles) {
        put_percentiles(out, "lat", stats.lat, options.percentile_list);
    }
    if (stats.response.count != 0) {
        put_percentiles(out, "response", stats.response, options.percentile_list);
    }
    put_rate_samples(out, options, group, d, stats);
}

template <std::size_t N>
void put_classes(std::string& out, const char* unit, const std::array<std::uint64_t, N>& counts, std::uint64_t total) {
    const std::array<double, N> parts = shares(counts, total, 0.01);
    int in_line = 0;
    bool any = false;
    for (std::size_t i = 0; i < N; ++i) {
        if (parts[i] <= 0) {
            continue;
        }
        if (in_line == 0) {
            put(out, "{}  lat ({})   : ", any ? "\n" : "", unit);
        } else {
            out += ", ";
        }
        any = true;
        if (i < class_bounds.size()) {
            put(out, "{}={:3.2f}%", class_bounds[i], parts[i]);
        } else {
            put(out, "{}{:3.2f}%", i == class_bounds.size() ? "2000=" : ">=2000=", parts[i]);
        }
        in_line = (in_line + 1) % 5;
    }
    if (any) {
        out += "\n";
    }
}

void put_depths(std::string& out, const JobResult& job) {
    const auto depths = shares(job.measured.depth_map, job.measured.total_ios(), 0.1);
    put(out,
        "  IO depths    : 1={:3.1f}%, 2={:3.1f}%, 4={:3.1f}%, 8={:3.1f}%, 16={:3.1f}%, 32={:3.1f}%, >=64={:3.1f}%\n",
        depths[0], depths[1], depths[2], depths[3], depths[4], depths[5], depths[6]);
    const auto batches = [&](const char* name, const std::array<double, depth_levels>& parts) {
        put(out, "     {}: 0={:3.1f}%, 4={:3.1f}%, 8={:3.1f}%, 16={:3.1f}%, 32={:3.1f}%, 64={:3.1f}%, >=64={:3.1f}%\n",
            name, parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6]);
    };
    batches("submit    ", shares(job.measured.submit_map, job.measured.submits, 0.1));
    batches("complete  ", shares(job.measured.complete_map, job.measured.completes, 0.1));
    put(out, "     issued rwts: total={},{},{},{} short={},{},{},0 dropped=0,0,0,0\n", job.measured.data[0].ios,
        job.measured.data[1].ios, job.measured.data[2].ios, job.measured.sync_ios, job.measured.data[0].short_ios,
        job.measured.data[1].short_ios, job.measured.data[2].short_ios);
    if (job.options.continue_on_error != 0) {
        put(out, "     errors    : total={}, first_error={}/<{}>\n", job.measured.error_count, job.measured.first_error,
            std::strerror(static_cast<int>(job.measured.first_error)));
    }
    put(out, "     latency   : target={}, window={}, percentile={:.2f}%, depth={}\n", job.options.latency_target_ns,
        job.options.latency_window_ns / 1000, job.options.latency_percentile,
        job.measured.latency_depth != 0 ? job.measured.latency_depth : job.options.iodepth);
}

void put_steadystate(std::string& out, const JobResult& job) {
    const JobOptions& options = job.options;
    if (options.steadystate == SteadyMetric::none) {
        return;
    }
    const Style style = style_of(options);
    const bool iops = options.steadystate == SteadyMetric::iops || options.steadystate == SteadyMetric::iops_slope;
    const bool slope = options.steadystate == SteadyMetric::iops_slope || options.steadystate == SteadyMetric::bw_slope;
    const auto bw = static_cast<std::uint64_t>(job.measured.steadystate_bw_mean);
    put(out, "  steadystate  : attained={}, bw={} ({}), iops={}, {}{}={:.3f}{}\n", job.measured.steady ? "yes" : "no",
        style.rate(bw, style.binary), style.rate(bw, !style.binary),
        short_number(static_cast<std::uint64_t>(job.measured.steadystate_iops_mean), style.figures, false, ""),
        iops ? "iops" : "bw", slope ? " slope" : " mean dev", job.measured.steadystate_criterion,
        options.steadystate_percent ? "%" : "");
}

void put_verify(std::string& out, const JobResult& job) {
    if (job.options.verify == Verify::none) {
        return;
    }
    put(out, "  verify       : blocks={}, errors={}\n", job.measured.verified_blocks, job.measured.verify_errors);
    for (const FileMismatch& mismatch : job.mismatches) {
        put(out, "     mismatch  : {}: offset {} (block {}, {} bytes): {}", mismatch.path, mismatch.offset_bytes,
            mismatch.block_offset_bytes, mismatch.block_length_bytes, mismatch.what());
        if (mismatch.shown_bytes != 0) {
            put(out, ": expected {}, found {}", hex(mismatch.expected, mismatch.shown_bytes),
                hex(mismatch.found, mismatch.shown_bytes));
        }
        out += '\n';
    }
    if (job.measured.verify_errors > job.mismatches.size()) {
        put(out, "     ({} more)\n", job.measured.verify_errors - job.mismatches.size());
    }
}

void put_job(std::string& out, const JobResult& job, const GroupTotals& group, std::int64_t when) {
    if (job.measured.total_ios() == 0 && job.measured.sync_ios == 0 && job.error == 0) {
        return;
    }
    const std::string reason = job.error == 0 ? "" : " (" + job.error_text + ")";
    put(out, "{}: (groupid={}, jobs={}): err={:2}{}: pid={}: {}\n", job.options.name, job.options.group_id,
        job.measured.jobs, job.error, reason, job.pid, local_time(when));
    if (!job.options.description.empty()) {
        put(out, "  Description  : [{}]\n", job.options.description);
    }
    if (job.options.unified_rw_reporting != Unified::mixed) {
        for (std::size_t d = 0; d < data_directions; ++d) {
            put_direction(out, job, group, d, job.measured.data[d], direction_names[d]);
        }
    }
    if (job.options.unified_rw_reporting != Unified::none) {
        put_direction(out, job, group, 0, mixed_directions(job), "mixed");
    }
    const LatencyClasses classes = latency_classes(job);
    put_classes(out, "nsec", classes.ns, job.measured.total_ios());
    put_classes(out, "usec", classes.us, job.measured.total_ios());
    put_classes(out, "msec", classes.ms, job.measured.total_ios());
    if (job.measured.sync_latency.count != 0) {
        out += "  fsync/fdatasync/sync_file_range:\n";
        put_latency(out, "sync", job.measured.sync_latency);
        put_percentiles(out, "sync", job.measured.sync_latency, job.options.percentile_list);
    }
    const double run_us = static_cast<double>(job.measured.runtime_ns) / 1000;
    put(out, "  cpu          : usr={:3.2f}%, sys={:3.2f}%, ctx={}, majf={}, minf={}\n",
        run_us > 0 ? static_cast<double>(job.measured.user_us) * 100 / run_us : 0.0,
        run_us > 0 ? static_cast<double>(job.measured.system_us) * 100 / run_us : 0.0, job.measured.context_switches,
        job.measured.major_faults, job.measured.minor_faults);
    put_depths(out, job);
    put_verify(out, job);
    put_steadystate(out, job);
}

void put_group(std::string& out, const GroupTotals& group) {
    constexpr std::array<const char*, data_directions> names = {"   READ", "  WRITE", "   TRIM"};
    const Style style{
        .figures = group.figures, .binary = group.kb_base == KbBase::binary, .unit_base = group.unit_base};
    put(out, "\nRun status group {} (all jobs):\n", group.group_id);
    for (std::size_t d = 0; d < data_directions; ++d) {
        if (group.max_run_ms[d] == 0) {
            continue;
        }
        const auto rate = [&](std::uint64_t value, bool iec) { return style.rate(value, iec); };
        const bool iec = style.binary;
        put(out, "{}: bw={} ({}), {}-{} ({}-{}), io={} ({}), run={}-{}msec\n",
            group.unified == Unified::mixed ? "  MIXED" : names[d], rate(group.total_bw[d], iec),
            rate(group.total_bw[d], !iec), rate(group.min_bw[d], iec), rate(group.max_bw[d], iec),
            rate(group.min_bw[d], !iec), rate(group.max_bw[d], !iec), style.bytes(group.bytes[d], iec),
            style.bytes(group.bytes[d], !iec), group.min_run_ms[d], group.max_run_ms[d]);
    }
}

void put_disks(std::string& out, const std::vector<DiskStats>& disks) {
    if (disks.empty()) {
        return;
    }
    out += "\nDisk stats (read/write):\n";
    for (const DiskStats& disk : disks) {
        put(out, "  {}: ios={}/{}, merge={}/{}, ticks={}/{}, in_queue={}, util={:3.2f}%\n", disk.name, disk.ios[0],
            disk.ios[1], disk.merges[0], disk.merges[1], disk.ticks_ms[0], disk.ticks_ms[1], disk.in_queue_ms,
            disk.utilization());
    }
}

}  // namespace

std::string text_report(const RunResult& result) {
    std::string out;
    for (const Notice& notice : result.notices) {
        put(out, "note: {}:{}: {} {}\n", notice.source, notice.line, notice.key, notice.text);
    }
    const auto jobs = result.reported();
    const std::vector<GroupTotals> groups = group_totals(jobs);
    for (const auto& job : jobs) {
        put_job(out, *job, groups[job->options.group_id], result.finished_at_ms / 1000);
    }
    for (const GroupTotals& group : groups) {
        put_group(out, group);
    }
    put_disks(out, result.disks);
    if (!result.stop_reason.empty()) {
        put(out, "\nstopped: {}; what ran until then is shown\n", result.stop_reason);
    }
    for (const auto& job : jobs) {
        if (std::abs(job->measured.clock_drift_ppm) > kMostDriftPpm) {
            put(out,
                "\nwarning: job {}: the clock drifted by {:.0f} ppm while it ran; its latencies are off by as much\n",
                job->options.name, job->measured.clock_drift_ppm);
        }
    }
    return printable(out);
}

}  // namespace sampleblk::workload
