// SPDX-License-Identifier: MIT
// What fio does to a job's options after reading them: values that depend on one another.
#pragma once

#include "sampleblk/workload/job_file.hpp"

namespace sampleblk::workload {

// Completes a job, gives it its group and adds it numjobs times. `at` says where the job stands, for notices. Throws
// InputError without a source when its keys contradict one another.
void add_job(JobSet& set, JobOptions job, const Notice& at);

// What only the whole set can tell: names in wait_for.
void check_jobs(const JobSet& set);

}  // namespace sampleblk::workload
