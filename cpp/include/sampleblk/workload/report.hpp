// SPDX-License-Identifier: MIT
// A run's result in the forms of fio 3.33: its text report and its JSON (JSON+ with `bins`).
#pragma once

#include <string>

#include "sampleblk/workload/job_result.hpp"

namespace sampleblk::workload {

[[nodiscard]] std::string text_report(const RunResult& result);
[[nodiscard]] std::string json_report(const RunResult& result, bool bins);

}  // namespace sampleblk::workload
