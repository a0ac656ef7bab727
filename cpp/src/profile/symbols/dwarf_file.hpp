// SPDX-License-Identifier: MIT
// libdw's handles on a mapped file, freed as they must be.
#pragma once

#include <elfutils/libdw.h>
#include <libelf.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sampleblk/fd.hpp"
#include "symbols/object_files.hpp"

namespace sampleblk::profile {

struct EndCfi {
    void operator()(Dwarf_CFI* cfi) const noexcept { dwarf_cfi_end(cfi); }
};
using CfiHandle = std::unique_ptr<Dwarf_CFI, EndCfi>;

// A file for libdw; get() is nullptr when it is not an ELF file. It is opened again, for libelf decompresses sections
// in place, and our own mappings are read-only.
class ElfFile {
  public:
    ElfFile() = default;
    explicit ElfFile(const std::string& path) : fd_(open_file(path, O_RDONLY)) {
        (void)elf_version(EV_CURRENT);
        elf_.reset(elf_begin(fd_.get(), ELF_C_READ_MMAP, nullptr));
    }
    explicit ElfFile(std::span<const std::byte> bytes) : copy_(bytes.begin(), bytes.end()) {
        (void)elf_version(EV_CURRENT);
        elf_.reset(elf_memory(reinterpret_cast<char*>(copy_.data()), copy_.size()));
    }
    // Of what is mapped there, which may be no file but the vDSO.
    [[nodiscard]] static ElfFile of(const ObjectFile& file) {
        return file.here.starts_with('/') ? ElfFile(file.here) : ElfFile(file.bytes);
    }
    [[nodiscard]] Elf* get() const noexcept { return elf_.get(); }

  private:
    struct End {
        void operator()(Elf* elf) const noexcept { elf_end(elf); }
    };

    Fd fd_;
    std::vector<std::byte> copy_;
    std::unique_ptr<Elf, End> elf_;
};

// The DWARF of a file, or of the separate file that has it. Nothing is open where there is none.
class DwarfFile {
  public:
    explicit DwarfFile(const ObjectFile& file) {
        if (!file.info) {
            return;
        }
        const bool apart = !file.debug.empty() && !file.info->has_dwarf;
        elf_ = apart ? ElfFile(file.debug) : ElfFile::of(file);
        if (elf_.get() != nullptr) {
            dwarf_.reset(dwarf_begin_elf(elf_.get(), DWARF_C_READ, nullptr));
        }
    }
    [[nodiscard]] Dwarf* get() const noexcept { return dwarf_.get(); }

  private:
    struct End {
        void operator()(Dwarf* dwarf) const noexcept { dwarf_end(dwarf); }
    };

    ElfFile elf_;
    std::unique_ptr<Dwarf, End> dwarf_;
};

}  // namespace sampleblk::profile
