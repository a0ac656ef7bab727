// SPDX-License-Identifier: MIT
// The phase before a job: its files are named, measured, and laid out where they are too short.
#pragma once

#include <cstdint>

#include "pattern/plan.hpp"

namespace sampleblk::workload {

// Names the job's files, finds their sizes and lays out what is missing, with the system calls that fio makes: unlink,
// open(O_WRONLY|O_CREAT), fallocate, [ftruncate, write…, fsync,] fadvise64 (DONTNEED), close. Throws SystemError and
// InputError; a layout that fails or is interrupted removes the file that it was making, and no other.
[[nodiscard]] JobPlan prepare_files(const JobOptions& options, std::uint64_t seed);

}  // namespace sampleblk::workload
