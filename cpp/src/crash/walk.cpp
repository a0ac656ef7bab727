// SPDX-License-Identifier: MIT
#include "sampleblk/crash/walk.hpp"

namespace sampleblk::crash {

bool Walk::next(State& state, std::uint64_t limit) {
    for (std::uint64_t looked = 0; looked < limit; ++looked) {
        if (!states_.next(state)) {
            at_end_ = true;
            return false;
        }
        ++looked_at_;
        image_.take(state);
        if (met_.insert(image_.digest()).second) {
            return true;
        }
        ++repeated_;
    }
    return false;
}

}  // namespace sampleblk::crash
