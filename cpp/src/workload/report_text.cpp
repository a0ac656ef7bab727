// SPDX-License-Identifier: MIT
// fio's "normal" output, line for line, so that eyes and scripts trained on it find their way.
#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

#include "report_parts.hpp"
#include "sampleblk/units.hpp"
#include "sampleblk/workload/report.hpp"

namespace sampleblk::workload {

namespace {

[[gnu::format(printf, 2, 3)]]
void put(std::string& out, const char* format, ...) {
    std::array<char, 512> line{};
    va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(line.data(), line.size(), format, arguments);
    va_end(arguments);
    if (length > 0) {
        out.append(line.data(), std::min(static_cast<std::size_t>(length), line.size() - 1));
    }
}

using ull = unsigned long long;

// How a job wants its quantities written.
struct Style {
    unsigned figures;
    bool binary;
    unsigned unit_base;

    [[nodiscard]] std::string bytes(std::uint64_t value, bool iec) const {
        return short_number(value, figures, 1, iec, "B");
    }
    [[nodiscard]] std::string rate(std::uint64_t value, bool iec) const {
        return unit_base == 1 ? short_number(value * 8, figures, 1, iec, "bit/s")
                              : short_number(value, figures, 1, iec, "B/s");
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
    put(out, "    %s (%s): min=%s, max=%s, avg=%5.02f, stdev=%5.02f\n", name, unit,
        short_number(min, 6, 1, false, "").c_str(), short_number(max, 6, 1, false, "").c_str(), mean, deviation);
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
    put(out, "    %s percentiles (%s):\n     |", name, ms ? "msec" : us ? "usec" : "nsec");
    const int width =
        std::max(5, static_cast<int>(std::log10(static_cast<double>(std::max<std::uint64_t>(most / divisor, 1))) + 1));
    constexpr int precision = 2;
    const int per_line = (80 - 7) / (precision + 10 + width);
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (i != 0 && i % static_cast<std::size_t>(per_line) == 0) {
            out += "     |";
        }
        std::uint64_t value = values[i];
        for (std::uint64_t step = divisor; step > 1; step /= 1000) {
            value = (value + 999) / 1000;
        }
        put(out, " %*.*fth=[%*llu]%c", precision + 3, precision, list[i], width, static_cast<ull>(value),
            i + 1 == values.size() ? '\n' : ',');
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
        put(out, "   bw (%5s/s): min=%5llu, max=%5llu, per=%3.2f%%, avg=%5.02f, stdev=%5.02f, samples=%llu\n", unit,
            static_cast<ull>(min), static_cast<ull>(max), share, mean, deviation, static_cast<ull>(stats.bw_kib.count));
    }
    if (stats.iops.count != 0) {
        put(out, "   iops        : min=%5llu, max=%5llu, avg=%5.02f, stdev=%5.02f, samples=%llu\n",
            static_cast<ull>(stats.iops.min), static_cast<ull>(stats.iops.max), stats.iops.mean, stats.iops.stddev(),
            static_cast<ull>(stats.iops.count));
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
    put(out, "  %s: IOPS=%s, BW=%s (%s)(%s/%llumsec)%s\n", name,
        short_number(stats.ios * 1000 / run, style.figures, 1, false, "").c_str(), style.rate(bw, style.binary).c_str(),
        style.rate(bw, !style.binary).c_str(), style.bytes(stats.bytes, style.binary).c_str(), static_cast<ull>(run),
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
            put(out, "%s  lat (%s)   : ", any ? "\n" : "", unit);
        } else {
            out += ", ";
        }
        any = true;
        if (i < class_bounds.size()) {
            put(out, "%llu=%3.2f%%", static_cast<ull>(class_bounds[i]), parts[i]);
        } else {
            put(out, "%s%3.2f%%", i == class_bounds.size() ? "2000=" : ">=2000=", parts[i]);
        }
        in_line = (in_line + 1) % 5;
    }
    if (any) {
        out += "\n";
    }
}

void put_depths(std::string& out, const JobResult& job) {
    const auto depths = shares(job.depth_map, job.total_ios(), 0.1);
    put(out, "  IO depths    : 1=%3.1f%%, 2=%3.1f%%, 4=%3.1f%%, 8=%3.1f%%, 16=%3.1f%%, 32=%3.1f%%, >=64=%3.1f%%\n",
        depths[0], depths[1], depths[2], depths[3], depths[4], depths[5], depths[6]);
    const auto batches = [&](const char* name, const std::array<double, depth_levels>& parts) {
        put(out, "     %s: 0=%3.1f%%, 4=%3.1f%%, 8=%3.1f%%, 16=%3.1f%%, 32=%3.1f%%, 64=%3.1f%%, >=64=%3.1f%%\n", name,
            parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6]);
    };
    batches("submit    ", shares(job.submit_map, job.submits, 0.1));
    batches("complete  ", shares(job.complete_map, job.completes, 0.1));
    put(out, "     issued rwts: total=%llu,%llu,%llu,%llu short=%llu,%llu,%llu,0 dropped=%llu,%llu,%llu,0\n",
        static_cast<ull>(job.data[0].ios), static_cast<ull>(job.data[1].ios), static_cast<ull>(job.data[2].ios),
        static_cast<ull>(job.sync_ios), static_cast<ull>(job.data[0].short_ios),
        static_cast<ull>(job.data[1].short_ios), static_cast<ull>(job.data[2].short_ios),
        static_cast<ull>(job.data[0].dropped_ios), static_cast<ull>(job.data[1].dropped_ios),
        static_cast<ull>(job.data[2].dropped_ios));
    if (job.options.continue_on_error != 0) {
        put(out, "     errors    : total=%llu, first_error=%d/<%s>\n", static_cast<ull>(job.error_count), job.error,
            std::strerror(job.error));
    }
    put(out, "     latency   : target=%llu, window=%llu, percentile=%.2f%%, depth=%u\n",
        static_cast<ull>(job.options.latency_target_ns), static_cast<ull>(job.options.latency_window_ns / 1000),
        job.options.latency_percentile, job.latency_depth != 0 ? job.latency_depth : job.options.iodepth);
}

void put_steadystate(std::string& out, const JobResult& job) {
    const JobOptions& options = job.options;
    if (options.steadystate == SteadyMetric::none) {
        return;
    }
    const Style style = style_of(options);
    const bool iops = options.steadystate == SteadyMetric::iops || options.steadystate == SteadyMetric::iops_slope;
    const bool slope = options.steadystate == SteadyMetric::iops_slope || options.steadystate == SteadyMetric::bw_slope;
    const auto bw = static_cast<std::uint64_t>(job.steadystate_bw_mean);
    put(out, "  steadystate  : attained=%s, bw=%s (%s), iops=%s, %s%s=%.3f%s\n", job.steady ? "yes" : "no",
        style.rate(bw, style.binary).c_str(), style.rate(bw, !style.binary).c_str(),
        short_number(static_cast<std::uint64_t>(job.steadystate_iops_mean), style.figures, 1, false, "").c_str(),
        iops ? "iops" : "bw", slope ? " slope" : " mean dev", job.steadystate_criterion,
        options.steadystate_percent ? "%" : "");
}

std::string hex(const std::array<std::uint8_t, 16>& bytes, std::uint32_t count) {
    std::string out;
    for (std::uint32_t i = 0; i < count && i < bytes.size(); ++i) {
        put(out, "%02x", bytes[i]);
    }
    return out;
}

void put_verify(std::string& out, const JobResult& job) {
    if (job.options.verify == Verify::none) {
        return;
    }
    put(out, "  verify       : blocks=%llu, errors=%llu\n", static_cast<ull>(job.verified_blocks),
        static_cast<ull>(job.verify_errors));
    for (const VerifyMismatch& mismatch : job.mismatches) {
        put(out, "     mismatch  : %.*s: offset %llu (block %llu, %llu bytes): %.*s: expected %s, found %s\n",
            static_cast<int>(mismatch.path.view().size()), mismatch.path.view().data(),
            static_cast<ull>(mismatch.offset_bytes), static_cast<ull>(mismatch.block_offset_bytes),
            static_cast<ull>(mismatch.block_length_bytes), static_cast<int>(mismatch.what.view().size()),
            mismatch.what.view().data(), hex(mismatch.expected, mismatch.shown_bytes).c_str(),
            hex(mismatch.found, mismatch.shown_bytes).c_str());
    }
    if (job.verify_errors > job.mismatches.size()) {
        put(out, "     (%llu more)\n", static_cast<ull>(job.verify_errors - job.mismatches.size()));
    }
}

void put_job(std::string& out, const JobResult& job, const GroupTotals& group, std::int64_t when) {
    if (job.total_ios() == 0 && job.sync_ios == 0 && job.error == 0) {
        return;
    }
    const std::string reason = job.error == 0 ? "" : " (" + job.error_text + ")";
    put(out, "%s: (groupid=%u, jobs=%u): err=%2d%s: pid=%d: %s\n", job.options.name.c_str(), job.options.group_id,
        job.members, job.error, reason.c_str(), job.pid, local_time(when).c_str());
    if (!job.options.description.empty()) {
        put(out, "  Description  : [%s]\n", job.options.description.c_str());
    }
    if (job.options.unified_rw_reporting != Unified::mixed) {
        for (std::size_t d = 0; d < data_directions; ++d) {
            put_direction(out, job, group, d, job.data[d], direction_names[d]);
        }
    }
    if (job.options.unified_rw_reporting != Unified::none) {
        put_direction(out, job, group, 0, mixed_directions(job), "mixed");
    }
    const LatencyClasses classes = latency_classes(job);
    put_classes(out, "nsec", classes.ns, job.total_ios());
    put_classes(out, "usec", classes.us, job.total_ios());
    put_classes(out, "msec", classes.ms, job.total_ios());
    if (job.sync_latency.count != 0) {
        out += "  fsync/fdatasync/sync_file_range:\n";
        put_latency(out, "sync", job.sync_latency);
        put_percentiles(out, "sync", job.sync_latency, job.options.percentile_list);
    }
    const double run_us = static_cast<double>(job.runtime_ns) / 1000;
    put(out, "  cpu          : usr=%3.2f%%, sys=%3.2f%%, ctx=%llu, majf=%llu, minf=%llu\n",
        run_us > 0 ? static_cast<double>(job.user_us) * 100 / run_us : 0.0,
        run_us > 0 ? static_cast<double>(job.system_us) * 100 / run_us : 0.0, static_cast<ull>(job.context_switches),
        static_cast<ull>(job.major_faults), static_cast<ull>(job.minor_faults));
    put_depths(out, job);
    put_verify(out, job);
    put_steadystate(out, job);
}

void put_group(std::string& out, const GroupTotals& group) {
    constexpr std::array<const char*, data_directions> names = {"   READ", "  WRITE", "   TRIM"};
    const Style style{
        .figures = group.figures, .binary = group.kb_base == KbBase::binary, .unit_base = group.unit_base};
    put(out, "\nRun status group %u (all jobs):\n", group.group_id);
    for (std::size_t d = 0; d < data_directions; ++d) {
        if (group.max_run_ms[d] == 0) {
            continue;
        }
        const auto rate = [&](std::uint64_t value, bool iec) { return style.rate(value, iec); };
        const bool iec = style.binary;
        put(out, "%s: bw=%s (%s), %s-%s (%s-%s), io=%s (%s), run=%llu-%llumsec\n",
            group.unified == Unified::mixed ? "  MIXED" : names[d], rate(group.total_bw[d], iec).c_str(),
            rate(group.total_bw[d], !iec).c_str(), rate(group.min_bw[d], iec).c_str(),
            rate(group.max_bw[d], iec).c_str(), rate(group.min_bw[d], !iec).c_str(),
            rate(group.max_bw[d], !iec).c_str(), style.bytes(group.bytes[d], iec).c_str(),
            style.bytes(group.bytes[d], !iec).c_str(), static_cast<ull>(group.min_run_ms[d]),
            static_cast<ull>(group.max_run_ms[d]));
    }
}

void put_disks(std::string& out, const std::vector<DiskStats>& disks) {
    if (disks.empty()) {
        return;
    }
    out += "\nDisk stats (read/write):\n";
    for (const DiskStats& disk : disks) {
        const double busy =
            disk.elapsed_ms == 0
                ? 0.0
                : std::min(100.0, 100.0 * static_cast<double>(disk.busy_ms) / static_cast<double>(disk.elapsed_ms));
        put(out, "  %s: ios=%llu/%llu, merge=%llu/%llu, ticks=%llu/%llu, in_queue=%llu, util=%3.2f%%\n",
            disk.name.c_str(), static_cast<ull>(disk.ios[0]), static_cast<ull>(disk.ios[1]),
            static_cast<ull>(disk.merges[0]), static_cast<ull>(disk.merges[1]), static_cast<ull>(disk.ticks_ms[0]),
            static_cast<ull>(disk.ticks_ms[1]), static_cast<ull>(disk.in_queue_ms), busy);
    }
}

}  // namespace

std::string short_number(std::uint64_t value, unsigned figures, std::uint64_t base, bool iec, const char* unit) {
    constexpr std::array<const char*, 7> si = {"", "k", "M", "G", "T", "P", "E"};
    constexpr std::array<const char*, 7> binary = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    const std::uint64_t thousand = iec ? 1024 : 1000;
    std::size_t prefix = 0;
    for (; base > 1; base /= thousand) {
        ++prefix;
    }
    bool divided = false;
    std::uint64_t rest = 0;
    std::string digits = std::to_string(value);
    while (digits.size() > figures && prefix + 1 < si.size()) {
        rest = value % thousand;
        value /= thousand;
        ++prefix;
        divided = true;
        digits = std::to_string(value);
    }
    std::string out;
    if (!divided || digits.size() + 1 >= figures) {
        if (divided && rest >= thousand / 2) {
            ++value;
        }
        out = std::to_string(value);
    } else {
        std::array<char, 48> text{};
        const int decimals = static_cast<int>(figures - digits.size() - 1);
        std::snprintf(text.data(), text.size(), "%.*f", decimals,
                      static_cast<double>(rest) / static_cast<double>(thousand));
        // Rounding may have carried into the whole part.
        value += text[0] == '1' ? 1 : 0;
        out = std::to_string(value) + (text.data() + 1);
    }
    return out + (iec ? binary[prefix] : si[prefix]) + unit;
}

std::string text_report(const RunResult& result) {
    std::string out;
    for (const Notice& notice : result.notices) {
        put(out, "note: %s:%u: %s %s\n", notice.source.c_str(), notice.line, notice.key.c_str(), notice.text.c_str());
    }
    const std::vector<JobResult> jobs = result.reported();
    const std::vector<GroupTotals> groups = group_totals(jobs);
    for (const JobResult& job : jobs) {
        put_job(out, job, groups[job.options.group_id], result.finished_at_s);
    }
    for (const GroupTotals& group : groups) {
        put_group(out, group);
    }
    put_disks(out, result.disks);
    if (!result.stop_reason.empty()) {
        put(out, "\nstopped: %s; what ran until then is shown\n", result.stop_reason.c_str());
    }
    for (const JobResult& job : jobs) {
        if (std::abs(job.clock_drift_ppm) > 1000) {
            put(out,
                "\nwarning: job %s: the clock drifted by %.0f ppm while it ran; its latencies are off by as much\n",
                job.options.name.c_str(), job.clock_drift_ppm);
        }
    }
    return out;
}

}  // namespace sampleblk::workload
