// SPDX-License-Identifier: MIT
#include "sampleblk/trace/symbols.hpp"

#include <algorithm>

#include "sampleblk/kallsyms.hpp"
#include "sampleblk/text.hpp"

namespace sampleblk::trace {

SymbolTable::SymbolTable(std::string_view all) {
    if (!is_utf8(all)) {
        readable_ = std::make_shared<const std::string>(printable(all));
        all = *readable_;
    }
    for_each_kallsyms_line(all, [&](const KallsymsLine& line) {
        if (!line.absolute()) {
            symbols_.push_back({line.address, line.name, line.module_name()});
        }
        return true;
    });
    // Of several names for one address the first in the file wins, as with the kernel's own lookup.
    std::ranges::stable_sort(symbols_, {}, &Symbol::address);
}

const Symbol* SymbolTable::find(std::uint64_t address) const noexcept {
    auto after = std::ranges::upper_bound(symbols_, address, {}, &Symbol::address);
    if (after == symbols_.begin()) {
        return nullptr;
    }
    --after;
    while (after != symbols_.begin() && std::prev(after)->address == after->address) {
        --after;
    }
    return &*after;
}

std::string SymbolTable::describe(std::uint64_t address, bool offset) const {
    const Symbol* found = find(address);
    if (found == nullptr) {
        return hex_number(address);
    }
    std::string out(found->name);
    if (offset && address != found->address) {
        out += "+" + hex_number(address - found->address);
    }
    return out;
}

}  // namespace sampleblk::trace
