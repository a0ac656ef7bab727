// SPDX-License-Identifier: MIT
// The files that a recording's processes had mapped, found on this machine: by build id in caches as perf keeps them,
// else where they were, and only if they are the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sampleblk/mapping.hpp"
#include "sampleblk/profile/profile.hpp"
#include "symbols/elf_symbols.hpp"

namespace sampleblk::profile {

struct ObjectFile {
    std::string path;      // as recorded
    std::string build_id;  // as recorded, lower-case hex; empty where the recording does not say
    bool looked_for = false;
    std::optional<ElfInfo> info;  // none: not found
    std::string here;             // its path on this machine; "[vdso]" is the one of this process
    std::string debug;            // a separate file with its .symtab or .debug_info; empty: none found
    MappedFile mapping;
    std::span<const std::byte> bytes;

    // Where an offset in the file is when it is loaded at its own addresses.
    [[nodiscard]] std::optional<std::uint64_t> address_of(std::uint64_t offset) const noexcept;
};

class ObjectFiles {
  public:
    ObjectFiles(SymbolSources sources, std::map<std::string, std::string> build_ids);

    // A number for the file, for caches.
    [[nodiscard]] std::uint32_t number(const std::string& path, const std::string& build_id);
    // Looked for when first asked.
    [[nodiscard]] const ObjectFile& file(std::uint32_t number);
    // Files that were asked for and not found, and why.
    [[nodiscard]] const std::map<std::string, std::string>& missing() const noexcept { return missing_; }
    // Those that lay where they were when recording, of which no build id says that they are the same.
    [[nodiscard]] const std::set<std::string>& unverified() const noexcept { return unverified_; }
    // Those that were found: recorded path -> (build id, path here).
    [[nodiscard]] const std::map<std::string, std::pair<std::string, std::string>>& found() const noexcept {
        return found_;
    }

  private:
    void look_for(ObjectFile& file);
    void look_for_vdso(ObjectFile& file);
    void look_for_debug(ObjectFile& file) const;

    SymbolSources sources_;
    std::map<std::string, std::string> build_ids_;
    std::vector<std::unique_ptr<ObjectFile>> files_;
    std::unordered_map<std::string, std::uint32_t> numbers_;
    std::map<std::string, std::string> missing_;
    std::set<std::string> unverified_;
    std::map<std::string, std::pair<std::string, std::string>> found_;
};

}  // namespace sampleblk::profile
