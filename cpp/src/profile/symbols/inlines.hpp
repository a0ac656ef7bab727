// SPDX-License-Identifier: MIT
// Which functions were inlined at a place in code, by the DWARF of its file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "symbols/object_files.hpp"

namespace sampleblk::profile {

class InlineFinder {
  public:
    explicit InlineFinder(ObjectFiles& objects);
    ~InlineFinder();
    InlineFinder(const InlineFinder&) = delete;
    InlineFinder& operator=(const InlineFinder&) = delete;
    InlineFinder(InlineFinder&&) = delete;
    InlineFinder& operator=(InlineFinder&&) = delete;

    // Names of the inlined functions that the place at that offset of the file is in, innermost first; not the
    // function that they were inlined into. Empty without DWARF.
    [[nodiscard]] std::vector<std::string> at(std::uint32_t file, std::uint64_t offset);

  private:
    struct Functions;

    ObjectFiles& objects_;
    std::vector<std::unique_ptr<Functions>> functions_;  // by file number
};

}  // namespace sampleblk::profile
