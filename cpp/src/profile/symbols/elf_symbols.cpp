// SPDX-License-Identifier: MIT
#include "symbols/elf_symbols.hpp"

#include <elf.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "sampleblk/error.hpp"
#include "sampleblk/mapping.hpp"
#include "sampleblk/profile/perf_file.hpp"

namespace sampleblk::profile {

namespace {

// An ELF file's headers, every one of them checked against the file's size.
class ElfImage {
  public:
    static std::optional<ElfImage> of(std::span<const std::byte> bytes) {
        if (bytes.size() < sizeof(Elf64_Ehdr) || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0) {
            return std::nullopt;
        }
        ElfImage elf;
        elf.bytes_ = bytes;
        elf.header_ = load<Elf64_Ehdr>(bytes.data());
        const unsigned order = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
        if (elf.header_.e_ident[EI_CLASS] != ELFCLASS64 || elf.header_.e_ident[EI_DATA] != order) {
            return std::nullopt;
        }
        return elf;
    }

    template <typename T>
    [[nodiscard]] std::vector<T> table(std::uint64_t offset, std::uint64_t count, std::uint64_t entry_size) const {
        std::vector<T> out;
        if (entry_size != sizeof(T) || offset > bytes_.size() || count > (bytes_.size() - offset) / sizeof(T)) {
            return out;
        }
        out.resize(count);
        if (count != 0) {
            std::memcpy(out.data(), bytes_.data() + offset, count * sizeof(T));
        }
        return out;
    }
    [[nodiscard]] std::vector<Elf64_Shdr> sections() const {
        return table<Elf64_Shdr>(header_.e_shoff, header_.e_shnum, header_.e_shentsize);
    }
    [[nodiscard]] std::vector<Elf64_Phdr> segments() const {
        return table<Elf64_Phdr>(header_.e_phoff, header_.e_phnum, header_.e_phentsize);
    }
    [[nodiscard]] std::span<const std::byte> part(std::uint64_t offset, std::uint64_t size) const {
        if (offset > bytes_.size() || size > bytes_.size() - offset) {
            return {};
        }
        return bytes_.subspan(offset, size);
    }
    [[nodiscard]] std::span<const std::byte> part(const Elf64_Shdr& section) const {
        return section.sh_type == SHT_NOBITS ? std::span<const std::byte>{} : part(section.sh_offset, section.sh_size);
    }
    [[nodiscard]] std::string_view name_of(const std::vector<Elf64_Shdr>& sections, const Elf64_Shdr& section) const {
        return header_.e_shstrndx < sections.size() ? text_at(part(sections[header_.e_shstrndx]), section.sh_name)
                                                    : std::string_view{};
    }
    [[nodiscard]] static std::string_view text_at(std::span<const std::byte> strings, std::uint64_t offset) {
        if (offset >= strings.size()) {
            return {};
        }
        const std::string_view all(reinterpret_cast<const char*>(strings.data()), strings.size());
        const auto end = all.find('\0', offset);
        return end == std::string_view::npos ? std::string_view{} : all.substr(offset, end - offset);
    }
    [[nodiscard]] const Elf64_Ehdr& header() const noexcept { return header_; }

  private:
    std::span<const std::byte> bytes_;
    Elf64_Ehdr header_{};
};

std::optional<std::uint64_t> to_offset(const std::vector<ElfSegment>& segments, std::uint64_t address) {
    for (const ElfSegment& segment : segments) {
        if (address >= segment.address && address - segment.address < segment.size) {
            return address - segment.address + segment.offset;
        }
    }
    return std::nullopt;
}

// How far behind a stub's start the pointer lies that it jumps through: "[endbr64] [bnd] jmp *distance(%rip)".
std::optional<std::uint64_t> jump_through(std::span<const std::byte> stub) {
    constexpr std::string_view endbr64("\xf3\x0f\x1e\xfa", 4);
    constexpr std::string_view bnd("\xf2", 1);
    constexpr std::string_view jump("\xff\x25", 2);
    const std::string_view code(reinterpret_cast<const char*>(stub.data()), stub.size());
    std::size_t at = 0;
    for (const auto prefix : {endbr64, bnd}) {
        at += code.substr(at).starts_with(prefix) ? prefix.size() : 0;
    }
    constexpr std::size_t length = 6;
    if (!code.substr(at).starts_with(jump) || code.size() - at < length) {
        return std::nullopt;
    }
    const auto distance = static_cast<std::int64_t>(load<std::int32_t>(stub.data() + at + jump.size()));
    return at + length + static_cast<std::uint64_t>(distance);
}

}  // namespace

std::string build_id_text(std::span<const std::byte> bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (const std::byte byte : bytes) {
        text += digits[std::to_integer<unsigned>(byte) >> 4U];
        text += digits[std::to_integer<unsigned>(byte) & 15U];
    }
    return text;
}

std::array<std::uint8_t, 20> build_id_bytes(const std::string& id) {
    std::array<std::uint8_t, 20> bytes{};
    const auto digit = [](char c) { return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10); };
    for (std::size_t i = 0; i < bytes.size() && 2 * i + 1 < id.size(); ++i) {
        bytes.at(i) = static_cast<std::uint8_t>(digit(id[2 * i]) << 4U | digit(id[2 * i + 1]));
    }
    return bytes;
}

std::string build_id_of(const std::string& path) {
    try {
        const MappedFile mapped(path);
        const auto info = read_elf_info(mapped.bytes());
        return info ? info->build_id : std::string();
    } catch (const SystemError&) {
        return {};  // gone since, or of another mount namespace
    }
}

std::string build_id_in_notes(std::span<const std::byte> notes) {
    while (notes.size() >= sizeof(Elf64_Nhdr)) {
        const auto note = load<Elf64_Nhdr>(notes.data());
        const std::uint64_t name_room = (std::uint64_t{note.n_namesz} + 3) & ~3ULL;
        const std::uint64_t value_room = (std::uint64_t{note.n_descsz} + 3) & ~3ULL;
        if (name_room + value_room > notes.size() - sizeof(note)) {
            break;
        }
        const std::byte* name = notes.data() + sizeof(note);
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
            return build_id_text(std::span(name + name_room, std::min<std::uint32_t>(note.n_descsz, 20)));
        }
        notes = notes.subspan(sizeof(note) + name_room + value_room);
    }
    return {};
}

std::optional<ElfInfo> read_elf_info(std::span<const std::byte> bytes) {
    const auto elf = ElfImage::of(bytes);
    if (!elf) {
        return std::nullopt;
    }
    ElfInfo info;
    for (const Elf64_Phdr& segment : elf->segments()) {
        if (segment.p_type == PT_NOTE && info.build_id.empty()) {
            info.build_id = build_id_in_notes(elf->part(segment.p_offset, segment.p_filesz));
        }
        if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0) {
            info.executable.push_back({segment.p_vaddr, segment.p_offset, segment.p_memsz});
        }
    }
    const auto sections = elf->sections();
    for (const Elf64_Shdr& section : sections) {
        if (section.sh_type == SHT_NOTE && info.build_id.empty()) {
            info.build_id = build_id_in_notes(elf->part(section));
        }
        if (section.sh_type == SHT_SYMTAB) {
            info.has_symtab = true;
        }
        const auto name = elf->name_of(sections, section);
        if (name == ".gnu_debuglink") {
            const auto link = elf->part(section);
            const auto checksum_at = (ElfImage::text_at(link, 0).size() / 4 + 1) * 4;
            if (link.size() >= checksum_at + sizeof(info.debug_checksum)) {
                info.debug_link = ElfImage::text_at(link, 0);
                info.debug_checksum = load<std::uint32_t>(link.data() + checksum_at);
            }
        }
        if (name == ".debug_info" && section.sh_type != SHT_NOBITS) {
            info.has_dwarf = true;
        }
    }
    return info;
}

void add_elf_symbols(std::span<const std::byte> bytes, const std::vector<ElfSegment>& segments, SymbolList& out) {
    const auto elf = ElfImage::of(bytes);
    if (!elf) {
        return;
    }
    const auto sections = elf->sections();
    const auto of_type = [&](std::uint32_t type) { return std::ranges::find(sections, type, &Elf64_Shdr::sh_type); };
    auto found = of_type(SHT_SYMTAB);
    if (found == sections.end()) {
        found = of_type(SHT_DYNSYM);
    }
    if (found == sections.end() || found->sh_link >= sections.size() || found->sh_entsize != sizeof(Elf64_Sym)) {
        return;
    }
    const auto strings = elf->part(sections[found->sh_link]);
    const auto table = elf->part(*found);
    for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= table.size(); at += sizeof(Elf64_Sym)) {
        const auto symbol = load<Elf64_Sym>(table.data() + at);
        const auto type = ELF64_ST_TYPE(symbol.st_info);
        const bool function = type == STT_FUNC || type == STT_GNU_IFUNC;
        // Assembly's labels have no type; those of the text are functions, the hidden ones are not for people.
        const bool label = type == STT_NOTYPE && ELF64_ST_VISIBILITY(symbol.st_other) != STV_HIDDEN &&
                           ELF64_ST_VISIBILITY(symbol.st_other) != STV_INTERNAL && symbol.st_shndx < sections.size() &&
                           (sections[symbol.st_shndx].sh_flags & SHF_EXECINSTR) != 0;
        if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS || !(function || label)) {
            continue;
        }
        const auto name = ElfImage::text_at(strings, symbol.st_name);
        const auto offset = to_offset(segments, symbol.st_value);
        if (name.empty() || !offset) {
            continue;
        }
        const auto bind = ELF64_ST_BIND(symbol.st_info);
        const Binding binding = bind == STB_WEAK     ? Binding::weak
                                : bind == STB_GLOBAL ? Binding::global
                                                     : Binding::local;
        const std::uint64_t size = std::min<std::uint64_t>(symbol.st_size, ~0ULL - *offset);
        out.add(*offset, *offset + size, name, binding);
    }
}

// A stub is told by the slot of the global offset table that it jumps through, and the slot by its relocation: linkers
// put stubs in an order of their own, and .plt.got has none in .rela.plt.
void add_plt_symbols(std::span<const std::byte> bytes, const std::vector<ElfSegment>& segments, SymbolList& out) {
    const auto elf = ElfImage::of(bytes);
    if (!elf || elf->header().e_machine != EM_X86_64) {
        return;
    }
    const auto sections = elf->sections();
    std::unordered_map<std::uint64_t, std::string_view> slots;
    for (const Elf64_Shdr& section : sections) {
        if (section.sh_type != SHT_RELA || section.sh_link >= sections.size() ||
            sections[section.sh_link].sh_link >= sections.size()) {
            continue;
        }
        const auto relocations = elf->part(section);
        const auto symbols = elf->part(sections[section.sh_link]);
        const auto names = elf->part(sections[sections[section.sh_link].sh_link]);
        for (std::size_t at = 0; at + sizeof(Elf64_Rela) <= relocations.size(); at += sizeof(Elf64_Rela)) {
            const auto slot = load<Elf64_Rela>(relocations.data() + at);
            const auto type = ELF64_R_TYPE(slot.r_info);
            const std::uint64_t number = ELF64_R_SYM(slot.r_info);
            if ((type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) ||
                number >= symbols.size() / sizeof(Elf64_Sym)) {
                continue;
            }
            const auto symbol = load<Elf64_Sym>(symbols.data() + number * sizeof(Elf64_Sym));
            if (const auto name = ElfImage::text_at(names, symbol.st_name); !name.empty()) {
                slots.emplace(slot.r_offset, name);
            }
        }
    }
    for (const Elf64_Shdr& section : sections) {
        const auto section_name = elf->name_of(sections, section);
        if (section_name != ".plt" && section_name != ".plt.sec" && section_name != ".plt.got") {
            continue;
        }
        const auto code = elf->part(section);
        // Some linkers leave it 0; without endbr64 a stub of .plt.got takes 8 bytes.
        const std::uint64_t entry = section.sh_entsize == 8 ? 8 : 16;
        for (std::uint64_t at = 0; at + entry <= code.size(); at += entry) {
            const auto to_slot = jump_through(code.subspan(at, entry));
            if (!to_slot) {
                continue;  // what resolves the others
            }
            const std::uint64_t address = section.sh_addr + at;
            const auto found = slots.find(address + *to_slot);
            if (const auto offset = to_offset(segments, address); offset && found != slots.end()) {
                const std::uint64_t end = *offset + std::min<std::uint64_t>(entry, ~0ULL - *offset);
                out.add(*offset, end, demangle(found->second) + "@plt", Binding::global);
            }
        }
    }
}

}  // namespace sampleblk::profile
