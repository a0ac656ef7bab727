// SPDX-License-Identifier: MIT
// Which file is next (file_service_type, openfiles).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "distribution.hpp"
#include "io.hpp"
#include "sampleblk/workload/random.hpp"

namespace sampleblk::workload {

class FileChoice {
  public:
    FileChoice(const JobPlan& plan, std::vector<FileState>& files);

    // No file is done any more; the random choice starts over where randrepeat asks for it.
    void begin_pass();

    // The file of the next I/O, which is the caller's to open. nullptr: all are done, or (`busy`) none can be opened
    // until another is closed.
    [[nodiscard]] FileState* choose(bool& busy);

    // Nothing is left of the file in this pass.
    void finish(FileState& file);

    // Whether files are drawn: one that is through then goes on from its beginning.
    [[nodiscard]] bool draws() const noexcept;

  private:
    [[nodiscard]] bool usable(const FileState& file, bool& busy) const;

    const JobPlan& plan_;
    const JobOptions& options_;
    std::vector<FileState>& files_;
    Random random_;
    SkewedChoice skewed_;
    std::uint32_t next_ = 0;
    FileState* current_ = nullptr;
    std::uint32_t current_left_ = 0;
    std::uint32_t done_ = 0;
    std::uint32_t open_limit_ = 0;
};

}  // namespace sampleblk::workload
