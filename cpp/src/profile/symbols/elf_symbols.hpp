// SPDX-License-Identifier: MIT
// Functions of an ELF file by offset in the file: what a mapping's address becomes when its start is taken off and its
// page offset added. Only 64-bit files of this byte order; the reader trusts no number in them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "symbols/symbol_list.hpp"

namespace sampleblk::profile {

struct ElfSegment {
    std::uint64_t address;
    std::uint64_t offset;
    std::uint64_t size;
};

struct ElfInfo {
    std::string build_id;                // lower-case hex; empty when the file has none
    std::string debug_link;              // the .gnu_debuglink's file name
    std::uint32_t debug_checksum = 0;    // and what zlib's crc32() makes of that file
    std::vector<ElfSegment> executable;  // loaded segments that can be executed
    bool has_symtab = false;
    bool has_dwarf = false;  // .debug_info
};

// A build id's bytes as text, as everything here has it: lower-case hex.
[[nodiscard]] std::string build_id_text(std::span<const std::byte> bytes);
// And back, with zeros behind; of at most 20 bytes.
[[nodiscard]] std::array<std::uint8_t, 20> build_id_bytes(const std::string& id);

// The build id among ELF notes; empty when there is none.
[[nodiscard]] std::string build_id_in_notes(std::span<const std::byte> notes);

// That of a file; empty when it has none, or cannot be read.
[[nodiscard]] std::string build_id_of(const std::string& path);

// nullopt when the bytes are not an ELF file that we know. Never throws on what they contain.
[[nodiscard]] std::optional<ElfInfo> read_elf_info(std::span<const std::byte> bytes);

// Adds the functions of .symtab, else of .dynsym, and of the procedure linkage table ("write@plt"). Addresses become
// offsets through `segments`, those of the file that was mapped: a separate debug file has no use for its own.
void add_elf_symbols(std::span<const std::byte> bytes, const std::vector<ElfSegment>& segments, SymbolList& out);
void add_plt_symbols(std::span<const std::byte> bytes, const std::vector<ElfSegment>& segments, SymbolList& out);

}  // namespace sampleblk::profile
