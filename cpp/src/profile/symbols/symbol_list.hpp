// SPDX-License-Identifier: MIT
// Functions by address, with perf's choices among several names for one place (symbols__fixup_duplicate() and
// symbols__fixup_end() of tools/perf/util/symbol.c), so that our totals by name are perf's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sampleblk::profile {

enum class Binding : std::uint8_t { local, weak, global };

struct SymbolEntry {
    std::uint64_t start = 0;
    std::uint64_t end = 0;  // the first address past it; `start` while its size is unknown
    std::uint32_t name = 0;
    std::uint32_t length = 0;
    std::int32_t group = 0;  // whatever the owner wants: a kernel module's number
    Binding binding = Binding::local;
};

class SymbolList {
  public:
    void add(std::uint64_t start, std::uint64_t end, std::string_view name, Binding binding, std::int32_t group = 0);
    // Sorts, keeps one name a place, and gives an end to what has none: where the next begins, or the page's end before
    // another group when `groups_apart`.
    void finish(bool groups_apart);

    [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
    [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
    [[nodiscard]] const SymbolEntry* find(std::uint64_t address) const noexcept;
    [[nodiscard]] std::string_view name(const SymbolEntry& entry) const noexcept {
        return std::string_view(names_).substr(entry.name, entry.length);
    }
    [[nodiscard]] const std::vector<SymbolEntry>& entries() const noexcept { return entries_; }

  private:
    [[nodiscard]] bool better(const SymbolEntry& a, const SymbolEntry& b) const noexcept;

    std::string names_;
    std::vector<SymbolEntry> entries_;
};

// A C++ or Rust name as people read it, without parameters as perf shows it; any other as it is.
[[nodiscard]] std::string demangle(std::string_view name);

}  // namespace sampleblk::profile
