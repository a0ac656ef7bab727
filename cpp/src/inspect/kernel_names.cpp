// SPDX-License-Identifier: MIT
#include "sampleblk/inspect/kernel_names.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "sampleblk/interrupt.hpp"

namespace sampleblk::inspect {

KernelNames::KernelNames(std::string text) : text_(std::move(text)) {
    const std::string_view all = text_;
    std::size_t at = 0;
    while (at < all.size()) {
        std::size_t end = all.find('\n', at);
        end = end == std::string_view::npos ? all.size() : end;
        const auto line = all.substr(at, end - at);
        at = end + 1;
        if (names_.size() % 65536 == 65535) {
            check_interrupt();
        }
        KernelName entry;
        const auto [after, code] = std::from_chars(line.data(), line.data() + line.size(), entry.address, 16);
        const auto used = static_cast<std::size_t>(after - line.data());
        if (code != std::errc() || used + 3 >= line.size() || line[used] != ' ') {
            continue;
        }
        const char type = line[used + 1];
        // Absolute symbols are per-CPU offsets and constants; zeros are what kptr_restrict leaves.
        if (type == 'a' || type == 'A' || entry.address == 0) {
            continue;
        }
        entry.global = std::isupper(static_cast<unsigned char>(type)) != 0;
        const auto rest = line.substr(used + 3);
        const auto tab = rest.find('\t');
        entry.name = rest.substr(0, tab);
        if (tab != std::string_view::npos) {
            const auto open = rest.find('[', tab);
            const auto close = rest.find(']', tab);
            if (open != std::string_view::npos && close != std::string_view::npos && close > open) {
                entry.module = rest.substr(open + 1, close - open - 1);
            }
        }
        names_.push_back(entry);
    }
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
    std::ranges::sort(out, {}, &KernelName::address);
    return out;
}

}  // namespace sampleblk::inspect
