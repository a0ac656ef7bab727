// SPDX-License-Identifier: MIT
#include "symbols/inlines.hpp"

#include <dwarf.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>

#include "sampleblk/interrupt.hpp"
#include "sampleblk/text.hpp"
#include "symbols/dwarf_file.hpp"
#include "symbols/symbol_list.hpp"

namespace sampleblk::profile {

namespace {

// Where a unit's or a function's code is.
struct Range {
    std::uint64_t start;
    std::uint64_t end;
    std::uint64_t die;  // its offset in .debug_info
};

// A file can claim what it likes.
constexpr std::size_t kMostRanges = 4'000'000;
constexpr int kDeepest = 256;

void add_ranges(Dwarf_Die* die, std::vector<Range>& out) {
    std::ptrdiff_t at = 0;
    Dwarf_Addr base = 0;
    Dwarf_Addr start = 0;
    Dwarf_Addr end = 0;
    while ((at = dwarf_ranges(die, at, &base, &start, &end)) > 0 && out.size() < kMostRanges) {
        // What the linker threw away begins at 0.
        if (start != 0 && end > start) {
            out.push_back({start, end, dwarf_dieoffset(die)});
        }
    }
}

std::optional<std::uint64_t> find_in(const std::vector<Range>& ranges, std::uint64_t address) {
    const auto after = std::ranges::upper_bound(ranges, address, {}, &Range::start);
    if (after == ranges.begin()) {
        return std::nullopt;
    }
    const Range& last = *std::prev(after);
    return address < last.end ? std::optional(last.die) : std::nullopt;
}

void sort(std::vector<Range>& ranges) {
    std::ranges::sort(ranges, {}, &Range::start);
}

void add_functions(Dwarf_Die* parent, int depth, std::vector<Range>& out) {
    Dwarf_Die child;
    if (depth > kDeepest || dwarf_child(parent, &child) != 0) {
        return;
    }
    do {
        switch (dwarf_tag(&child)) {
            case DW_TAG_subprogram:
                add_ranges(&child, out);
                [[fallthrough]];  // what is local to it, such as a class's methods, has code of its own
            case DW_TAG_lexical_block:
            case DW_TAG_namespace:
            case DW_TAG_module:
            case DW_TAG_class_type:
            case DW_TAG_structure_type:
            case DW_TAG_union_type:
                add_functions(&child, depth + 1, out);
                break;
            default:
                break;
        }
    } while (dwarf_siblingof(&child, &child) == 0);
}

std::string name_of(Dwarf_Die* die) {
    Dwarf_Attribute attribute;
    for (const unsigned kind :
         {unsigned{DW_AT_linkage_name}, unsigned{DW_AT_MIPS_linkage_name}, unsigned{DW_AT_name}}) {
        if (dwarf_attr_integrate(die, kind, &attribute) != nullptr) {
            if (const char* text = dwarf_formstring(&attribute); text != nullptr) {
                return plain_text(demangle(text));
            }
        }
    }
    return "[inlined]";
}

// The inlined functions below `parent` at that address, outermost first.
void add_names(Dwarf_Die* parent, std::uint64_t address, std::vector<std::string>& out) {
    Dwarf_Die at = *parent;
    for (int depth = 0; depth < kDeepest; ++depth) {
        Dwarf_Die child;
        if (dwarf_child(&at, &child) != 0) {
            return;
        }
        bool found = false;
        do {
            const int tag = dwarf_tag(&child);
            found =
                (tag == DW_TAG_inlined_subroutine || tag == DW_TAG_lexical_block) && dwarf_haspc(&child, address) == 1;
            if (found && tag == DW_TAG_inlined_subroutine) {
                out.push_back(name_of(&child));
            }
        } while (!found && dwarf_siblingof(&child, &child) == 0);
        if (!found) {
            return;
        }
        at = child;
    }
}

}  // namespace

// One file's units, and the functions of those that were asked for.
struct InlineFinder::Functions {
    explicit Functions(const ObjectFile& file) : dwarf(file) {
        if (dwarf.get() == nullptr) {
            return;
        }
        Dwarf_CU* unit = nullptr;
        Dwarf_Die die;
        std::size_t since_check = 0;
        while (dwarf_get_units(dwarf.get(), unit, &unit, nullptr, nullptr, &die, nullptr) == 0) {
            if (++since_check % 1024 == 0) {
                check_interrupt();
            }
            if (dwarf_tag(&die) == DW_TAG_compile_unit) {
                add_ranges(&die, units);
            }
        }
        sort(units);
    }

    std::vector<std::string> at(std::uint64_t address) {
        std::vector<std::string> out;
        const auto unit = find_in(units, address);
        if (!unit) {
            return out;
        }
        const auto [known, fresh] = functions.try_emplace(*unit);
        Dwarf_Die die;
        if (fresh && dwarf_offdie(dwarf.get(), *unit, &die) != nullptr) {
            check_interrupt();
            add_functions(&die, 0, known->second);
            sort(known->second);
        }
        const auto function = find_in(known->second, address);
        if (function && dwarf_offdie(dwarf.get(), *function, &die) != nullptr) {
            add_names(&die, address, out);
            std::ranges::reverse(out);
        }
        return out;
    }

    DwarfFile dwarf;
    std::vector<Range> units;
    std::map<std::uint64_t, std::vector<Range>> functions;
};

InlineFinder::InlineFinder(ObjectFiles& objects) : objects_(objects) {}

InlineFinder::~InlineFinder() = default;

std::vector<std::string> InlineFinder::at(std::uint32_t number, std::uint64_t offset) {
    const ObjectFile& file = objects_.file(number);
    const auto address = file.address_of(offset);
    if (!address || !file.info || (!file.info->has_dwarf && file.debug.empty())) {
        return {};
    }
    if (number >= functions_.size()) {
        functions_.resize(number + std::size_t{1});
    }
    auto& functions = functions_[number];
    if (!functions) {
        functions = std::make_unique<Functions>(file);
    }
    return functions->at(*address);
}

}  // namespace sampleblk::profile
