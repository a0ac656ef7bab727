// SPDX-License-Identifier: MIT
// Random choices among n blocks that favour some: zipf (Gray et al., "Quickly generating
// billion-record synthetic databases", 1994), pareto, and fio's bell curve.
#pragma once

#include <cstdint>

#include "pattern/random.hpp"
#include "sampleblk/workload/options.hpp"

namespace sampleblk::workload {

class SkewedChoice {
  public:
    SkewedChoice() = default;

    // `parameter` is zipf's theta, pareto's h or the bell's deviation in percent. `center` (0 to 1)
    // is where the favourite lies; negative: anywhere. The others are spread over the whole range,
    // unless `in_order` keeps each at its rank.
    SkewedChoice(Distribution kind, std::uint64_t blocks, double parameter, double center, std::uint64_t seed,
                 bool in_order = false);

    // 0 to blocks - 1.
    [[nodiscard]] std::uint64_t next() noexcept;

  private:
    [[nodiscard]] std::uint64_t rank() noexcept;

    Distribution kind_ = Distribution::uniform;
    std::uint64_t blocks_ = 1;
    std::uint64_t shift_ = 0;
    std::uint64_t stride_ = 1;
    bool in_order_ = false;
    Random random_;
    double theta_ = 0;
    double zeta_n_ = 0;
    double second_ = 0;  // the sum of the first two terms of zeta
    double alpha_ = 0;
    double eta_ = 0;
    double power_ = 0;
    std::uint64_t jitter_ = 0;
};

}  // namespace sampleblk::workload
