// SPDX-License-Identifier: MIT
// fio's JSON, key for key in fio's order. What fio has no key for comes last, under "sampleblk".
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "result/json_writer.hpp"
#include "result/report_parts.hpp"
#include "sampleblk/workload/report.hpp"

namespace sampleblk::workload {

namespace {

// The names and the fields follow this version of fio.
constexpr const char* fio_version = "fio-3.33";

void put_settings(JsonWriter& json, std::string_view key, const std::vector<Setting>& settings) {
    if (settings.empty()) {
        return;
    }
    json.begin_object(key);
    for (std::size_t i = 0; i < settings.size(); ++i) {
        // A key given twice counts with its last value, as it did for the job.
        const bool again = std::any_of(settings.begin() + static_cast<std::ptrdiff_t>(i) + 1, settings.end(),
                                       [&](const Setting& later) { return later.first == settings[i].first; });
        if (!again) {
            json.text(settings[i].first, settings[i].second);
        }
    }
    json.end_object();
}

void put_latency(JsonWriter& json, std::string_view key, const LatencyStats& stats, bool percentiles,
                 const std::vector<double>& list, bool bins) {
    json.begin_object(key);
    json.value("min", stats.min_ns());
    json.value("max", stats.max_ns);
    json.value("mean", stats.mean_ns());
    json.value("stddev", stats.stddev_ns());
    json.value("N", stats.count);
    if (percentiles && stats.count != 0) {
        json.begin_object("percentile");
        for (const double percent : list) {
            json.value(fmt::format("{:f}", percent), stats.percentile_ns(percent));
        }
        json.end_object();
        if (bins) {
            json.begin_object("bins");
            for (std::size_t i = 0; i < stats.bins.size(); ++i) {
                if (stats.bins[i] != 0) {
                    json.value(std::to_string(HistogramGeometry::value_of(i)), stats.bins[i]);
                }
            }
            json.end_object();
        }
    }
    json.end_object();
}

void put_direction(JsonWriter& json, const JobResult& job, const GroupTotals& group, std::size_t d,
                   const DirectionStats& stats, std::string_view name, bool bins) {
    const JobOptions& options = job.options;
    const std::uint64_t run = stats.bytes == 0 && stats.ios == 0 ? 0 : runtime_ms(stats.runtime_ns);
    const std::uint64_t bw = run == 0 ? 0 : stats.bytes * 1000 / run;
    json.begin_object(name);
    json.value("io_bytes", stats.bytes);
    json.value("io_kbytes", stats.bytes >> 10);
    json.value("bw_bytes", bw);
    json.value("bw", bw / 1024);
    json.value("iops", run == 0 ? 0.0 : 1000.0 * static_cast<double>(stats.ios) / static_cast<double>(run));
    json.value("runtime", run);
    json.value("total_ios", stats.ios);
    json.value("short_ios", stats.short_ios);
    json.value("drop_ios", 0U);
    put_latency(json, "slat_ns", stats.slat, options.slat_percentiles, options.percentile_list, bins);
    put_latency(json, "clat_ns", stats.clat, options.clat_percentiles, options.percentile_list, bins);
    put_latency(json, "lat_ns", stats.lat, options.lat_percentiles, options.percentile_list, bins);
    if (stats.response.count != 0) {
        put_latency(json, "response_ns", stats.response, true, options.percentile_list, bins);
    }
    json.value("bw_min", static_cast<std::uint64_t>(stats.bw_kib.min));
    json.value("bw_max", static_cast<std::uint64_t>(stats.bw_kib.max));
    json.value("bw_agg", stats.bw_kib.count == 0 ? 0.0 : share_of_group(group, d, stats.bw_kib.mean));
    json.value("bw_mean", stats.bw_kib.mean);
    json.value("bw_dev", stats.bw_kib.stddev());
    json.value("bw_samples", stats.bw_kib.count);
    json.value("iops_min", static_cast<std::uint64_t>(stats.iops.min));
    json.value("iops_max", static_cast<std::uint64_t>(stats.iops.max));
    json.value("iops_mean", stats.iops.mean);
    json.value("iops_stddev", stats.iops.stddev());
    json.value("iops_samples", stats.iops.count);
    json.end_object();
}

void put_depths(JsonWriter& json, std::string_view key, const std::array<double, depth_levels>& parts, bool batch) {
    constexpr std::array<const char*, depth_levels> levels = {"1", "2", "4", "8", "16", "32", ">=64"};
    constexpr std::array<const char*, depth_levels> batches = {"0", "4", "8", "16", "32", "64", ">=64"};
    json.begin_object(key);
    for (std::size_t i = 0; i < depth_levels; ++i) {
        json.value(batch ? batches[i] : levels[i], parts[i]);
    }
    json.end_object();
}

template <std::size_t N>
void put_classes(JsonWriter& json, std::string_view key, const std::array<std::uint64_t, N>& counts,
                 std::uint64_t total) {
    const std::array<double, N> parts = shares(counts, total, 0.01);
    json.begin_object(key);
    for (std::size_t i = 0; i < N; ++i) {
        json.value(i < class_bounds.size()    ? std::to_string(class_bounds[i])
                   : i == class_bounds.size() ? std::string("2000")
                                              : std::string(">=2000"),
                   parts[i]);
    }
    json.end_object();
}

void put_ours(JsonWriter& json, const JobResult& job) {
    json.begin_object("sampleblk");
    json.value("members", job.measured.jobs);
    json.value("pid", job.pid);
    json.value("seed", job.seed);
    json.text("clock", job.measured.clock_gettime_jobs == 0 ? "tsc" : "clock_gettime");
    json.value("clock_drift_ppm", job.measured.clock_drift_ppm);
    json.value("stopped_early", job.measured.stopped_early != 0);
    if (job.error != 0) {
        json.text("error", job.error_text);
    }
    if (job.options.verify != Verify::none) {
        json.begin_object("verify");
        json.value("blocks", job.measured.verified_blocks);
        json.value("errors", job.measured.verify_errors);
        json.begin_array("mismatches");
        for (const FileMismatch& mismatch : job.mismatches) {
            json.begin_object();
            json.text("path", mismatch.path);
            json.text("what", mismatch.what());
            json.value("offset_bytes", mismatch.offset_bytes);
            json.value("block_offset_bytes", mismatch.block_offset_bytes);
            json.value("block_length_bytes", mismatch.block_length_bytes);
            json.text("expected", hex(mismatch.expected, mismatch.shown_bytes));
            json.text("found", hex(mismatch.found, mismatch.shown_bytes));
            json.end_object();
        }
        json.end_array();
        json.end_object();
    }
    json.end_object();
}

void put_steadystate(JsonWriter& json, const JobResult& job) {
    const JobOptions& options = job.options;
    if (options.steadystate == SteadyMetric::none) {
        return;
    }
    constexpr std::array<const char*, 5> names = {"", "iops", "iops_slope", "bw", "bw_slope"};
    const std::string unit = options.steadystate_percent ? "%" : "";
    json.begin_object("steadystate");
    json.text("ss", fmt::format("{}:{:f}{}", names[static_cast<std::size_t>(options.steadystate)],
                                options.steadystate_limit, unit));
    json.value("duration", options.steadystate_duration_ns / 1'000'000'000);
    json.value("attained", job.measured.steady);
    json.text("criterion", fmt::format("{:f}{}", job.measured.steadystate_criterion, unit));
    json.value("max_deviation", job.measured.steadystate_deviation);
    json.value("slope", job.measured.steadystate_slope);
    json.begin_object("data");
    json.value("bw_mean", static_cast<std::uint64_t>(job.measured.steadystate_bw_mean));
    json.value("iops_mean", static_cast<std::uint64_t>(job.measured.steadystate_iops_mean));
    json.end_object();
    json.end_object();
}

void put_job(JsonWriter& json, const JobResult& job, const GroupTotals& group, std::uint64_t elapsed_s, bool bins) {
    const JobOptions& options = job.options;
    json.begin_object();
    json.text("jobname", options.name);
    json.value("groupid", options.group_id);
    json.value("error", job.error);
    json.value("eta", 0U);
    json.value("elapsed", elapsed_s);
    put_settings(json, "job options", options.given);
    if (options.unified_rw_reporting != Unified::mixed) {
        for (std::size_t d = 0; d < data_directions; ++d) {
            put_direction(json, job, group, d, job.measured.data[d], direction_names[d], bins);
        }
    }
    if (options.unified_rw_reporting != Unified::none) {
        put_direction(json, job, group, 0, mixed_directions(job), "mixed", bins);
    }
    json.begin_object("sync");
    json.value("total_ios", job.measured.sync_ios);
    put_latency(json, "lat_ns", job.measured.sync_latency, options.clat_percentiles || options.lat_percentiles,
                options.percentile_list, bins);
    json.end_object();
    const double run_us = static_cast<double>(job.measured.runtime_ns) / 1000;
    json.value("job_runtime", runtime_ms(job.measured.runtime_ns));
    json.value("usr_cpu", run_us > 0 ? static_cast<double>(job.measured.user_us) * 100 / run_us : 0.0);
    json.value("sys_cpu", run_us > 0 ? static_cast<double>(job.measured.system_us) * 100 / run_us : 0.0);
    json.value("ctx", job.measured.context_switches);
    json.value("majf", job.measured.major_faults);
    json.value("minf", job.measured.minor_faults);
    put_depths(json, "iodepth_level", shares(job.measured.depth_map, job.measured.total_ios(), 0.1), false);
    put_depths(json, "iodepth_submit", shares(job.measured.submit_map, job.measured.submits, 0.1), true);
    put_depths(json, "iodepth_complete", shares(job.measured.complete_map, job.measured.completes, 0.1), true);
    const LatencyClasses classes = latency_classes(job);
    put_classes(json, "latency_ns", classes.ns, job.measured.total_ios());
    put_classes(json, "latency_us", classes.us, job.measured.total_ios());
    put_classes(json, "latency_ms", classes.ms, job.measured.total_ios());
    if (options.continue_on_error != 0) {
        json.value("total_err", job.measured.error_count);
        json.value("first_error", job.measured.first_error);
    }
    json.value("latency_depth", job.measured.latency_depth != 0 ? job.measured.latency_depth : options.iodepth);
    json.value("latency_target", options.latency_target_ns);
    json.value("latency_percentile", options.latency_percentile);
    json.value("latency_window", options.latency_window_ns / 1000);
    if (!options.description.empty()) {
        json.text("desc", options.description);
    }
    put_steadystate(json, job);
    put_ours(json, job);
    json.end_object();
}

}  // namespace

std::string json_report(const RunResult& result, bool bins) {
    const auto jobs = result.reported();
    const std::vector<GroupTotals> groups = group_totals(jobs);
    const std::uint64_t elapsed_s = (result.elapsed_ns + 999'999'999) / 1'000'000'000;
    JsonWriter json;
    json.begin_object();
    json.text("fio version", fio_version);
    json.value("timestamp", result.finished_at_ms / 1000);
    json.value("timestamp_ms", result.finished_at_ms);
    json.text("time", local_time(result.finished_at_ms / 1000));
    put_settings(json, "global options", result.globals);
    json.begin_array("jobs");
    for (const auto& job : jobs) {
        put_job(json, *job, groups[job->options.group_id], elapsed_s, bins);
    }
    json.end_array();
    json.begin_array("disk_util");
    for (const DiskStats& disk : result.disks) {
        json.begin_object();
        json.text("name", disk.name);
        json.value("read_ios", disk.ios[0]);
        json.value("write_ios", disk.ios[1]);
        json.value("read_merges", disk.merges[0]);
        json.value("write_merges", disk.merges[1]);
        json.value("read_ticks", disk.ticks_ms[0]);
        json.value("write_ticks", disk.ticks_ms[1]);
        json.value("in_queue", disk.in_queue_ms);
        json.value("util", disk.utilization());
        json.end_object();
    }
    json.end_array();
    json.begin_object("sampleblk");
    json.text("source", result.source);
    json.text("stop_reason", result.stop_reason);
    json.text("clock_note", result.clock_note);
    json.begin_array("notices");
    for (const Notice& notice : result.notices) {
        json.begin_object();
        json.text("source", notice.source);
        json.value("line", notice.line);
        json.text("key", notice.key);
        json.text("text", notice.text);
        json.end_object();
    }
    json.end_array();
    json.end_object();
    json.end_object();
    return json.take();
}

}  // namespace sampleblk::workload
