// SPDX-License-Identifier: MIT
// Every name of /proc/kallsyms, code and data, both ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sampleblk::inspect {

struct KernelName {
    std::uint64_t address = 0;
    std::uint64_t size = 0;  // to the next name
    std::string_view name;
    std::string_view module;  // empty for the kernel itself
    bool global = false;
};

class KernelNames {
  public:
    // The text of a kallsyms file. Malformed lines are skipped.
    explicit KernelNames(std::string text);

    [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }
    // What `address` lies in; nullopt outside of everything.
    [[nodiscard]] std::optional<KernelName> find(std::uint64_t address) const;
    // All places of that name, in order of address: static ones may share it. Per-CPU variables have offsets for theirs
    // before Linux 6.15, which no address lies in.
    [[nodiscard]] std::vector<KernelName> find(std::string_view name) const;

  private:
    std::string text_;
    std::vector<KernelName> names_;  // by address
    std::unordered_multimap<std::string_view, KernelName> offsets_;
    std::unordered_multimap<std::string_view, std::size_t> by_name_;
};

}  // namespace sampleblk::inspect
