// SPDX-License-Identifier: MIT
// What of a device's journal a state is made of, between its bindings and those of crash.
#pragma once

#include <linux/sampleblk.h>

#include <vector>

namespace sampleblk::bindings {

struct DeviceParts {
    std::vector<sampleblk_part> list;
};

}  // namespace sampleblk::bindings
