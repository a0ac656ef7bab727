// SPDX-License-Identifier: MIT
#include <algorithm>

#include "language/key_tables.hpp"
#include "language/setters.hpp"

namespace sampleblk::workload {

namespace {

using namespace setters;

constexpr char unified_words[] = "none|0 mixed|1 both|2";

void set_kb_base(JobOptions& options, std::string_view text) {
    options.kb_base = pick("1024 1000", text) == 0 ? KbBase::binary : KbBase::si;
}

void set_unit_base(JobOptions& options, std::string_view text) {
    options.unit_base = pick("8|0 1", text) == 0 ? 8 : 1;
}

void set_gtod_reduce(JobOptions& options, std::string_view text) {
    const bool reduce = parse_bool(text);
    options.disable_clat = options.disable_lat = options.disable_slat = options.disable_bw = reduce;
}

void set_percentile_list(JobOptions& options, std::string_view text) {
    std::vector<double> list;
    for (const std::string_view part : split(text, ':')) {
        const double percent = parse_float(part);
        if (!(percent > 0 && percent <= 100)) {
            out_of_range(part, "percentiles above 0, at most 100");
        }
        list.push_back(percent);
    }
    constexpr std::size_t most = 20;  // fio's limit, and that of its readers
    if (list.size() > most) {
        throw InputError("more than 20 percentiles", {}, 0, "at most 20, separated by colons");
    }
    std::ranges::sort(list);
    options.percentile_list = std::move(list);
}

// A log's name; the key alone means the job's name, which only the end of parsing knows.
template <auto Member>
void log_name(JobOptions& options, std::string_view text) {
    options.*Member = trim(text).empty() ? std::string("$jobname") : std::string(trim(text));
}

template <typename Apply>
constexpr Key log_key(std::string_view name, std::string_view help, Apply apply) {
    Key made = report_key(name, "str", "", help, apply);
    made.takes_nothing = true;
    return made;
}

// "iops:0.3%", "bw_slope:1M".
void set_steadystate(JobOptions& options, std::string_view text) {
    const std::size_t colon = text.find(':');
    options.steadystate = static_cast<SteadyMetric>(1 + pick("iops iops_slope bw bw_slope", text.substr(0, colon)));
    std::string_view limit = colon == std::string_view::npos ? "0.01%" : trim(text.substr(colon + 1));
    options.steadystate_percent = limit.ends_with('%');
    if (options.steadystate_percent) {
        limit.remove_suffix(1);
        options.steadystate_limit = parse_float(limit);
    } else if (options.steadystate == SteadyMetric::bw || options.steadystate == SteadyMetric::bw_slope) {
        options.steadystate_limit = static_cast<double>(parse_unsigned(limit, options.kb_base));
    } else {
        options.steadystate_limit = parse_float(limit);
    }
    if (!(options.steadystate_limit >= 0)) {
        out_of_range(text, "a limit of 0 or more");
    }
}

constexpr Key table[] = {
    key("kb_base", "1024|1000", "1024", "what k, M, … count in", set_kb_base),
    report_key("unit_base", "0|8|1", "8", "report bytes (8) or bits (1)", set_unit_base),
    report_key("significant_figures", "int", "4", "digits in the report",
               number<&JobOptions::significant_figures, 1, 10>),
    report_key("unified_rw_reporting", "none|mixed|both", "none", "directions summed up, or that too",
               choice<&JobOptions::unified_rw_reporting, unified_words>),
    report_key("stats", "bool", "1", "0: leave the job out of the report", flag<&JobOptions::stats>),
    report_key("disk_util", "bool", "1", "statistics of the disks", flag<&JobOptions::disk_util>),
    report_key("clat_percentiles", "bool", "1", "percentiles of completion latency",
               flag<&JobOptions::clat_percentiles>),
    report_key("lat_percentiles", "bool", "0", "percentiles of total latency", flag<&JobOptions::lat_percentiles>),
    report_key("slat_percentiles", "bool", "0", "percentiles of submission latency",
               flag<&JobOptions::slat_percentiles>),
    report_key("percentile_list", "float:…", "1:5:10:…:99.99", "which percentiles", set_percentile_list),
    report_key("gtod_reduce", "bool", "0", "no latencies", set_gtod_reduce),
    report_key("disable_lat", "bool", "0", "no total latency", flag<&JobOptions::disable_lat>),
    report_key("disable_clat", "bool", "0", "no completion latency", flag<&JobOptions::disable_clat>),
    report_key("disable_slat", "bool", "0", "no submission latency", flag<&JobOptions::disable_slat>),
    report_key("disable_bw_measurement disable_bw", "bool", "0", "no bandwidth samples", flag<&JobOptions::disable_bw>),
    report_key("bwavgtime", "time [ms]", "500", "window of a bandwidth sample",
               duration<&JobOptions::bwavgtime_ns, millisecond>),
    report_key("iopsavgtime", "time [ms]", "500", "window of an IOPS sample",
               duration<&JobOptions::iopsavgtime_ns, millisecond>),
    log_key("write_bw_log", "bandwidth over time", log_name<&JobOptions::write_bw_log>),
    log_key("write_lat_log", "latencies over time", log_name<&JobOptions::write_lat_log>),
    log_key("write_iops_log", "IOPS over time", log_name<&JobOptions::write_iops_log>),
    log_key("write_hist_log", "latency histograms over time", log_name<&JobOptions::write_hist_log>),
    report_key("per_job_logs", "bool", "1", "the job's number in the names of logs; 0: jobs append to one",
               flag<&JobOptions::per_job_logs>),
    report_key("log_avg_msec", "time [ms]", "0", "average logs over this time",
               duration<&JobOptions::log_avg_ns, millisecond>),
    report_key("log_hist_msec", "time [ms]", "0", "time between two histograms",
               duration<&JobOptions::log_hist_ns, millisecond>),
    report_key("log_hist_coarseness", "int", "0", "how many times the bins are halved",
               number<&JobOptions::log_hist_coarseness, 0, 6>),
    report_key("log_max_value", "bool", "0", "log the greatest, not the mean", flag<&JobOptions::log_max_value>),
    report_key("log_offset", "bool", "0", "log offsets too", flag<&JobOptions::log_offset>),
    report_key("log_unix_epoch log_alternate_epoch", "bool", "0", "log wall-clock times",
               flag<&JobOptions::log_unix_epoch>),
    report_key("io_log_entries", "int", "0",
               "ours: rows of the per-I/O log, kept in memory; what comes after is counted as lost",
               number<&JobOptions::io_log_entries, 0, 1'000'000'000>),
    key("steadystate ss", "iops|iops_slope|bw|bw_slope:limit[%]", "", "end when the rate is steady", set_steadystate),
    key("steadystate_duration ss_dur", "time [s]", "0", "how long it must be steady",
        duration<&JobOptions::steadystate_duration_ns, second>),
    key("steadystate_ramp_time ss_ramp", "time [s]", "0", "when to begin to look",
        duration<&JobOptions::steadystate_ramp_ns, second>),
};

}  // namespace

std::span<const Key> report_keys() {
    return table;
}

}  // namespace sampleblk::workload
