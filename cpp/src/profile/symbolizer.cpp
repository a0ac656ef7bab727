// SPDX-License-Identifier: MIT
#include "symbolizer.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>

#include "elf_symbols.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/interrupt.hpp"

namespace sampleblk::profile {

namespace {

struct KallsymsLine {
    std::uint64_t address = 0;
    char type = 0;
    std::string_view name;
    std::string_view module;
};

// Calls `take` for each line until it returns false.
template <typename Take>
void each_line(std::string_view text, Take&& take) {
    std::size_t at = 0;
    std::size_t lines = 0;
    while (at < text.size()) {
        std::size_t end = text.find('\n', at);
        end = end == std::string_view::npos ? text.size() : end;
        const auto line = text.substr(at, end - at);
        at = end + 1;
        if (++lines % 65536 == 0) {
            check_interrupt();
        }
        KallsymsLine out;
        const auto [after, code] = std::from_chars(line.data(), line.data() + line.size(), out.address, 16);
        const auto used = static_cast<std::size_t>(after - line.data());
        if (code != std::errc() || used + 3 >= line.size() || line[used] != ' ') {
            continue;
        }
        out.type = line[used + 1];
        const auto rest = line.substr(used + 3);
        const auto tab = rest.find('\t');
        out.name = rest.substr(0, tab);
        while (!out.name.empty() && out.name.back() == ' ') {
            out.name.remove_suffix(1);
        }
        if (tab != std::string_view::npos) {
            const auto open = rest.find('[', tab);
            const auto close = rest.find(']', tab);
            if (open != std::string_view::npos && close != std::string_view::npos && close > open) {
                out.module = rest.substr(open, close - open + 1);
            }
        }
        if (!take(out)) {
            return;
        }
    }
}

// Build-id directories as perf keeps them: DIR/.build-id/ab/cdef…/elf, and its link to a file for old ones.
std::vector<std::string> cache_places(const std::string& directory, const std::string& id) {
    if (id.size() < 3) {
        return {};
    }
    const std::string base = directory + "/.build-id/" + id.substr(0, 2) + "/" + id.substr(2);
    return {base + "/elf", base};
}

}  // namespace

std::uint64_t kallsyms_address(std::string_view kallsyms, std::string_view name) {
    std::uint64_t found = 0;
    each_line(kallsyms, [&](const KallsymsLine& line) {
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

void KernelSymbols::read(std::string_view kallsyms, std::uint64_t shift) {
    each_line(kallsyms, [&](const KallsymsLine& line) {
        // symbol_type__filter(): code and data, no per-CPU offsets and constants.
        const int kind = std::toupper(static_cast<unsigned char>(line.type));
        if ((kind == 'T' || kind == 'W' || kind == 'D' || kind == 'B') && !line.name.empty() && line.name[0] != '$' &&
            line.address != 0) {
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

void KernelSymbols::finish() {
    symbols_.finish(true);
}

Place KernelSymbols::find(std::uint64_t address) const {
    Place place;
    place.kind = FrameKind::kernel;
    place.key = address;
    place.module = modules_.front();
    if (const SymbolEntry* symbol = symbols_.find(address); symbol != nullptr) {
        place.symbol = symbols_.name(*symbol);
        place.key = symbol->start;
        place.module = modules_[static_cast<std::size_t>(symbol->group)];
        place.kind = symbol->group == 0 ? FrameKind::kernel : FrameKind::module;
    }
    return place;
}

UserSymbols::UserSymbols(const SymbolSources& sources, std::map<std::string, std::string> build_ids)
    : sources_(sources), build_ids_(std::move(build_ids)) {}

std::uint32_t UserSymbols::file_number(const std::string& path, const std::string& build_id) {
    const std::string key = path + '\0' + build_id;
    if (const auto found = numbers_.find(key); found != numbers_.end()) {
        return found->second;
    }
    const auto number = static_cast<std::uint32_t>(files_.size());
    auto file = std::make_unique<File>();
    file->path = path;
    file->build_id = build_id;
    if (file->build_id.empty()) {
        if (const auto known = build_ids_.find(path); known != build_ids_.end()) {
            file->build_id = known->second;
        }
    }
    files_.push_back(std::move(file));
    numbers_.emplace(key, number);
    return number;
}

void UserSymbols::load(File& file) {
    file.loaded = true;
    if (file.path.empty() || file.path[0] != '/' || file.path.starts_with("//anon") || file.path.starts_with("/dev/") ||
        file.path.starts_with("/memfd:") || file.path.starts_with("/SYSV")) {
        return;  // [vdso], [heap], anonymous memory: no file that has symbols
    }
    std::vector<std::string> places;
    for (const std::string& directory : sources_.build_id_dirs) {
        for (std::string& place : cache_places(directory, file.build_id)) {
            places.push_back(std::move(place));
        }
    }
    if (sources_.use_paths) {
        places.push_back(sources_.root + file.path);
    }
    std::string why = sources_.use_paths || !places.empty() ? "the file is not here" : "no place to look for it";
    MappedFile elf;
    std::optional<ElfInfo> info;
    for (const std::string& place : places) {
        try {
            elf = MappedFile(place);
        } catch (const SystemError&) {
            continue;
        }
        info = read_elf_info(elf.bytes());
        if (!info) {
            why = place + " is no ELF file of this machine";
        } else if (!file.build_id.empty() && info->build_id != file.build_id) {
            why = place + " has the build id " + (info->build_id.empty() ? "(none)" : info->build_id) + ", not " +
                  file.build_id;
            info.reset();
        } else {
            break;
        }
    }
    if (!info) {
        missing_[file.path] = why;
        return;
    }
    found_[file.path] = {info->build_id, elf.path()};
    // Separate debugging information has the local functions too.
    MappedFile debug;
    bool has_debug = false;
    if (!info->has_symtab) {
        std::vector<std::string> debug_places;
        if (info->build_id.size() > 2) {
            for (const std::string& directory : sources_.build_id_dirs) {
                std::string place = directory;
                place.append("/.build-id/").append(info->build_id, 0, 2).append("/").append(info->build_id, 2);
                debug_places.push_back(place + "/debug");
            }
            debug_places.push_back(sources_.root + "/usr/lib/debug/.build-id/" + info->build_id.substr(0, 2) + "/" +
                                   info->build_id.substr(2) + ".debug");
        }
        if (!info->debug_link.empty() && info->debug_link.find('/') == std::string::npos) {
            const std::string folder = file.path.substr(0, file.path.rfind('/'));
            debug_places.push_back(sources_.root + folder + "/" + info->debug_link);
            debug_places.push_back(sources_.root + folder + "/.debug/" + info->debug_link);
            debug_places.push_back(sources_.root + "/usr/lib/debug" + folder + "/" + info->debug_link);
        }
        for (const std::string& place : debug_places) {
            try {
                debug = MappedFile(place);
            } catch (const SystemError&) {
                continue;
            }
            const auto its = read_elf_info(debug.bytes());
            has_debug = its && its->has_symtab && (info->build_id.empty() || its->build_id == info->build_id);
            if (has_debug) {
                break;
            }
        }
    }
    add_elf_symbols(has_debug ? debug.bytes() : elf.bytes(), info->executable, file.symbols);
    add_plt_symbols(elf.bytes(), info->executable, file.symbols);
    file.symbols.finish(false);
}

Place UserSymbols::find(std::uint32_t number, std::uint64_t offset) {
    File& file = *files_.at(number);
    if (!file.loaded) {
        load(file);
    }
    Place place;
    place.kind = FrameKind::user;
    place.module = file.path;
    place.key = offset;
    if (const SymbolEntry* symbol = file.symbols.find(offset); symbol != nullptr) {
        place.symbol = demangle(file.symbols.name(*symbol));
        place.key = symbol->start;
    }
    return place;
}

}  // namespace sampleblk::profile
