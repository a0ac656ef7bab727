// SPDX-License-Identifier: MIT
#include "corpus.hpp"
#include "fuzz_job_file.hpp"

namespace sampleblk::workload {
namespace {

TEST(JobFileCorpus, IsReadOrRefused) {
    EXPECT_GE(fuzz::replay("job_file", &fuzz_job_file), 20U);
}

}  // namespace
}  // namespace sampleblk::workload
