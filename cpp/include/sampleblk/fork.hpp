// SPDX-License-Identifier: MIT
// What a forked process does with what its parent has.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <memory>

namespace sampleblk {

// For destructors: lets go of an implementation, whose `made_by` is the process that made it, where this is a fork of
// that one, and ends. It has no threads of its parent's, and all else is its parent's to end.
template <typename Impl>
[[nodiscard]] bool left_to_parent(std::unique_ptr<Impl>& impl) noexcept {
    if (impl == nullptr || impl->made_by == ::getpid()) {
        return false;
    }
    (void)impl.release();
    return true;
}

}  // namespace sampleblk
