// SPDX-License-Identifier: MIT
// A log's writes, done again.
#pragma once

#include <string>

#include "sampleblk/crash/log.hpp"

namespace sampleblk::crash {

// Does all writes of the log to a block device, in the order of their execution and past the page cache, each piece as
// one write(2) and zeros as write-zeroes. A piece that is larger than what the device takes at once becomes several
// requests. Throws SystemError, Interrupted.
void replay(const Log& log, const std::string& device);

}  // namespace sampleblk::crash
