// SPDX-License-Identifier: MIT
// fio's job files and command lines, read into jobs that can be run.
// Source: fio's HOWTO, "Job file format" and "Job file parameters".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sampleblk/workload/options.hpp"

namespace sampleblk::workload {

using Setting = std::pair<std::string, std::string>;  // key, value

// Something in the input that was left alone, and why it does not change the result.
struct Notice {
    std::string source;
    std::uint32_t line = 0;
    std::string key;
    std::string text;
};

struct JobSet {
    std::string source;            // where the jobs came from, for messages
    std::vector<JobOptions> jobs;  // in order; numjobs copies stand one after another
    std::vector<Setting> globals;  // the settings of all [global], as written; a job has those above it
    std::vector<Notice> notices;
};

// Reads a job file. `overrides` are applied to every job last, as if written at its end. Throws
// SystemError for a file that cannot be read, InputError naming file and line for what it says.
[[nodiscard]] JobSet read_job_file(const std::string& path, const std::vector<Setting>& overrides = {});

// The same for text; `source` stands for the file name in messages.
[[nodiscard]] JobSet parse_job_text(std::string_view text, const std::string& source,
                                    const std::vector<Setting>& overrides = {});

// fio's command line: "--name=a", "--rw=read", …; settings before the first name are global.
[[nodiscard]] JobSet parse_command_line(const std::vector<std::string>& arguments,
                                        const std::vector<Setting>& overrides = {});

// One job from settings, as keyword arguments give them. Its name is "job" unless it is set.
[[nodiscard]] JobSet make_job(const std::vector<Setting>& settings);

// The job file that says the same as a set of jobs, numjobs copies joined again.
[[nodiscard]] std::string write_job_file(const JobSet& set);

}  // namespace sampleblk::workload
