// SPDX-License-Identifier: MIT
// How much a job, and a pass over its files, may still issue, as fio counts it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "pattern/io.hpp"

namespace sampleblk::workload {

class Budget {
  public:
    explicit Budget(const JobPlan& plan)
        : plan_(plan), options_(plan.options), unlimited_(options_.time_based || !plan.replay.empty()) {
        if (!unlimited_) {
            total_bytes_ = product(plan.io_bytes, options_.loops);
        }
        if (!unlimited_ && options_.number_ios != 0) {
            total_ios_ = product(product(options_.number_ios, options_.loops), options_.trim_then_write ? 2 : 1);
        }
        // A pass of an engine that completes within the call ends when its files have no more to give, not at a count
        // of bytes: only so are the files closed where fio closes them.
        const bool queues = !is_synchronous(options_.engine) || options_.engine == Engine::vsync ||
                            (options_.engine == Engine::null && options_.iodepth > 1);
        if (queues && plan.replay.empty() && (!options_.time_based || options_.verify != Verify::none)) {
            pass_bytes_ = plan.size_bytes;
            if (options_.writes && options_.random && options_.norandommap) {
                pass_bytes_ = std::max(pass_bytes_, plan.io_bytes);
            }
            if (options_.writes && options_.verify != Verify::none && options_.verify_backlog != 0) {
                pass_bytes_ = sum(pass_bytes_, plan.size_bytes);  // which are read back in between
            }
            if (options_.trim_then_write) {
                pass_bytes_ = sum(pass_bytes_, product(plan.io_bytes, options_.loops));
            }
        }
    }

    void begin_pass() noexcept { issued_in_pass_ = 0; }
    [[nodiscard]] bool wants_more() const noexcept {
        return issued_in_pass_ < pass_bytes_ && issued_bytes_ < total_bytes_ && issued_ios_ < total_ios_;
    }
    void count(const Io& io) noexcept {
        issued_in_pass_ += io.length;
        ++issued_ios_;
        // Of trimwrite only the writes count, of verify what was written.
        const bool counts = !io.verify_read && (io.direction != Direction::trim || !options_.trim_then_write);
        issued_bytes_ += counts ? io.length : 0;
    }

    [[nodiscard]] std::uint64_t issued_ios() const noexcept { return issued_ios_; }
    // Nothing more, whatever was asked for.
    void exhaust() noexcept { total_ios_ = 0; }
    [[nodiscard]] bool exhausted() const noexcept { return total_ios_ == 0; }

    // Whether io_size, above size, wants one more pass over the same files after all loops; `done` bytes were moved.
    [[nodiscard]] bool wants_another_pass(std::uint64_t done) const noexcept {
        const std::uint64_t largest = *std::ranges::max_element(options_.max_bs);
        return options_.io_size.bytes != 0 && !unlimited_ && issued_ios_ < total_ios_ && done < plan_.io_bytes &&
               plan_.io_bytes - done >= largest;
    }

  private:
    [[nodiscard]] static std::uint64_t product(std::uint64_t a, std::uint64_t b) noexcept {
        return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
    }
    [[nodiscard]] static std::uint64_t sum(std::uint64_t a, std::uint64_t b) noexcept {
        return a > UINT64_MAX - b ? UINT64_MAX : a + b;
    }

    const JobPlan& plan_;
    const JobOptions& options_;
    bool unlimited_;
    std::uint64_t issued_in_pass_ = 0;
    std::uint64_t pass_bytes_ = UINT64_MAX;
    std::uint64_t issued_bytes_ = 0;
    std::uint64_t total_bytes_ = UINT64_MAX;
    std::uint64_t issued_ios_ = 0;
    std::uint64_t total_ios_ = UINT64_MAX;
};

}  // namespace sampleblk::workload
