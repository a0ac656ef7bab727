// SPDX-License-Identifier: MIT
#include "symbols/symbolizer.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include "sampleblk/error.hpp"
#include "sampleblk/kallsyms.hpp"
#include "sampleblk/mapping.hpp"
#include "symbols/elf_symbols.hpp"

namespace sampleblk::profile {

std::uint64_t kallsyms_address(std::string_view kallsyms, std::string_view name) {
    std::uint64_t found = 0;
    for_each_kallsyms_line(kallsyms, [&](const KallsymsLine& line) {
        if (line.name == name && line.module.empty()) {
            found = line.address;
            return false;
        }
        return true;
    });
    return found;
}

std::int32_t KernelSymbols::module_number(std::string_view name) {
    if (name.empty()) {
        return 0;
    }
    if (const auto found = numbers_.find(name); found != numbers_.end()) {
        return found->second;
    }
    const auto number = static_cast<std::int32_t>(modules_.size());
    modules_.emplace_back(name);
    numbers_.emplace(std::string(name), number);
    return number;
}

void KernelSymbols::loaded(std::string_view module, std::uint64_t start, std::uint64_t end) {
    const Loaded place{start, end, module_number(module)};
    loaded_.insert(std::ranges::upper_bound(loaded_, start, {}, &Loaded::start), place);
}

std::int32_t KernelSymbols::loaded_at(std::uint64_t address) const noexcept {
    // From 6.4 on a module's size has its data, which lie elsewhere: the next module's code may begin before its end.
    auto after = std::ranges::upper_bound(loaded_, address, {}, &Loaded::start);
    return after != loaded_.begin() && address < (--after)->end ? after->module : 0;
}

bool KernelSymbols::displaced(std::int32_t module, std::uint64_t address) const noexcept {
    const std::int32_t there = loaded_at(address);
    return there != 0 && there != module && std::ranges::find(loaded_, module, &Loaded::module) != loaded_.end();
}

void KernelSymbols::read(std::string_view kallsyms, std::uint64_t shift) {
    const std::vector<SymbolEntry> recorded(symbols_.entries().begin(), symbols_.entries().end());
    const auto elsewhere = [&](const KallsymsLine& line) {
        if (line.module.empty()) {
            return false;
        }
        if (line.module == "[bpf]" && std::ranges::any_of(recorded, [&](const SymbolEntry& program) {
                return line.address >= program.start && line.address < program.end;
            })) {
            return true;  // a later program, where the recording had that one
        }
        return shift != 0 || displaced(module_number(line.module), line.address);
    };
    for_each_kallsyms_line(kallsyms, [&](const KallsymsLine& line) {
        // symbol_type__filter(): code and data, no per-CPU offsets and constants.
        const int kind = std::toupper(static_cast<unsigned char>(line.type));
        if ((kind == 'T' || kind == 'W' || kind == 'D' || kind == 'B') && line.name[0] != '$' && line.address != 0 &&
            !elsewhere(line)) {
            const Binding binding = line.type == 'W'                                           ? Binding::weak
                                    : std::isupper(static_cast<unsigned char>(line.type)) != 0 ? Binding::global
                                                                                               : Binding::local;
            const std::uint64_t start = line.address + (line.module.empty() ? shift : 0);
            symbols_.add(start, start, line.name, binding, module_number(line.module));
        }
        return true;
    });
}

void KernelSymbols::add(std::uint64_t start, std::uint64_t end, std::string_view name, std::string_view module) {
    symbols_.add(start, end, name, Binding::global, module_number(module));
}

void KernelSymbols::replace(std::uint64_t start, std::uint64_t end, std::string name) {
    replaced_[start] = {end, std::move(name)};
}

void KernelSymbols::finish() {
    symbols_.finish(true);
}

Place KernelSymbols::find(std::uint64_t address) const {
    Place place;
    place.kind = FrameKind::kernel;
    place.key = address;
    place.module = modules_.front();
    if (auto after = replaced_.upper_bound(address); after != replaced_.begin() && address < (--after)->second.first) {
        place.key = after->first;
        place.symbol = after->second.second;
        return place;
    }
    // A module's last symbol would reach into what lies behind the module.
    if (const SymbolEntry* symbol = symbols_.find(address); symbol != nullptr && !displaced(symbol->group, address)) {
        place.symbol = symbols_.name(*symbol);
        place.key = symbol->start;
        place.module = modules_[static_cast<std::size_t>(symbol->group)];
        place.kind = symbol->group == 0 ? FrameKind::kernel : FrameKind::module;
    } else if (const std::int32_t module = loaded_at(address); module != 0) {
        place.module = modules_[static_cast<std::size_t>(module)];
        place.kind = FrameKind::module;
    }
    return place;
}

const SymbolList& UserSymbols::symbols(std::uint32_t number) {
    if (number >= symbols_.size()) {
        symbols_.resize(number + 1);
    }
    auto& known = symbols_[number];
    if (!known) {
        known = std::make_unique<SymbolList>();
        const ObjectFile& file = objects_.file(number);
        if (file.info) {
            const bool elsewhere = !file.info->has_symtab && !file.debug.empty();
            const MappedFile debug = elsewhere ? MappedFile(file.debug) : MappedFile();
            add_elf_symbols(debug.bytes(), file.info->executable, *known);
            if (known->empty()) {
                add_elf_symbols(file.bytes, file.info->executable, *known);
            }
            add_plt_symbols(file.bytes, file.info->executable, *known);
            debug.check();
            file.mapping.check();
            known->finish(false);
        }
    }
    return *known;
}

Place UserSymbols::find(std::uint32_t number, std::uint64_t offset) {
    Place place;
    place.kind = FrameKind::user;
    place.module = objects_.file(number).path;
    place.key = offset;
    const SymbolList& all = symbols(number);
    if (const SymbolEntry* symbol = all.find(offset); symbol != nullptr) {
        place.symbol = demangle(all.name(*symbol));
        place.key = symbol->start;
    }
    return place;
}

}  // namespace sampleblk::profile
