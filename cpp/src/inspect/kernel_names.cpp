// SPDX-License-Identifier: MIT
#include "sampleblk/inspect/kernel_names.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include "sampleblk/kallsyms.hpp"

namespace sampleblk::inspect {

KernelNames::KernelNames(std::string text) : text_(std::move(text)) {
    for_each_kallsyms_line(text_, [&](const KallsymsLine& line) {
        // Zeros are what kptr_restrict leaves.
        if (line.address != 0) {
            KernelName entry;
            entry.address = line.address;
            entry.global = std::isupper(static_cast<unsigned char>(line.type)) != 0;
            entry.name = line.name;
            entry.module = line.module_name();
            if (line.absolute()) {
                offsets_.emplace(entry.name, entry);
            } else {
                names_.push_back(entry);
            }
        }
        return true;
    });
    std::ranges::stable_sort(names_, [](const KernelName& a, const KernelName& b) {
        return a.address != b.address ? a.address < b.address : a.global && !b.global;
    });
    constexpr std::uint64_t most = std::uint64_t{1} << 20U;  // a gap is no symbol's
    for (std::size_t i = 0; i < names_.size(); ++i) {
        std::size_t next = i + 1;
        while (next < names_.size() && names_[next].address == names_[i].address) {
            ++next;
        }
        const std::uint64_t room = next < names_.size() ? names_[next].address - names_[i].address : most;
        names_[i].size = std::min(room, most);
        by_name_.emplace(names_[i].name, i);
    }
}

std::optional<KernelName> KernelNames::find(std::uint64_t address) const {
    auto after = std::ranges::upper_bound(names_, address, {}, &KernelName::address);
    if (after == names_.begin()) {
        return std::nullopt;
    }
    --after;
    // The first of those at one place, the global one.
    while (after != names_.begin() && std::prev(after)->address == after->address) {
        --after;
    }
    if (address - after->address >= after->size) {
        return std::nullopt;
    }
    return *after;
}

std::vector<KernelName> KernelNames::find(std::string_view name) const {
    std::vector<KernelName> out;
    const auto [first, last] = by_name_.equal_range(name);
    for (auto it = first; it != last; ++it) {
        out.push_back(names_[it->second]);
    }
    const auto [first_offset, last_offset] = offsets_.equal_range(name);
    for (auto it = first_offset; it != last_offset; ++it) {
        out.push_back(it->second);
    }
    std::ranges::sort(out, {}, &KernelName::address);
    return out;
}

}  // namespace sampleblk::inspect
