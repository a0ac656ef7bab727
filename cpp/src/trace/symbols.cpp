// SPDX-License-Identifier: MIT
#include "sampleblk/trace/symbols.hpp"

#include <algorithm>
#include <charconv>

#include "sampleblk/printable.hpp"

namespace sampleblk::trace {

namespace {

std::string hex(std::uint64_t value) {
    char buffer[17];
    const auto [end, code] = std::to_chars(buffer, buffer + sizeof(buffer), value, 16);
    (void)code;
    return "0x" + std::string(buffer, end);
}

}  // namespace

SymbolTable::SymbolTable(std::string_view all) {
    if (!is_utf8(all)) {
        readable_ = std::make_shared<const std::string>(printable(all));
        all = *readable_;
    }
    std::size_t at = 0;
    while (at < all.size()) {
        std::size_t end = all.find('\n', at);
        end = end == std::string_view::npos ? all.size() : end;
        const auto line = all.substr(at, end - at);
        at = end + 1;
        Symbol symbol;
        const auto [after, code] = std::from_chars(line.data(), line.data() + line.size(), symbol.address, 16);
        const auto used = static_cast<std::size_t>(after - line.data());
        if (code != std::errc() || used + 3 > line.size() || line[used] != ' ') {
            continue;
        }
        // Absolute symbols ('a', 'A') are per-CPU offsets and constants, not places in code.
        const char type = line[used + 1];
        if (type == 'a' || type == 'A') {
            continue;
        }
        auto rest = line.substr(used + 3);
        const auto tab = rest.find('\t');
        symbol.name = rest.substr(0, tab);
        if (tab != std::string_view::npos) {
            const auto open = rest.find('[', tab);
            const auto close = rest.find(']', tab);
            if (open != std::string_view::npos && close != std::string_view::npos && close > open) {
                symbol.module = rest.substr(open + 1, close - open - 1);
            }
        }
        if (!symbol.name.empty()) {
            symbols_.push_back(symbol);
        }
    }
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
        return hex(address);
    }
    std::string out(found->name);
    if (offset && address != found->address) {
        out += "+" + hex(address - found->address);
    }
    return out;
}

}  // namespace sampleblk::trace
