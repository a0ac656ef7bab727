// SPDX-License-Identifier: MIT
#include "result/logs.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <utility>

#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk::workload {

namespace {

// About 400 MB per log; what comes after is counted as lost.
constexpr std::size_t most_lines = 10'000'000;
constexpr std::uint64_t ms = 1'000'000;

void append(std::string& out, std::uint64_t value) {
    out += std::to_string(value);
    out += ", ";
}

}  // namespace

Logs::Logs(const JobPlan& plan, Measured& measured) : options_(plan.options), measured_(measured) {
    wanted_[bw] = !options_.write_bw_log.empty();
    wanted_[iops] = !options_.write_iops_log.empty();
    // As in fio: a latency that is not measured has no log, other logs stay empty.
    const bool latencies = !options_.write_lat_log.empty();
    wanted_[slat] = latencies && !options_.disable_slat;
    wanted_[clat] = latencies && !options_.disable_clat;
    wanted_[lat] = latencies && !options_.disable_lat;
    if (options_.stats) {
        std::ranges::copy(wanted_, kept_);
        kept_[bw] = wanted_[bw] && !options_.disable_bw;
        kept_[slat] = wanted_[slat] && !is_synchronous(options_.engine);  // there the call does the whole I/O
    }
}

void Logs::begin(std::uint64_t epoch_ns) {
    epoch_ns_ = epoch_ns;
    for (std::vector<Line>& lines : lines_) {
        lines.clear();
    }
    for (auto& windows : windows_) {
        std::ranges::fill(windows, Window());
    }
    histogram_text_.clear();
    window_begin_ns_ = 0;
    if (options_.log_avg_ns != 0) {
        window_end_ns_ = options_.log_avg_ns;
    }
    if (!options_.write_hist_log.empty() && options_.log_hist_ns != 0) {
        histogram_end_ns_ = options_.log_hist_ns;
        for (auto& bins : previous_bins_) {
            bins.assign(HistogramGeometry::bins, 0);
        }
    }
}

void Logs::add_line(Kind kind, std::uint64_t time_ns, std::uint64_t value, const Io& io) {
    if (lines_[kind].size() >= most_lines) {
        ++measured_.io_log_lost;
        return;
    }
    lines_[kind].push_back({.time_ms = time_ns / ms,
                            .value = value,
                            .offset = io.offset,
                            .block_bytes = io.length,
                            .direction = static_cast<std::uint8_t>(io.direction)});
}

void Logs::add(const Io& io, std::uint64_t end_ns, std::uint64_t slat_ns, std::uint64_t clat_ns, std::uint64_t lat_ns) {
    const std::uint64_t values[kinds] = {
        // KiB/s, as with a window, of this one I/O; fio 3.33 writes 1000 bytes/s here, whatever its manual says.
        clat_ns == 0
            ? 0
            : static_cast<std::uint64_t>(static_cast<double>(io.length) * 1e9 / 1024 / static_cast<double>(clat_ns)),
        1, slat_ns, clat_ns, lat_ns};
    for (std::uint8_t kind = 0; kind < kinds; ++kind) {
        if (!kept_[kind]) {
            continue;
        }
        if (options_.log_avg_ns == 0) {
            add_line(static_cast<Kind>(kind), end_ns, values[kind], io);
        } else {
            Window& window = windows_[kind][index_of(io.direction)];
            ++window.samples;
            window.sum += kind == bw ? io.length : values[kind];
            window.most = std::max(window.most, values[kind]);
        }
    }
}

std::uint64_t Logs::next_ns() const noexcept {
    return std::min(window_end_ns_, histogram_end_ns_);
}

void Logs::on_time(std::uint64_t now_ns) {
    if (now_ns >= window_end_ns_) {
        end_window(now_ns);
    }
    if (now_ns >= histogram_end_ns_) {
        end_histogram(now_ns);
    }
}

void Logs::end_window(std::uint64_t now_ns) {
    const std::uint64_t spent = std::max<std::uint64_t>(now_ns - window_begin_ns_, 1);
    for (std::uint8_t kind = 0; kind < kinds; ++kind) {
        for (std::size_t d = 0; d < data_directions; ++d) {
            Window& window = windows_[kind][d];
            if (window.samples == 0 || lines_[kind].size() >= most_lines) {
                measured_.io_log_lost += std::exchange(window, Window()).samples;
                continue;
            }
            const auto rate = [&](double amount) {
                return static_cast<std::uint64_t>(std::llround(amount * 1e9 / static_cast<double>(spent)));
            };
            const std::uint64_t value = kind == bw               ? rate(static_cast<double>(window.sum) / 1024)
                                        : kind == iops           ? rate(static_cast<double>(window.samples))
                                        : options_.log_max_value ? window.most
                                                                 : (window.sum + window.samples / 2) / window.samples;
            lines_[kind].push_back({.time_ms = now_ns / ms,
                                    .value = value,
                                    .offset = 0,
                                    .block_bytes = 0,
                                    .direction = static_cast<std::uint8_t>(d)});
            window = Window();
        }
    }
    window_begin_ns_ = now_ns;
    while (window_end_ns_ <= now_ns) {
        window_end_ns_ += options_.log_avg_ns;
    }
}

void Logs::end_histogram(std::uint64_t now_ns) {
    const std::size_t step = std::size_t{1} << options_.log_hist_coarseness;
    for (std::size_t d = 0; d < data_directions; ++d) {
        const auto& bins = measured_.data[d].clat.bins;
        std::vector<std::uint64_t>& before = previous_bins_[d];
        if (std::ranges::equal(bins, before)) {
            continue;
        }
        append(histogram_text_, (now_ns + epoch_ns_) / ms);
        append(histogram_text_, d);
        append(histogram_text_, options_.max_bs[d]);
        for (std::size_t i = 0; i < bins.size(); i += step) {
            std::uint64_t sum = 0;
            for (std::size_t j = i; j < std::min(i + step, bins.size()); ++j) {
                sum += bins[j] - before[j];
            }
            append(histogram_text_, sum);
        }
        histogram_text_.replace(histogram_text_.size() - 2, 2, "\n");
        before.assign(bins.begin(), bins.end());
    }
    while (histogram_end_ns_ <= now_ns) {
        histogram_end_ns_ += options_.log_hist_ns;
    }
}

// Jobs share a log that has no number of its own: each appends, as in fio.
void Logs::write_log(const std::string& name, const char* kind, std::string_view text) const {
    const std::string number = options_.per_job_logs ? "." + std::to_string(options_.job_number + 1) : "";
    write_file(name + "_" + kind + number + ".log", text, O_CREAT | (options_.per_job_logs ? O_TRUNC : O_APPEND));
}

void Logs::write_lines(Kind kind) const {
    constexpr std::array<const char*, kinds> suffixes = {"bw", "iops", "slat", "clat", "lat"};
    const std::string& name = kind == bw     ? options_.write_bw_log
                              : kind == iops ? options_.write_iops_log
                                             : options_.write_lat_log;
    std::string text;
    for (const Line& line : lines_[kind]) {
        append(text, line.time_ms + epoch_ns_ / ms);
        append(text, line.value);
        append(text, line.direction);
        append(text, line.block_bytes);
        if (options_.log_offset) {
            append(text, line.offset);
        }
        text += "0\n";  // the priority
    }
    write_log(name, suffixes[kind], text);
}

void Logs::write(std::uint64_t now_ns) {
    if (options_.log_avg_ns != 0) {
        end_window(now_ns);
    }
    // One that cannot be written does not cost the others.
    std::exception_ptr first_failure;
    const auto attempt = [&first_failure](auto write_one) {
        try {
            write_one();
        } catch (const SystemError&) {
            first_failure = first_failure ? first_failure : std::current_exception();
        }
    };
    for (std::uint8_t kind = 0; kind < kinds; ++kind) {
        if (wanted_[kind]) {
            attempt([&] { write_lines(static_cast<Kind>(kind)); });
        }
    }
    if (!options_.write_hist_log.empty()) {
        if (histogram_end_ns_ != UINT64_MAX) {
            end_histogram(now_ns);
        }
        attempt([&] { write_log(options_.write_hist_log, "clat_hist", histogram_text_); });
    }
    if (first_failure) {
        std::rethrow_exception(first_failure);
    }
}

}  // namespace sampleblk::workload
