// SPDX-License-Identifier: MIT
#include "sampleblk/workload/job_result.hpp"

#include <map>

namespace sampleblk::workload {

void JobResult::merge(const JobResult& other, Together together) {
    if (error == 0) {
        error = other.error;
        error_text = other.error_text;
    }
    measured.merge(other.measured, together);
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
        std::shared_ptr<JobResult> sum;
        for (std::size_t i = 0; i < jobs.size();) {
            const auto side_by_side = std::make_shared<JobResult>(*jobs[i]);
            for (++i; i < jobs.size() && !jobs[i]->options.stonewall; ++i) {
                side_by_side->merge(*jobs[i]);
            }
            if (sum) {
                sum->merge(*side_by_side, Together::one_after_the_other);
            } else {
                sum = side_by_side;
            }
        }
        run.jobs = {sum};
    }
    return run;
}

RunResult RunResult::joined(const std::vector<std::shared_ptr<RunResult>>& runs) {
    RunResult all = *runs.at(0);
    for (std::size_t i = 1; i < runs.size(); ++i) {
        const RunResult& run = *runs[i];
        const std::uint32_t first_group = all.jobs.empty() ? 0 : all.jobs.back()->options.group_id + 1;
        for (const auto& job : run.jobs) {
            const auto moved = std::make_shared<JobResult>(*job);
            moved->options.group_id += first_group;
            moved->options.stonewall = moved->options.stonewall || job == run.jobs.front();
            all.jobs.push_back(moved);
        }
        all.notices.insert(all.notices.end(), run.notices.begin(), run.notices.end());
        all.messages.insert(all.messages.end(), run.messages.begin(), run.messages.end());
        all.elapsed_ns += run.elapsed_ns;
        all.stop_reason = all.stop_reason.empty() ? run.stop_reason : all.stop_reason;
    }
    all.disks.clear();  // counted over different times
    return all;
}

}  // namespace sampleblk::workload
