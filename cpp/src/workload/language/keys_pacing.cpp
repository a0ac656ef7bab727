// SPDX-License-Identifier: MIT
#include "language/key_tables.hpp"
#include "language/setters.hpp"

namespace sampleblk::workload {

namespace {

using namespace setters;

constexpr char think_words[] = "complete issue";
constexpr char process_words[] = "linear poisson";

void set_continue_on_error(JobOptions& options, std::string_view text) {
    // In the order of the words; "none" is "0" and "all" is "1".
    constexpr std::uint8_t io = continue_on_read | continue_on_write;
    constexpr std::uint8_t bits[] = {0,  continue_on_read,   continue_on_write,
                                     io, continue_on_verify, io | continue_on_verify};
    options.continue_on_error = bits[pick("none|0 read write io verify all|1", text.empty() ? "all" : text)];
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
        out_of_range(text, "above 0, at most 100");
    }
}

constexpr Key table[] = {
    key("loops", "int", "1", "times to run the job", number<&JobOptions::loops, 1>),
    key("runtime timeout", "time [s]", "0", "end after this time", duration<&JobOptions::runtime_ns, second>),
    key("time_based", "bool", "0", "go on until runtime", flag<&JobOptions::time_based>),
    key("ramp_time", "time [s]", "0", "time to run before measuring", duration<&JobOptions::ramp_time_ns, second>),
    key("startdelay start_delay", "time [s] or range", "0", "wait before the job, from the start of all",
        set_startdelay),
    key("thinktime", "time [us]", "0", "pause between I/Os", duration<&JobOptions::thinktime_ns, microsecond>),
    key("thinktime_spin", "time [us]", "0", "the part of the pause spent spinning",
        duration<&JobOptions::thinktime_spin_ns, microsecond>),
    key("thinktime_blocks", "int", "1", "I/Os between pauses", set_thinktime_blocks),
    key("thinktime_blocks_type", "complete|issue", "complete", "which I/Os thinktime_blocks counts",
        choice<&JobOptions::thinktime_blocks_type, think_words>),
    key("thinktime_iotime", "time [s]", "0", "I/O time between pauses",
        duration<&JobOptions::thinktime_iotime_ns, second>),
    key("rate", "size[,size][,size]", "", "bandwidth limit in bytes per second", size_triple<&JobOptions::rate_bps>),
    key("rate_min ratemin", "size[,size][,size]", "", "fail below this bandwidth",
        size_triple<&JobOptions::rate_min_bps>),
    key("rate_iops", "int[,int][,int]", "", "limit in I/Os per second", size_triple<&JobOptions::rate_iops>),
    key("rate_iops_min", "int[,int][,int]", "", "fail below so many I/Os per second",
        size_triple<&JobOptions::rate_iops_min>),
    key("rate_process", "linear|poisson", "linear", "spacing of limited I/Os",
        choice<&JobOptions::rate_process, process_words>),
    key("rate_cycle ratecycle", "time [ms]", "1000", "window over which rate_min counts",
        duration<&JobOptions::rate_cycle_ns, millisecond>),
    key("rate_ignore_thinktime", "bool", "0", "do not make up for pauses", flag<&JobOptions::rate_ignore_thinktime>),
    key("max_latency", "time [us][,…][,…]", "0", "fail above this latency",
        duration_triple<&JobOptions::max_latency_ns, microsecond>),
    key("latency_target", "time [us]", "0", "find the highest depth that keeps this latency",
        duration<&JobOptions::latency_target_ns, microsecond>),
    key("latency_window", "time [us]", "0", "time at each depth",
        duration<&JobOptions::latency_window_ns, microsecond>),
    key("latency_percentile", "float", "100", "I/Os that must keep it", set_latency_percentile),
    key("latency_run", "bool", "0", "go on adjusting to the end", flag<&JobOptions::latency_run>),
    key("continue_on_error", "none|read|write|io|verify|all", "none", "errors that do not end the job",
        set_continue_on_error),
};

}  // namespace

std::span<const Key> pacing_keys() {
    return table;
}

}  // namespace sampleblk::workload
