// SPDX-License-Identifier: MIT
// Addresses of a recording to functions: the kernel's through a kallsyms file, a program's through the ELF files that
// it had mapped, found by build id wherever the analysis runs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sampleblk/profile/profile.hpp"
#include "symbols/object_files.hpp"
#include "symbols/symbol_list.hpp"

namespace sampleblk::profile {

// The name of a place in code.
struct Place {
    std::string module;     // "[kernel.kallsyms]", "[ext4]", "/usr/bin/fio", "[unknown]"
    std::string symbol;     // empty when unknown
    std::uint64_t key = 0;  // the function's start, or the address itself when unknown
    FrameKind kind = FrameKind::unknown;
};

class KernelSymbols {
  public:
    // Where a module ("[ext4]") lay while recording. To be told before read().
    void loaded(std::string_view module, std::uint64_t start, std::uint64_t end);
    // Reads a kallsyms text. `shift` is added to every address of the kernel itself: another boot's KASLR. Its modules
    // lay elsewhere then, and are left out, as is what lies where another module was loaded.
    void read(std::string_view kallsyms, std::uint64_t shift);
    // What the recording itself names, such as a BPF program; before read(), whose names of that place are of another
    // time.
    void add(std::uint64_t start, std::uint64_t end, std::string_view name, std::string_view module);
    void finish();
    // What lies there from now on: the kernel uses the place of a program that is gone for another.
    void replace(std::uint64_t start, std::uint64_t end, std::string name);
    [[nodiscard]] bool empty() const noexcept { return symbols_.empty(); }
    [[nodiscard]] Place find(std::uint64_t address) const;

  private:
    struct Loaded {
        std::uint64_t start = 0;
        std::uint64_t end = 0;
        std::int32_t module = 0;
    };
    [[nodiscard]] std::int32_t module_number(std::string_view name);
    // The module that was loaded there; 0: none that is known.
    [[nodiscard]] std::int32_t loaded_at(std::uint64_t address) const noexcept;
    // Whether another module lay there, and this one elsewhere.
    [[nodiscard]] bool displaced(std::int32_t module, std::uint64_t address) const noexcept;

    SymbolList symbols_;
    std::map<std::uint64_t, std::pair<std::uint64_t, std::string>> replaced_;  // start -> end and name
    std::vector<Loaded> loaded_;                                               // sorted by start
    std::vector<std::string> modules_{"[kernel.kallsyms]"};
    std::map<std::string, std::int32_t, std::less<>> numbers_;
};

// The address of `name` in a kallsyms text; 0 when it is missing or hidden (kptr_restrict).
[[nodiscard]] std::uint64_t kallsyms_address(std::string_view kallsyms, std::string_view name);

// Mapped files' symbols, each file's read when first asked for.
class UserSymbols {
  public:
    explicit UserSymbols(ObjectFiles& objects) : objects_(objects) {}

    [[nodiscard]] Place find(std::uint32_t file, std::uint64_t offset);

  private:
    [[nodiscard]] const SymbolList& symbols(std::uint32_t file);

    ObjectFiles& objects_;
    std::vector<std::unique_ptr<SymbolList>> symbols_;
};

}  // namespace sampleblk::profile
