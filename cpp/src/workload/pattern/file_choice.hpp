// SPDX-License-Identifier: MIT
// Which file is next (file_service_type, openfiles).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pattern/distribution.hpp"
#include "pattern/io.hpp"
#include "pattern/random.hpp"

namespace sampleblk::workload {

class FileChoice {
  public:
    FileChoice(const JobPlan& plan, std::vector<FileState>& files, FileOpener& opener);

    // No file is done any more; the random choice starts over where randrepeat asks for it.
    void begin_pass();

    // The file of the next I/O, which the caller opens. nullptr: all are done, or (`busy`) none can be opened until
    // another is closed.
    [[nodiscard]] FileState* choose(bool& busy);

    // Nothing is left of the file in this pass.
    void finish(FileState& file);

    // Whether files are drawn by a distribution: one that has no more to give then starts over.
    [[nodiscard]] bool is_skewed() const noexcept;

  private:
    [[nodiscard]] std::size_t live_from(std::size_t number);
    [[nodiscard]] std::size_t draw();
    bool close_done();

    const JobPlan& plan_;
    const JobOptions& options_;
    std::vector<FileState>& files_;
    FileOpener& opener_;
    Random random_;
    SkewedChoice skewed_;
    std::size_t next_ = 0;
    FileState* current_ = nullptr;
    std::uint32_t current_left_ = 0;
    std::uint32_t open_limit_ = 0;
    // Files that are not done, each choice in constant time: in any order to draw from, with the place of each, and for
    // turns a forest in which each file points to the next one that may be live.
    std::vector<std::uint32_t> live_;
    std::vector<std::uint32_t> place_;
    std::vector<std::uint32_t> next_live_;
};

}  // namespace sampleblk::workload
