// SPDX-License-Identifier: MIT
#include "symbols/symbol_list.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace sampleblk::profile {

namespace {

std::size_t underscores(std::string_view name) noexcept {
    const auto first = name.find_first_not_of('_');
    return first == std::string_view::npos ? name.size() : first;
}

struct Free {
    void operator()(char* text) const noexcept { std::free(text); }  // NOLINT(cppcoreguidelines-no-malloc)
};

}  // namespace

void SymbolList::add(std::uint64_t start, std::uint64_t end, std::string_view name, Binding binding,
                     std::int32_t group) {
    SymbolEntry entry;
    entry.start = start;
    entry.end = std::max(start, end);
    entry.name = static_cast<std::uint32_t>(names_.size());
    entry.length = static_cast<std::uint32_t>(name.size());
    entry.group = group;
    entry.binding = binding;
    names_ += name;
    entries_.push_back(entry);
}

// choose_best_symbol(): a size, then a stronger binding, fewer leading underscores, a longer name.
bool SymbolList::better(const SymbolEntry& a, const SymbolEntry& b) const noexcept {
    if ((a.end == a.start) != (b.end == b.start)) {
        return a.end != a.start;
    }
    if ((a.binding == Binding::weak) != (b.binding == Binding::weak)) {
        return a.binding != Binding::weak;
    }
    if (a.binding != b.binding) {
        return a.binding == Binding::global;
    }
    const auto left = underscores(name(a));
    const auto right = underscores(name(b));
    if (left != right) {
        return left < right;
    }
    return a.length > b.length;
}

void SymbolList::finish(bool groups_apart) {
    std::ranges::stable_sort(entries_, {}, &SymbolEntry::start);
    std::size_t kept = 0;
    for (const SymbolEntry& entry : entries_) {
        if (kept != 0 && entries_[kept - 1].start == entry.start) {
            // Of several without a size, as in kallsyms, perf's symbols__fixup_end() gives the room to the last before
            // it chooses.
            const SymbolEntry& other = entries_[kept - 1];
            const bool neither_sized = other.end == other.start && entry.end == entry.start;
            if (neither_sized || better(entry, other)) {
                entries_[kept - 1] = entry;
            }
            continue;
        }
        entries_[kept++] = entry;
    }
    entries_.resize(kept);
    constexpr std::uint64_t page = 4096;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        SymbolEntry& entry = entries_[i];
        if (entry.end != entry.start) {
            continue;
        }
        const bool last = i + 1 == entries_.size();
        if (last || (groups_apart && entries_[i + 1].group != entry.group)) {
            entry.end = (entry.start + 2 * page - 1) / page * page;
        } else {
            entry.end = entries_[i + 1].start;
        }
    }
}

const SymbolEntry* SymbolList::find(std::uint64_t address) const noexcept {
    auto after = std::ranges::upper_bound(entries_, address, {}, &SymbolEntry::start);
    // A sized symbol may lie inside another: look a few back.
    for (int tries = 0; tries < 4 && after != entries_.begin(); ++tries) {
        --after;
        if (address < after->end) {
            return &*after;
        }
    }
    return nullptr;
}

std::string demangle(std::string_view name) {
    std::string text(name);
    if (!name.starts_with("_Z")) {
        return text;
    }
    // What is behind a dot the compiler added for a part or a variant of it (".cold", ".isra.0"); Rust has dots within.
    for (const std::size_t end : {name.size(), name.find('.')}) {
        // The scope of something local is written without its return type.
        std::string local("_ZZ");
        local.append(name.substr(2, end - 2)).append("E1x");
        int status = 0;
        const std::unique_ptr<char, Free> plain(abi::__cxa_demangle(local.c_str(), nullptr, nullptr, &status));
        if (status != 0 || !plain) {
            continue;
        }
        std::string out = plain.get();
        out.resize(out.size() - std::string_view("::x").size());
        // The parameters are the last balanced group of parentheses; " const" and its like may follow.
        const auto close = out.rfind(')');
        if (close == std::string::npos || out.find("::", close) != std::string::npos) {
            return out;
        }
        int depth = 0;
        for (std::size_t at = close + 1; at-- > 0;) {
            depth += out[at] == ')' ? 1 : out[at] == '(' ? -1 : 0;
            if (depth == 0) {
                out.resize(at);
                return out;
            }
        }
    }
    return text;
}

}  // namespace sampleblk::profile
