// SPDX-License-Identifier: MIT
// A run's result in the forms of fio 3.33: its text report and its JSON (JSON+ with `bins`).
#pragma once

#include <cstdint>
#include <string>

#include "sampleblk/workload/job_result.hpp"

namespace sampleblk::workload {

[[nodiscard]] std::string text_report(const RunResult& result);
[[nodiscard]] std::string json_report(const RunResult& result, bool bins);

// fio's short numbers: at most `figures` characters of digits, "42.7", "8982", "12.3k".
[[nodiscard]] std::string short_number(std::uint64_t value, unsigned figures, std::uint64_t base, bool iec,
                                       const char* unit);

}  // namespace sampleblk::workload
