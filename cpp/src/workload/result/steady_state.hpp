// SPDX-License-Identifier: MIT
// Whether a job's rate has settled: fio's two criteria over a window of one-second samples.
#pragma once

#include <cstdint>
#include <deque>

#include "sampleblk/workload/measured.hpp"

namespace sampleblk::workload {

class SteadyState {
  public:
    explicit SteadyState(const JobOptions& options) : options_(options) {
        samples_wanted_ = static_cast<std::size_t>(options.steadystate_duration_ns / 1'000'000'000);
        samples_wanted_ = samples_wanted_ == 0 ? 1 : samples_wanted_;
    }

    // Adds a second's rates; true when the criterion holds over the whole window.
    [[nodiscard]] bool add(double bytes_per_s, double ios_per_s, Measured& measured) {
        bw_.push_back(bytes_per_s);
        iops_.push_back(ios_per_s);
        if (bw_.size() > samples_wanted_) {
            bw_.pop_front();
            iops_.pop_front();
        }
        measured.steadystate_bw_mean = mean(bw_);
        measured.steadystate_iops_mean = mean(iops_);
        if (bw_.size() < samples_wanted_) {
            return false;
        }
        const bool by_iops =
            options_.steadystate == SteadyMetric::iops || options_.steadystate == SteadyMetric::iops_slope;
        const std::deque<double>& values = by_iops ? iops_ : bw_;
        const double middle = mean(values);
        const bool by_slope =
            options_.steadystate == SteadyMetric::iops_slope || options_.steadystate == SteadyMetric::bw_slope;
        double criterion = by_slope ? slope(values) : deviation(values, middle);
        (by_slope ? measured.steadystate_slope : measured.steadystate_deviation) = criterion;
        if (options_.steadystate_percent && middle > 0) {
            criterion *= 100 / middle;
        }
        measured.steadystate_criterion = criterion;
        return (criterion < 0 ? -criterion : criterion) < options_.steadystate_limit;
    }

  private:
    [[nodiscard]] static double mean(const std::deque<double>& values) {
        double sum = 0;
        for (const double value : values) {
            sum += value;
        }
        return values.empty() ? 0 : sum / static_cast<double>(values.size());
    }

    [[nodiscard]] static double deviation(const std::deque<double>& values, double middle) {
        double most = 0;
        for (const double value : values) {
            const double off = value > middle ? value - middle : middle - value;
            most = off > most ? off : most;
        }
        return most;
    }

    // Least squares over equally spaced samples, per second.
    [[nodiscard]] static double slope(const std::deque<double>& values) {
        const auto n = static_cast<double>(values.size());
        double x = 0;
        double sum_x = 0;
        double sum_y = 0;
        double sum_xy = 0;
        double sum_xx = 0;
        for (const double y : values) {
            sum_x += x;
            sum_y += y;
            sum_xy += x * y;
            sum_xx += x * x;
            x += 1;
        }
        const double below = n * sum_xx - sum_x * sum_x;
        return below == 0 ? 0 : (n * sum_xy - sum_x * sum_y) / below;
    }

    const JobOptions& options_;
    std::size_t samples_wanted_;
    std::deque<double> bw_;
    std::deque<double> iops_;
};

}  // namespace sampleblk::workload
