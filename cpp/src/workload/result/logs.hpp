// SPDX-License-Identifier: MIT
// fio's log files (write_bw_log and its kin): one line per I/O, or one per direction and window.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pattern/io.hpp"
#include "pattern/plan.hpp"
#include "sampleblk/workload/measured.hpp"

namespace sampleblk::workload {

class Logs {
  public:
    // What finds no room is counted in `measured`, whose histograms are what is logged of those.
    Logs(const JobPlan& plan, Measured& measured);

    // Of what is measured from now on; what was added before is forgotten.
    void begin(std::uint64_t epoch_ns);

    // Adds an I/O; times are nanoseconds since the job began.
    void add(const Io& io, std::uint64_t end_ns, std::uint64_t slat_ns, std::uint64_t clat_ns, std::uint64_t lat_ns);

    // When end_window() or end_histogram() is due next, since the job began; UINT64_MAX: never.
    [[nodiscard]] std::uint64_t next_ns() const noexcept;
    void on_time(std::uint64_t now_ns);

    // Writes the files, the last windows included. Throws SystemError.
    void write(std::uint64_t now_ns);

  private:
    enum Kind : std::uint8_t { bw, iops, slat, clat, lat, kinds };
    struct Line {
        std::uint64_t time_ms;
        std::uint64_t value;
        std::uint64_t offset;
        std::uint64_t block_bytes;
        std::uint8_t direction;
    };
    struct Window {
        std::uint64_t samples = 0;
        std::uint64_t sum = 0;
        std::uint64_t most = 0;
    };

    void add_line(Kind kind, std::uint64_t time_ns, std::uint64_t value, const Io& io);
    void end_window(std::uint64_t now_ns);
    void end_histogram(std::uint64_t now_ns);
    void write_log(const std::string& name, const char* kind, std::string_view text) const;
    void write_lines(Kind kind) const;

    const JobOptions& options_;
    Measured& measured_;
    bool wanted_[kinds] = {};  // have a file
    bool kept_[kinds] = {};    // have lines in it
    std::vector<Line> lines_[kinds];
    Window windows_[kinds][data_directions];
    std::uint64_t window_end_ns_ = UINT64_MAX;
    std::uint64_t window_begin_ns_ = 0;
    std::uint64_t histogram_end_ns_ = UINT64_MAX;
    std::uint64_t epoch_ns_ = 0;
    std::string histogram_text_;
    std::vector<std::uint64_t> previous_bins_[data_directions];
};

}  // namespace sampleblk::workload
