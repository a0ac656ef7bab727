// SPDX-License-Identifier: MIT
#include "perf/record_maker.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <sstream>

#include "perf/machine.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/interrupt.hpp"
#include "symbols/elf_symbols.hpp"
#include "symbols/symbolizer.hpp"

namespace sampleblk::profile {

namespace {

using BuildIds = std::map<std::string, std::string>;

// "7f12-7f34 r-xp 00001000 08:01 1234   /usr/lib/x.so" -> MMAP2. `known` has the build ids by device, inode and path:
// in another mount namespace a path may be another file's.
void map_record(const std::string& line, std::int32_t pid, bool data, const TakeRecord& take, std::size_t trailer_bytes,
                BuildIds& files, BuildIds& known) {
    std::istringstream in(line);
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    std::uint64_t offset = 0;
    std::uint64_t inode = 0;
    std::uint32_t major_number = 0;
    std::uint32_t minor_number = 0;
    char dash = 0;
    char colon = 0;
    std::string protection;
    in >> std::hex >> start >> dash >> end >> protection >> offset >> std::ws;
    const auto file_at = static_cast<std::size_t>(std::max<std::streamoff>(in.tellg(), 0));
    in >> major_number >> colon >> minor_number >> std::dec >> inode;
    if (!in || protection.size() < 4) {
        return;
    }
    const bool code = protection[2] == 'x';
    const bool wanted_data = data && protection[0] == 'r';
    if (!code && !wanted_data) {
        return;
    }
    std::string path;
    std::getline(in >> std::ws, path);
    if (path.empty()) {
        path = "//anon";
    }
    std::string id;
    constexpr std::string_view deleted = " (deleted)";
    if (code && path[0] == '/' && !path.ends_with(deleted) && !path.starts_with("//anon")) {
        const auto [found, is_new] = known.try_emplace(line.substr(file_at));
        if (is_new) {
            found->second = build_id_of(path_in_process(pid, path));
        }
        id = found->second;
        files.try_emplace(path, id);
    }
    std::uint32_t bits = 0;
    bits |= protection[0] == 'r' ? 1U : 0U;
    bits |= protection[1] == 'w' ? 2U : 0U;
    bits |= code ? 4U : 0U;
    RecordMaker record(PERF_RECORD_MMAP2,
                       static_cast<std::uint16_t>(PERF_RECORD_MISC_USER | (code ? 0 : PERF_RECORD_MISC_MMAP_DATA) |
                                                  (id.empty() ? 0 : PERF_RECORD_MISC_MMAP_BUILD_ID)));
    record.put(pid).put(pid).put(start).put(end - start).put(offset);
    if (id.empty()) {
        record.put(major_number).put(minor_number).put(inode).put(std::uint64_t{0});
    } else {
        const auto bytes = build_id_bytes(id);
        record.put(static_cast<std::uint32_t>(id.size() / 2)).put_bytes(bytes.data(), bytes.size());
    }
    record.put(bits).put(std::uint32_t{protection[3] == 's' ? 1U : 2U}).put_text(path);
    take(record.finish(trailer_bytes));
}

}  // namespace

RecordMaker::RecordMaker(std::uint32_t type, std::uint16_t misc) {
    const perf_event_header header{type, misc, 0};
    put_bytes(&header, sizeof(header));
}

RecordMaker& RecordMaker::put_bytes(const void* data, std::size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
    return *this;
}

RecordMaker& RecordMaker::put_text(std::string_view text) {
    put_bytes(text.data(), text.size());
    bytes_.resize((bytes_.size() / 8 + 1) * 8);
    return *this;
}

std::vector<std::byte> RecordMaker::finish(std::size_t trailer_bytes) {
    bytes_.resize((bytes_.size() + 7) / 8 * 8 + trailer_bytes);
    const auto size = static_cast<std::uint16_t>(bytes_.size());
    std::memcpy(bytes_.data() + offsetof(perf_event_header, size), &size, sizeof(size));
    const auto bytes = std::as_bytes(std::span(bytes_));
    return {bytes.begin(), bytes.end()};
}

void make_kernel_records(const TakeRecord& take, std::size_t trailer_bytes) {
    std::string kallsyms;
    try {
        kallsyms = read_file("/proc/kallsyms");
    } catch (const SystemError&) {
        return;
    }
    const std::uint64_t text = kallsyms_address(kallsyms, "_text");
    const std::uint64_t end = kallsyms_address(kallsyms, "_etext");
    if (text == 0 || end <= text) {
        return;
    }
    const auto record = [&](std::uint64_t start, std::uint64_t size, std::uint64_t offset, const std::string& name) {
        RecordMaker maker(PERF_RECORD_MMAP, PERF_RECORD_MISC_KERNEL);
        maker.put(std::int32_t{-1}).put(std::int32_t{0}).put(start).put(size).put(offset).put_text(name);
        take(maker.finish(trailer_bytes));
    };
    record(text, end - text, text, "[kernel.kallsyms]_text");
    std::istringstream modules;
    try {
        modules.str(read_file("/proc/modules"));
    } catch (const SystemError&) {
        return;  // a kernel without modules
    }
    std::string line;
    while (std::getline(modules, line)) {
        std::istringstream in(line);
        std::string name;
        std::string skip;
        std::uint64_t size = 0;
        std::uint64_t address = 0;
        in >> name >> size >> skip >> skip >> skip >> std::hex >> address;
        if (!name.empty() && address != 0) {
            std::string shown = "[";
            shown.append(name).append("]");
            record(address, size, 0, shown);
        }
    }
}

void make_process_records(const std::vector<std::int32_t>& pids, bool data, const TakeRecord& take,
                          std::size_t trailer_bytes, std::map<std::string, std::string>& files) {
    const auto all = pids.empty() ? numbers_in("/proc") : pids;
    BuildIds known;
    for (const std::int32_t pid : all) {
        check_interrupt();
        const std::string directory = "/proc/" + std::to_string(pid);
        try {
            const std::int32_t parent = parent_of(directory);
            for (const std::int32_t tid : numbers_in(directory + "/task")) {
                // FORK_EXEC: a child's mappings are its own, not its parent's of now.
                RecordMaker fork(PERF_RECORD_FORK, PERF_RECORD_MISC_FORK_EXEC);
                const std::int32_t above = tid == pid ? parent : pid;
                fork.put(pid).put(above).put(tid).put(above).put(std::uint64_t{0});
                take(fork.finish(trailer_bytes));
                std::string comm = read_file(directory + "/task/" + std::to_string(tid) + "/comm");
                if (comm.ends_with('\n')) {
                    comm.pop_back();
                }
                RecordMaker name(PERF_RECORD_COMM, 0);
                name.put(pid).put(tid).put_text(comm);
                take(name.finish(trailer_bytes));
            }
            std::istringstream maps(read_file(directory + "/maps"));
            std::string line;
            while (std::getline(maps, line)) {
                map_record(line, pid, data, take, trailer_bytes, files, known);
            }
        } catch (const SystemError& error) {
            if (error.code() != ENOENT && error.code() != ESRCH && error.code() != EACCES && error.code() != EPERM) {
                throw;
            }
        }
    }
}

}  // namespace sampleblk::profile
