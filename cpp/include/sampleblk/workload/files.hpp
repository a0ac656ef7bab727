// SPDX-License-Identifier: MIT
// The files of a job: their names and extents, and the phase that lays them out before the job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sampleblk/fd.hpp"
#include "sampleblk/workload/options.hpp"

namespace sampleblk::workload {

enum class FileType : std::uint8_t { regular, block, character, pipe };

struct FileTarget {
    std::string path;
    FileType type = FileType::regular;
    std::uint64_t size_bytes = 0;    // of the whole file
    std::uint64_t offset_bytes = 0;  // where the job's part begins
    std::uint64_t extent_bytes = 0;  // how long the job's part is
    bool created = false;            // by our layout, for unlink

    [[nodiscard]] std::uint64_t end_bytes() const noexcept { return offset_bytes + extent_bytes; }
};

// A job whose files are known.
struct JobPlan {
    JobOptions options;
    std::uint64_t seed = 0;
    std::vector<FileTarget> files;
    std::uint64_t size_bytes = 0;       // of the job's parts of all files together
    std::uint64_t io_bytes = 0;         // to transfer in each loop
    std::uint64_t layout_bytes = 0;     // written while laying out
    std::vector<ReplayRecord> replay;   // what to do again, in order
    std::vector<std::string> messages;  // "job1: Laying out IO file (1 file / 2MiB)"
};

// Names the job's files, finds their sizes and lays out what is missing, with the system calls that
// fio makes: unlink, open(O_WRONLY|O_CREAT), fallocate, [ftruncate, write…, fsync,] fadvise64
// (DONTNEED), close. Throws SystemError and InputError; a layout that is interrupted or fails takes
// the file that it was writing with it.
[[nodiscard]] JobPlan prepare_files(const JobOptions& options, std::uint64_t seed);

// Removes the regular files of a job (unlink=1). Throws SystemError.
void remove_files(const JobPlan& plan);

}  // namespace sampleblk::workload
