// SPDX-License-Identifier: MIT
#include <array>

#include "key_setters.hpp"
#include "key_tables.hpp"

namespace sampleblk::workload {

namespace {

using namespace setters;

constexpr std::array<Word<ThinkBlocks>, 2> think_words = {
    {{"complete", ThinkBlocks::complete}, {"issue", ThinkBlocks::issue}}};
constexpr std::array<Word<RateProcess>, 2> process_words = {
    {{"linear", RateProcess::linear}, {"poisson", RateProcess::poisson}}};
constexpr std::array<Word<std::uint8_t>, 8> error_words = {
    {{"none", 0},
     {"0", 0},
     {"read", continue_on_read},
     {"write", continue_on_write},
     {"io", continue_on_read | continue_on_write},
     {"verify", continue_on_verify},
     {"all", continue_on_read | continue_on_write | continue_on_verify},
     {"1", continue_on_read | continue_on_write | continue_on_verify}}};

void set_continue_on_error(JobOptions& options, std::string_view text) {
    options.continue_on_error = text.empty() ? pick(error_words, "all") : pick(error_words, text);
}

void set_startdelay(JobOptions& options, std::string_view text) {
    const std::size_t dash = text.find('-');
    options.startdelay_ns = parse_duration(text.substr(0, dash), second);
    options.startdelay_upper_ns = dash == std::string_view::npos ? 0 : parse_duration(text.substr(dash + 1), second);
}

void set_thinktime_blocks(JobOptions& options, std::string_view text) {
    number<&JobOptions::thinktime_blocks, 1>(options, text);
    options.thinktime_blocks_given = true;
}

void set_latency_percentile(JobOptions& options, std::string_view text) {
    options.latency_percentile = parse_float(text);
    // Written so that not-a-number fails too.
    const bool in_range = options.latency_percentile > 0 && options.latency_percentile <= 100;
    if (!in_range) {
        throw InputError("'" + std::string(text) + "' is out of range", {}, 0, "above 0, at most 100");
    }
}

constexpr Key table[] = {
    {"loops", "", "int", "1", Effect::result, Support::full, "times to run the job", number<&JobOptions::loops, 1>},
    {"runtime", "timeout", "time [s]", "0", Effect::result, Support::full, "end after this time",
     duration<&JobOptions::runtime_ns, second>},
    {"time_based", "", "bool", "0", Effect::result, Support::full, "go on until runtime",
     flag<&JobOptions::time_based>},
    {"ramp_time", "", "time [s]", "0", Effect::result, Support::full, "run so long before measuring",
     duration<&JobOptions::ramp_time_ns, second>},
    {"startdelay", "start_delay", "time [s] or range", "0", Effect::result, Support::full, "wait before the job",
     set_startdelay},
    {"thinktime", "", "time [us]", "0", Effect::result, Support::full, "pause between I/Os",
     duration<&JobOptions::thinktime_ns, microsecond>},
    {"thinktime_spin", "", "time [us]", "0", Effect::result, Support::full, "the part of the pause spent spinning",
     duration<&JobOptions::thinktime_spin_ns, microsecond>},
    {"thinktime_blocks", "", "int", "1", Effect::result, Support::full, "I/Os between pauses", set_thinktime_blocks},
    {"thinktime_blocks_type", "", "complete|issue", "complete", Effect::result, Support::full,
     "which I/Os thinktime_blocks counts", choice<&JobOptions::thinktime_blocks_type, think_words>},
    {"thinktime_iotime", "", "time [s]", "0", Effect::result, Support::full, "I/O time between pauses",
     duration<&JobOptions::thinktime_iotime_ns, second>},
    {"rate", "", "size[,size][,size]", "", Effect::result, Support::full, "bandwidth limit in bytes per second",
     size_triple<&JobOptions::rate_bps>},
    {"rate_min", "ratemin", "size[,size][,size]", "", Effect::result, Support::full, "fail below this bandwidth",
     size_triple<&JobOptions::rate_min_bps>},
    {"rate_iops", "", "int[,int][,int]", "", Effect::result, Support::full, "limit in I/Os per second",
     size_triple<&JobOptions::rate_iops>},
    {"rate_iops_min", "", "int[,int][,int]", "", Effect::result, Support::full, "fail below so many I/Os per second",
     size_triple<&JobOptions::rate_iops_min>},
    {"rate_process", "", "linear|poisson", "linear", Effect::result, Support::full, "spacing of limited I/Os",
     choice<&JobOptions::rate_process, process_words>},
    {"rate_cycle", "ratecycle", "time [ms]", "1000", Effect::result, Support::full, "window over which rate_min counts",
     duration<&JobOptions::rate_cycle_ns, millisecond>},
    {"rate_ignore_thinktime", "", "bool", "0", Effect::result, Support::full, "do not make up for pauses",
     flag<&JobOptions::rate_ignore_thinktime>},
    {"max_latency", "", "time [us][,…][,…]", "0", Effect::result, Support::full, "fail above this latency",
     duration_triple<&JobOptions::max_latency_ns, microsecond>},
    {"latency_target", "", "time [us]", "0", Effect::result, Support::full,
     "find the highest depth that keeps this latency", duration<&JobOptions::latency_target_ns, microsecond>},
    {"latency_window", "", "time [us]", "0", Effect::result, Support::full, "time at each depth",
     duration<&JobOptions::latency_window_ns, microsecond>},
    {"latency_percentile", "", "float", "100", Effect::result, Support::full, "I/Os that must keep it",
     set_latency_percentile},
    {"latency_run", "", "bool", "0", Effect::result, Support::full, "go on adjusting to the end",
     flag<&JobOptions::latency_run>},
    {"continue_on_error", "", "none|read|write|io|verify|all", "none", Effect::result, Support::full,
     "errors that do not end the job", set_continue_on_error},
    {"error_dump", "", "bool", "0", Effect::report, Support::accepted, "errors are always reported", nullptr},
};

}  // namespace

std::span<const Key> pacing_keys() {
    return table;
}

}  // namespace sampleblk::workload
