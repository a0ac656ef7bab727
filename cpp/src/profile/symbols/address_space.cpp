// SPDX-License-Identifier: MIT
#include "symbols/address_space.hpp"

#include <algorithm>
#include <iterator>

namespace sampleblk::profile {

const Mapping* AddressSpace::find(std::uint64_t address) const noexcept {
    auto after = std::ranges::upper_bound(mappings, address, {}, &Mapping::start);
    if (after == mappings.begin()) {
        return nullptr;
    }
    --after;
    return address < after->end ? &*after : nullptr;
}

const AddressSpace& Processes::space(std::int32_t pid) const {
    const auto found = spaces_.find(pid);
    return found == spaces_.end() ? none_ : *found->second;
}

std::int32_t Processes::comm(std::int32_t tid) const {
    const auto found = comms_.find(tid);
    return found == comms_.end() ? -1 : found->second;
}

AddressSpace& Processes::own(std::int32_t pid) {
    auto& space = spaces_[pid];
    if (!space) {
        space = std::make_shared<AddressSpace>();
    } else if (space.use_count() > 1) {
        space = std::make_shared<AddressSpace>(*space);
    }
    space->version = ++versions_;
    return *space;
}

void Processes::name(std::int32_t pid, std::int32_t tid, std::int32_t comm, bool exec) {
    comms_[tid] = comm;
    if (exec) {
        own(pid).mappings.clear();
    }
}

void Processes::fork(std::int32_t pid, std::int32_t tid, std::int32_t parent_pid, std::int32_t parent_tid,
                     bool known_before) {
    if (const auto named = comms_.find(parent_tid); named != comms_.end()) {
        const std::int32_t comm = named->second;
        comms_[tid] = comm;
    } else {
        comms_.erase(tid);  // of a thread before it, whose number it has
    }
    if (pid == parent_pid) {
        return;  // a thread
    }
    parents_[pid] = parent_pid;
    if (known_before) {
        return;
    }
    if (const auto found = spaces_.find(parent_pid); found != spaces_.end()) {
        const auto shared = found->second;
        spaces_[pid] = shared;
    } else {
        spaces_.erase(pid);
    }
}

void Processes::map(std::int32_t pid, const Mapping& mapping) {
    if (mapping.end <= mapping.start) {
        return;
    }
    auto& all = own(pid).mappings;
    // Cuts the new one's place out of what lay there.
    auto first = std::ranges::upper_bound(all, mapping.start, {}, &Mapping::end);
    auto last = first;
    std::vector<Mapping> pieces;
    for (; last != all.end() && last->start < mapping.end; ++last) {
        if (last->start < mapping.start) {
            Mapping left = *last;
            left.end = mapping.start;
            pieces.push_back(left);
        }
        if (last->end > mapping.end) {
            Mapping right = *last;
            right.offset += mapping.end - right.start;
            right.start = mapping.end;
            pieces.push_back(right);
        }
    }
    pieces.insert(std::ranges::find_if(pieces, [&](const Mapping& piece) { return piece.start > mapping.start; }),
                  mapping);
    const auto at = std::distance(all.begin(), first);
    all.erase(first, last);
    all.insert(all.begin() + at, pieces.begin(), pieces.end());
}

}  // namespace sampleblk::profile
