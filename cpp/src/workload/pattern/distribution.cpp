// SPDX-License-Identifier: MIT
#include "pattern/distribution.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sampleblk::workload {

namespace {

// The sum of i^-theta for i up to n: the first terms one by one, the rest by its integral
// (Euler-Maclaurin), which is then exact to more digits than the draw uses.
double zeta(std::uint64_t n, double theta) {
    constexpr std::uint64_t one_by_one = 100'000;
    double sum = 0;
    const std::uint64_t first = std::min(n, one_by_one);
    for (std::uint64_t i = 1; i <= first; ++i) {
        sum += std::pow(static_cast<double>(i), -theta);
    }
    if (n > first) {
        const auto a = static_cast<double>(first);
        const auto b = static_cast<double>(n);
        sum += (std::pow(b, 1 - theta) - std::pow(a, 1 - theta)) / (1 - theta);
        sum += (std::pow(b, -theta) - std::pow(a, -theta)) / 2;
    }
    return sum;
}

}  // namespace

SkewedChoice::SkewedChoice(Distribution kind, std::uint64_t blocks, double parameter, double center, std::uint64_t seed,
                           bool in_order)
    : kind_(kind), blocks_(std::max<std::uint64_t>(blocks, 1)), in_order_(in_order), random_(seed) {
    const auto n = static_cast<double>(blocks_);
    switch (kind_) {
        case Distribution::zipf:
            theta_ = parameter;
            zeta_n_ = zeta(blocks_, theta_);
            second_ = 1 + std::pow(0.5, theta_);
            alpha_ = 1 / (1 - theta_);
            eta_ = (1 - std::pow(2 / n, 1 - theta_)) / (1 - second_ / zeta_n_);
            break;
        case Distribution::pareto:
            power_ = std::log(parameter) / std::log(1 - parameter);
            break;
        case Distribution::normal:
            jitter_ = std::min(static_cast<std::uint64_t>(std::ceil(n * parameter / 100)), blocks_ / 2);
            break;
        default:
            break;
    }
    if (kind_ == Distribution::normal) {
        shift_ = center < 0 ? 0 : static_cast<std::uint64_t>(n + n * (center - 0.5)) % blocks_;
    } else {
        shift_ = center < 0 ? random_.below(blocks_) : static_cast<std::uint64_t>(n * center) % blocks_;
    }
    if (in_order_) {
        shift_ = 0;
    }
    // Steps of the golden section spread any run of ranks evenly; coprime to the number of blocks,
    // they reach every one.
    stride_ = std::max<std::uint64_t>(static_cast<std::uint64_t>(n * 0.6180339887498949), 1);
    while (std::gcd(stride_, blocks_) != 1) {
        ++stride_;
    }
}

std::uint64_t SkewedChoice::rank() noexcept {
    const auto n = static_cast<double>(blocks_);
    if (kind_ == Distribution::zipf) {
        const double uniform = random_.unit();
        const double scaled = uniform * zeta_n_;
        if (scaled < 1) {
            return 0;
        }
        if (scaled < second_) {
            return 1;
        }
        return static_cast<std::uint64_t>(n * std::pow(eta_ * uniform - eta_ + 1, alpha_));
    }
    if (kind_ == Distribution::pareto) {
        return static_cast<std::uint64_t>((n - 1) * std::pow(random_.unit(), power_));
    }
    // fio's bell: the mean of twelve uniform draws, then a uniform jitter of the deviation's width.
    constexpr std::uint64_t draws = 12;
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < draws; ++i) {
        sum += random_.below(blocks_ + 1);
    }
    std::uint64_t middle = (sum + draws - 1) / draws;
    if (jitter_ != 0) {
        auto off = static_cast<std::int64_t>(random_.below(jitter_)) - static_cast<std::int64_t>(jitter_ / 2);
        while (off != 0 && (off < 0 ? middle < static_cast<std::uint64_t>(-off)
                                    : middle + static_cast<std::uint64_t>(off) >= blocks_)) {
            off /= 2;
        }
        middle = static_cast<std::uint64_t>(static_cast<std::int64_t>(middle) + off);
    }
    return middle;
}

std::uint64_t SkewedChoice::next() noexcept {
    std::uint64_t choice = std::min(rank(), blocks_ - 1);
    if (in_order_) {
        return choice;
    }
    // A permutation, so that no two ranks share a block.
    choice = static_cast<std::uint64_t>(static_cast<Uint128>(choice) * stride_ % blocks_);
    choice += shift_;
    return choice >= blocks_ ? choice - blocks_ : choice;
}

}  // namespace sampleblk::workload
