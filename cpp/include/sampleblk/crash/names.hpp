// SPDX-License-Identifier: MIT
// What the writes of a log belong to, in the terms of the file system that they are of.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sampleblk/crash/log.hpp"
#include "sampleblk/mapping.hpp"

namespace sampleblk::crash {

// A run of a write's sectors, counted from its own begin, and what they are: "inode table, inode 12".
struct Name {
    std::uint64_t first = 0;
    std::uint64_t sectors = 0;
    std::string text;

    friend bool operator==(const Name&, const Name&) = default;
};

class NamesOf;

// Knows ext4 (ext2 and ext3 too, with their journal inside), xfs of version 5, btrfs and f2fs. All bytes are those of a
// disk that anybody may have made: what makes no sense there has no name.
class Names {
  public:
    // What the disk held before the log: `base`, or zeros when that is empty. The log must stay. Throws SystemError,
    // FormatError when somebody shortens the base meanwhile.
    Names(const Log& log, const std::string& base);
    ~Names();
    Names(const Names&) = delete;
    Names& operator=(const Names&) = delete;

    // All sectors of a write, in order, neighbours of one name together; empty where nothing is known.
    [[nodiscard]] std::vector<Name> of(std::uint32_t write) const;

  private:
    MappedFile base_;
    std::unique_ptr<NamesOf> names_;
};

}  // namespace sampleblk::crash
