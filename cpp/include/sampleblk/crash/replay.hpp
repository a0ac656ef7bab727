// SPDX-License-Identifier: MIT
// A log's writes, done again, and what of the device's journal a state is then made of.
#pragma once

#include <linux/sampleblk.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sampleblk/crash/image.hpp"
#include "sampleblk/crash/log.hpp"

namespace sampleblk::crash {

// Does all writes of the log to a block device, in the order of their execution and past the page cache, each piece as
// one write(2) and zeros as write-zeroes. A piece that is larger than what the device takes at once becomes several
// requests. Throws SystemError, Interrupted.
void replay(const Log& log, const std::string& device);

// So many sectors of a write, as an entry of a journal.
struct Entry {
    std::uint64_t sequence = 0;
    std::uint64_t sectors = 0;
};

// What each write of a log has become in the journal of the device that it was done to: an entry, or several of a large
// write, in the order of their sectors.
class Replayed {
  public:
    explicit Replayed(std::vector<std::vector<Entry>> writes) : writes_(std::move(writes)) {}

    // What the journal has of the state that the image has taken, for DeviceControl::state_give(). Throws
    // std::out_of_range for an image of a longer log.
    [[nodiscard]] std::vector<sampleblk_part> parts(const Image& image) const;

  private:
    std::vector<std::vector<Entry>> writes_;
};

}  // namespace sampleblk::crash
