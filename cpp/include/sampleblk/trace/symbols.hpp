// SPDX-License-Identifier: MIT
// Kernel addresses to names, as /proc/kallsyms of the traced machine had them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sampleblk::trace {

struct Symbol {
    std::uint64_t address = 0;
    std::string_view name;
    std::string_view module;  // empty for the kernel itself
};

class SymbolTable {
  public:
    SymbolTable() = default;
    // Lines of "ADDRESS TYPE NAME[\t[MODULE]]"; what is no such line is passed over. The names point into `text`,
    // which must outlive the table.
    explicit SymbolTable(std::string_view text);

    [[nodiscard]] std::size_t size() const noexcept { return symbols_.size(); }
    // The symbol that `address` lies in; nullptr below the first and where there are none.
    [[nodiscard]] const Symbol* find(std::uint64_t address) const noexcept;
    // "name", or "0x…" where there is none; with "+0xN" past the start when `offset` is asked for.
    [[nodiscard]] std::string describe(std::uint64_t address, bool offset = false) const;

  private:
    std::shared_ptr<const std::string> readable_;  // the text, where that is not UTF-8
    std::vector<Symbol> symbols_;
};

}  // namespace sampleblk::trace
