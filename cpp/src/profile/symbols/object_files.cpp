// SPDX-License-Identifier: MIT
#include "symbols/object_files.hpp"

#include <elf.h>
#include <sys/auxv.h>
#include <zlib.h>

#include <algorithm>

#include "sampleblk/error.hpp"
#include "sampleblk/profile/perf_file.hpp"

namespace sampleblk::profile {

namespace {

constexpr const char* kVdso = "[vdso]";

std::string cache_entry(const std::string& directory, const std::string& id) {
    return directory + "/.build-id/" + id.substr(0, 2) + "/" + id.substr(2);
}

std::uint32_t checksum(std::span<const std::byte> bytes) {
    return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::optional<MappedFile> try_map(const std::string& path) {
    try {
        return MappedFile(path);
    } catch (const SystemError&) {
        return std::nullopt;
    }
}

}  // namespace

std::span<const std::byte> own_vdso() noexcept {
    const auto* start = reinterpret_cast<const std::byte*>(getauxval(AT_SYSINFO_EHDR));
    if (start == nullptr) {
        return {};
    }
    // Its section headers are the last that is in it.
    const auto header = load<Elf64_Ehdr>(start);
    return {start, header.e_shoff + std::size_t{header.e_shnum} * header.e_shentsize};
}

std::optional<std::uint64_t> ObjectFile::address_of(std::uint64_t offset) const noexcept {
    if (!info) {
        return std::nullopt;
    }
    for (const ElfSegment& segment : info->executable) {
        if (offset >= segment.offset && offset - segment.offset < segment.size) {
            return offset - segment.offset + segment.address;
        }
    }
    return std::nullopt;
}

ObjectFiles::ObjectFiles(SymbolSources sources, std::map<std::string, std::string> build_ids)
    : sources_(std::move(sources)), build_ids_(std::move(build_ids)) {}

std::uint32_t ObjectFiles::number(const std::string& path, const std::string& build_id) {
    const std::string key = path + '\0' + build_id;
    if (const auto found = numbers_.find(key); found != numbers_.end()) {
        return found->second;
    }
    const auto number = static_cast<std::uint32_t>(files_.size());
    auto file = std::make_unique<ObjectFile>();
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

const ObjectFile& ObjectFiles::file(std::uint32_t number) {
    ObjectFile& file = *files_.at(number);
    if (!file.looked_for) {
        file.looked_for = true;
        look_for(file);
    }
    return file;
}

void ObjectFiles::look_for_vdso(ObjectFile& file) {
    if (file.build_id.size() > 2) {
        for (const std::string& directory : sources_.build_id_dirs) {
            auto mapping = try_map(cache_entry(directory, file.build_id) + "/vdso");
            auto info = mapping ? read_elf_info(mapping->bytes()) : std::nullopt;
            if (info && info->build_id == file.build_id) {
                file.mapping = std::move(*mapping);
                file.bytes = file.mapping.bytes();
                file.here = file.mapping.path();
                file.info = std::move(info);
                found_[file.path] = {file.build_id, file.here};
                return;
            }
        }
    }
    // Without a build id nothing says that the recording's was this one.
    auto info = read_elf_info(own_vdso());
    if (sources_.use_running_kernel && info && !file.build_id.empty() && info->build_id == file.build_id) {
        file.bytes = own_vdso();
        file.here = kVdso;
        file.info = std::move(info);
        found_[file.path] = {file.build_id, file.here};
    }
}

void ObjectFiles::look_for(ObjectFile& file) {
    if (file.path == kVdso) {
        look_for_vdso(file);
        return;
    }
    if (file.path.empty() || file.path[0] != '/' || file.path.starts_with("//anon") || file.path.starts_with("/dev/") ||
        file.path.starts_with("/memfd:") || file.path.starts_with("/SYSV")) {
        return;  // [heap], anonymous memory: no file that has symbols
    }
    std::vector<std::string> places;
    if (file.build_id.size() > 2) {
        for (const std::string& directory : sources_.build_id_dirs) {
            // What new ones have, and old ones' link to the file itself.
            places.push_back(cache_entry(directory, file.build_id) + "/elf");
            places.push_back(cache_entry(directory, file.build_id));
        }
    }
    if (sources_.use_paths) {
        places.push_back(sources_.root + file.path);
    }
    std::string why = sources_.use_paths || !places.empty() ? "the file is not here" : "no place to look for it";
    for (const std::string& place : places) {
        auto mapping = try_map(place);
        if (!mapping) {
            continue;
        }
        auto info = read_elf_info(mapping->bytes());
        if (!info) {
            why = place + " is not an ELF file of this machine";
        } else if (!file.build_id.empty() && info->build_id != file.build_id) {
            why = place + " has the build id " + (info->build_id.empty() ? "(none)" : info->build_id) + ", not " +
                  file.build_id;
        } else {
            file.mapping = std::move(*mapping);
            file.bytes = file.mapping.bytes();
            file.here = file.mapping.path();
            file.info = std::move(info);
            break;
        }
    }
    if (!file.info) {
        missing_[file.path] = why;
        return;
    }
    if (file.build_id.empty()) {
        unverified_.insert(file.path);
    }
    found_[file.path] = {file.info->build_id, file.here};
    look_for_debug(file);
}

// Separate debugging information has the local functions, and what was inlined.
void ObjectFiles::look_for_debug(ObjectFile& file) const {
    const ElfInfo info = file.info.value_or(ElfInfo{});
    if (info.has_symtab && info.has_dwarf) {
        return;
    }
    std::vector<std::string> places;
    if (info.build_id.size() > 2) {
        for (const std::string& directory : sources_.build_id_dirs) {
            places.push_back(cache_entry(directory, info.build_id) + "/debug");
        }
        places.push_back(sources_.root + "/usr/lib/debug/.build-id/" + info.build_id.substr(0, 2) + "/" +
                         info.build_id.substr(2) + ".debug");
    }
    if (!info.debug_link.empty() && info.debug_link.find('/') == std::string::npos) {
        const std::string folder = file.path.substr(0, file.path.rfind('/'));
        places.push_back(sources_.root + folder + "/" + info.debug_link);
        places.push_back(sources_.root + folder + "/.debug/" + info.debug_link);
        places.push_back(sources_.root + "/usr/lib/debug" + folder + "/" + info.debug_link);
    }
    for (const std::string& place : places) {
        const auto mapping = try_map(place);
        const auto its = mapping ? read_elf_info(mapping->bytes()) : std::nullopt;
        const bool more = its && ((its->has_symtab && !info.has_symtab) || (its->has_dwarf && !info.has_dwarf));
        if (more && (info.build_id.empty() ? checksum(mapping->bytes()) == info.debug_checksum
                                           : its->build_id == info.build_id)) {
            file.debug = place;
            return;
        }
    }
}

}  // namespace sampleblk::profile
