// SPDX-License-Identifier: MIT
// A job whose files are known: what its process starts from.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "sampleblk/workload/options.hpp"

namespace sampleblk::workload {

enum class FileType : std::uint8_t { regular, block, character, pipe };

// Which file a name stood for; zeroes: none.
struct FileIdentity {
    dev_t device = 0;
    ino_t inode = 0;
    [[nodiscard]] bool known() const noexcept { return inode != 0; }
    [[nodiscard]] bool operator==(const FileIdentity&) const = default;
};

// Of what lies at a path, a link not followed, or behind a descriptor; unknown where there is nothing.
[[nodiscard]] FileIdentity identity_of(const std::string& path) noexcept;
[[nodiscard]] FileIdentity identity_of(int fd) noexcept;

// "a:b" are two names; "\:" is a colon in one.
[[nodiscard]] std::vector<std::string> split_names(const std::string& text);

// A job's directory: of several the first, or, counted round, the one with that number. Empty where it has none.
[[nodiscard]] std::string directory_of(const JobOptions& options, std::size_t number = 0);
// Absolute names too are below a directory, as in fio.
[[nodiscard]] std::string below(const std::string& directory, const std::string& name);
// A job's file in its directory. Throws SystemError where there is no such directory.
[[nodiscard]] std::string below_directory(const JobOptions& options, const std::string& name, std::size_t number = 0);

struct FileTarget {
    std::string path;
    FileType type = FileType::regular;
    std::uint64_t size_bytes = 0;    // of the whole file
    std::uint64_t offset_bytes = 0;  // where the job's part begins
    std::uint64_t extent_bytes = 0;  // how long the job's part is
    FileIdentity made;               // by the layout: what unlink=1 may remove

    [[nodiscard]] std::uint64_t end_bytes() const noexcept { return offset_bytes + extent_bytes; }
};

struct JobPlan {
    JobOptions options;
    std::uint64_t seed = 0;
    std::vector<FileTarget> files;
    std::uint64_t size_bytes = 0;       // of the job's parts of all files together
    std::uint64_t io_bytes = 0;         // to transfer in each loop
    std::vector<ReplayRecord> replay;   // what to do again, in order
    std::vector<std::string> messages;  // "job1: Laying out IO file (1 file / 2MiB)"

    // Whether two writes of one loop may come to the same place: then the last one counts for verify.
    [[nodiscard]] bool writes_may_overlap() const noexcept {
        const bool each_block_once = options.random && !options.norandommap && !options.softrandommap &&
                                     options.percentage_random[index_of(Direction::write)] == 100 &&
                                     options.sequence_length == 1 && options.zonemode == ZoneMode::none &&
                                     !options.trims && !options.time_based && !is_skewed(options.file_service) &&
                                     replay.empty();
        return !each_block_once;
    }
};

}  // namespace sampleblk::workload
