// SPDX-License-Identifier: MIT
#include "sampleblk/workload/job_result.hpp"

#include <map>

namespace sampleblk::workload {

void JobResult::merge(const JobResult& other) {
    if (error == 0) {
        error = other.error;
        error_text = other.error_text;
    }
    measured.merge(other.measured);
    mismatches.insert(mismatches.end(), other.mismatches.begin(), other.mismatches.end());
    rates.clear();
    heat.clear();
    io_log.clear();
}

std::vector<std::shared_ptr<const JobResult>> RunResult::reported() const {
    struct Group {
        std::size_t place = 0;           // in what is returned
        std::shared_ptr<JobResult> sum;  // of its members; none while there is only one
    };
    std::map<std::uint32_t, Group> groups;
    std::vector<std::shared_ptr<const JobResult>> out;
    for (const auto& job : jobs) {
        if (!job->options.stats) {
            continue;
        }
        if (job->options.group_reporting) {
            const auto [entry, first] =
                groups.try_emplace(job->options.group_id, Group{.place = out.size(), .sum = {}});
            if (!first) {
                Group& group = entry->second;
                if (!group.sum) {
                    group.sum = std::make_shared<JobResult>(*out[group.place]);
                    out[group.place] = group.sum;
                }
                group.sum->merge(*job);
                continue;
            }
        }
        out.push_back(job);
    }
    return out;
}

RunResult RunResult::total() const {
    RunResult run = *this;
    if (!jobs.empty()) {
        const auto sum = std::make_shared<JobResult>(*jobs.front());
        for (std::size_t i = 1; i < jobs.size(); ++i) {
            sum->merge(*jobs[i]);
        }
        run.jobs = {sum};
    }
    return run;
}

RunResult RunResult::joined(const std::vector<std::shared_ptr<RunResult>>& runs) {
    RunResult all = *runs.at(0);
    for (std::size_t i = 1; i < runs.size(); ++i) {
        const RunResult& run = *runs[i];
        all.jobs.insert(all.jobs.end(), run.jobs.begin(), run.jobs.end());
        all.notices.insert(all.notices.end(), run.notices.begin(), run.notices.end());
        all.messages.insert(all.messages.end(), run.messages.begin(), run.messages.end());
        all.elapsed_ns += run.elapsed_ns;
        all.stop_reason = all.stop_reason.empty() ? run.stop_reason : all.stop_reason;
    }
    all.disks.clear();  // counted over different times
    return all;
}

}  // namespace sampleblk::workload
