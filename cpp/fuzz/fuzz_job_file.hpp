// SPDX-License-Identifier: MIT
// What a job-file fuzzer does with one input; a test replays the corpus through it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sampleblk/error.hpp"
#include "sampleblk/workload/job_file.hpp"

namespace sampleblk::workload {

// Any text is either read or refused with an error of ours, and what was read can be written and
// read again.
inline int fuzz_job_file(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    // An include would read whatever file the fuzzer thinks of, a pattern's file too.
    if (text.find("include") != std::string_view::npos || text.find('\'') != std::string_view::npos) {
        return 0;
    }
    // Thousands of copies of a job say nothing that two do not.
    const std::vector<Setting> overrides = {{"numjobs", "2"}};
    try {
        const JobSet set = parse_job_text(text, "fuzz", overrides);
        const JobSet again = parse_job_text(write_job_file(set), "fuzz again");
        if (again.jobs.size() != set.jobs.size()) {
            __builtin_trap();
        }
    } catch (const InputError&) {
        return 0;
    }
    return 0;
}

}  // namespace sampleblk::workload
