// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>

#include "key_setters.hpp"
#include "key_tables.hpp"

namespace sampleblk::workload {

namespace {

using namespace setters;

constexpr std::array<Word<Unified>, 6> unified_words = {{{"none", Unified::none},
                                                         {"mixed", Unified::mixed},
                                                         {"both", Unified::both},
                                                         {"0", Unified::none},
                                                         {"1", Unified::mixed},
                                                         {"2", Unified::both}}};
constexpr std::array<Word<KbBase>, 2> kb_words = {{{"1024", KbBase::binary}, {"1000", KbBase::si}}};
constexpr std::array<Word<std::uint32_t>, 3> unit_words = {{{"0", 8}, {"8", 8}, {"1", 1}}};
constexpr std::array<Word<SteadyMetric>, 4> steady_words = {{{"iops", SteadyMetric::iops},
                                                             {"iops_slope", SteadyMetric::iops_slope},
                                                             {"bw", SteadyMetric::bw},
                                                             {"bw_slope", SteadyMetric::bw_slope}}};

void set_gtod_reduce(JobOptions& options, std::string_view text) {
    const bool reduce = parse_bool(text);
    options.disable_clat = options.disable_lat = options.disable_slat = options.disable_bw = reduce;
}

void set_percentile_list(JobOptions& options, std::string_view text) {
    std::vector<double> list;
    for (const std::string_view part : split(text, ':')) {
        const double percent = parse_float(part);
        if (!(percent > 0 && percent <= 100)) {
            throw InputError("percentile '" + std::string(part) + "' is out of range", {}, 0, "above 0, at most 100");
        }
        list.push_back(percent);
    }
    constexpr std::size_t most = 20;  // fio's limit, and that of its readers
    if (list.size() > most) {
        throw InputError("more than 20 percentiles", {}, 0, "up to 20, parted by colons");
    }
    std::ranges::sort(list);
    options.percentile_list = std::move(list);
}

// A log's name; the key alone means the job's name, which only the end of parsing knows.
template <auto Member>
void log_name(JobOptions& options, std::string_view text) {
    options.*Member = trim(text).empty() ? std::string("$jobname") : std::string(trim(text));
}

// "iops:0.3%", "bw_slope:1M".
void set_steadystate(JobOptions& options, std::string_view text) {
    const std::size_t colon = text.find(':');
    options.steadystate = pick(steady_words, text.substr(0, colon));
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
        throw InputError("'" + std::string(text) + "' has a negative limit", {}, 0, "0 or more");
    }
}

constexpr Key table[] = {
    {"kb_base", "", "1024|1000", "1024", Effect::result, Support::full, "what k, M, … count in",
     choice<&JobOptions::kb_base, kb_words>},
    {"unit_base", "", "0|8|1", "8", Effect::report, Support::full, "report bytes (8) or bits (1)",
     choice<&JobOptions::unit_base, unit_words>},
    {"significant_figures", "", "int", "4", Effect::report, Support::full, "digits in the report",
     number<&JobOptions::significant_figures, 1, 10>},
    {"unified_rw_reporting", "", "none|mixed|both", "none", Effect::report, Support::full,
     "directions summed up, or that too", choice<&JobOptions::unified_rw_reporting, unified_words>},
    {"stats", "", "bool", "1", Effect::report, Support::full, "0: leave the job out of the report",
     flag<&JobOptions::stats>},
    {"disk_util", "", "bool", "1", Effect::report, Support::full, "statistics of the disks",
     flag<&JobOptions::disk_util>},
    {"clat_percentiles", "", "bool", "1", Effect::report, Support::full, "percentiles of completion latency",
     flag<&JobOptions::clat_percentiles>},
    {"lat_percentiles", "", "bool", "0", Effect::report, Support::full, "percentiles of total latency",
     flag<&JobOptions::lat_percentiles>},
    {"slat_percentiles", "", "bool", "0", Effect::report, Support::full, "percentiles of submission latency",
     flag<&JobOptions::slat_percentiles>},
    {"percentile_list", "", "float:…", "1:5:10:…:99.99", Effect::report, Support::full, "which percentiles",
     set_percentile_list},
    {"gtod_reduce", "", "bool", "0", Effect::report, Support::full, "no latencies", set_gtod_reduce},
    {"disable_lat", "", "bool", "0", Effect::report, Support::full, "no total latency", flag<&JobOptions::disable_lat>},
    {"disable_clat", "", "bool", "0", Effect::report, Support::full, "no completion latency",
     flag<&JobOptions::disable_clat>},
    {"disable_slat", "", "bool", "0", Effect::report, Support::full, "no submission latency",
     flag<&JobOptions::disable_slat>},
    {"disable_bw_measurement", "disable_bw", "bool", "0", Effect::report, Support::full, "no bandwidth samples",
     flag<&JobOptions::disable_bw>},
    {"bwavgtime", "", "time [ms]", "500", Effect::report, Support::full, "window of a bandwidth sample",
     duration<&JobOptions::bwavgtime_ns, millisecond>},
    {"iopsavgtime", "", "time [ms]", "500", Effect::report, Support::full, "window of an IOPS sample",
     duration<&JobOptions::iopsavgtime_ns, millisecond>},
    {"write_bw_log", "", "str", "", Effect::report, Support::full, "bandwidth over time",
     log_name<&JobOptions::write_bw_log>},
    {"write_lat_log", "", "str", "", Effect::report, Support::full, "latencies over time",
     log_name<&JobOptions::write_lat_log>},
    {"write_iops_log", "", "str", "", Effect::report, Support::full, "IOPS over time",
     log_name<&JobOptions::write_iops_log>},
    {"write_hist_log", "", "str", "", Effect::report, Support::full, "latency histograms over time",
     log_name<&JobOptions::write_hist_log>},
    {"per_job_logs", "", "bool", "1", Effect::report, Support::full, "the job's number in the names of logs",
     flag<&JobOptions::per_job_logs>},
    {"log_avg_msec", "", "time [ms]", "0", Effect::report, Support::full, "average logs over this time",
     duration<&JobOptions::log_avg_ns, millisecond>},
    {"log_hist_msec", "", "time [ms]", "0", Effect::report, Support::full, "a histogram each so long",
     duration<&JobOptions::log_hist_ns, millisecond>},
    {"log_hist_coarseness", "", "int", "0", Effect::report, Support::full, "halve the bins so often",
     number<&JobOptions::log_hist_coarseness, 0, 6>},
    {"log_max_value", "", "bool", "0", Effect::report, Support::full, "log the greatest, not the mean",
     flag<&JobOptions::log_max_value>},
    {"log_offset", "", "bool", "0", Effect::report, Support::full, "log offsets too", flag<&JobOptions::log_offset>},
    {"log_unix_epoch", "log_alternate_epoch", "bool", "0", Effect::report, Support::full, "log wall-clock times",
     flag<&JobOptions::log_unix_epoch>},
    {"log_alternate_epoch_clock_id", "", "int", "0", Effect::report, Support::accepted, "the clock is CLOCK_REALTIME",
     nullptr},
    {"log_prio", "", "bool", "0", Effect::report, Support::accepted, "no priorities for single I/Os", nullptr},
    {"log_entries", "", "int", "1024", Effect::report, Support::accepted, "logs grow by themselves", nullptr},
    {"log_compression", "", "size", "", Effect::report, Support::accepted, "logs are kept as columns", nullptr},
    {"log_compression_cpus", "", "list", "", Effect::report, Support::accepted, "logs are kept as columns", nullptr},
    {"log_store_compressed", "", "bool", "0", Effect::report, Support::refused, "log files are plain text", nullptr},
    {"block_error_percentiles", "", "bool", "0", Effect::report, Support::refused, "no lifetimes of blocks", nullptr},
    {"io_log_entries", "", "int", "0", Effect::report, Support::full,
     "ours: rows of the per-I/O log, kept in memory; what comes after is counted as lost",
     number<&JobOptions::io_log_entries, 0, 1'000'000'000>},
    {"steadystate", "ss", "iops|iops_slope|bw|bw_slope:limit[%]", "", Effect::result, Support::full,
     "end when the rate is steady", set_steadystate},
    {"steadystate_duration", "ss_dur", "time [s]", "0", Effect::result, Support::full, "how long it must be steady",
     duration<&JobOptions::steadystate_duration_ns, second>},
    {"steadystate_ramp_time", "ss_ramp", "time [s]", "0", Effect::result, Support::full, "when to begin to look",
     duration<&JobOptions::steadystate_ramp_ns, second>},
};

}  // namespace

std::span<const Key> report_keys() {
    return table;
}

}  // namespace sampleblk::workload
