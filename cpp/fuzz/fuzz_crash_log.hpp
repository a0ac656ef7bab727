// SPDX-License-Identifier: MIT
// What the crash-log fuzzer does with one input; a test replays the corpus through it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "sampleblk/crash/names.hpp"
#include "sampleblk/crash/walk.hpp"
#include "sampleblk/error.hpp"
#include "scratch.hpp"

namespace sampleblk::crash {

// All that names() says of a log is about the whole of each write.
inline void name_all(const Log& log, const std::string& base) {
    const Names names(log, base);
    for (std::uint32_t write = 0; write < log.writes().size(); ++write) {
        std::uint64_t next = 0;
        for (const Name& name : names.of(write)) {
            if (name.first != next || name.sectors == 0 || name.text.empty()) {
                __builtin_trap();
            }
            next += name.sectors;
        }
        if (next != 0 && next != log.writes()[write].sectors()) {
            __builtin_trap();
        }
    }
}

// Any bytes are a file system of which each block is written again, and whose journal is: first what the disk held,
// then all of it as one write.
inline int fuzz_crash_names(const std::uint8_t* data, std::size_t size) {
    const std::string base = fuzz::ScratchFolder::one().file("base");
    std::ofstream(base, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    const std::size_t sectors = size / sector_bytes;
    if (sectors == 0) {
        return 0;
    }
    // Halves of it as writes of their own, so that blocks have versions and descriptors come before what they tell of.
    std::string log(sector_bytes, '\0');
    const std::uint64_t entries = 2 * ((sectors + 7) / 8);
    const std::uint64_t super[]{0x6a736677736872ULL, 1, entries, sector_bytes};
    std::memcpy(log.data(), super, sizeof(super));
    for (std::size_t round = 0; round < 2; ++round) {
        for (std::size_t sector = 0; sector < sectors; sector += 8) {
            const std::size_t count = std::min<std::size_t>(8, sectors - sector);
            std::string head(sector_bytes, '\0');
            const std::uint64_t entry[]{sector, count, 0, 0};
            std::memcpy(head.data(), entry, sizeof(entry));
            log += head;
            log.append(reinterpret_cast<const char*>(data) + (sectors - sector - count) * sector_bytes * round +
                           sector * sector_bytes * (1 - round),
                       count * sector_bytes);
        }
    }
    const std::string path = fuzz::ScratchFolder::one().file("log");
    std::ofstream(path, std::ios::binary) << log;
    const Log read = Log::read(path);
    name_all(read, base);
    name_all(read, {});
    return 0;
}

// Any bytes are a log of which some states are built and put back, or are refused with an error of ours.
inline int fuzz_crash_log(const std::uint8_t* data, std::size_t size) {
    const std::string path = fuzz::ScratchFolder::one().file("log");
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    constexpr std::uint64_t largest = 4096;
    constexpr int states = 64;
    try {
        const Log log = Log::read(path);
        (void)log.table();
        name_all(log, {});
        if (log.end_sector() > largest) {
            return 0;
        }
        for (const Model::Kind kind :
             {Model::Kind::prefix, Model::Kind::reorder, Model::Kind::torn, Model::Kind::sample}) {
            Image image(log, fuzz::ScratchFolder::one().file("image"), {},
                        std::max<std::uint64_t>(log.end_sector(), 1) * sector_bytes);
            std::vector<std::uint32_t> kinds;
            for (const Write& write : log.writes()) {
                kinds.push_back(static_cast<std::uint32_t>(write.sectors() % 3));
            }
            for (const std::vector<std::uint32_t>& of : {std::vector<std::uint32_t>(), kinds}) {
                Walk walk(log, {.kind = kind}, image, of);
                State state;
                for (int i = 0; i < states && walk.next(state, states); ++i) {
                    // The latest crash that leaves it leaves the same, and no later one does.
                    const Digest digest = image.digest();
                    const State late = at_last_mark(log, state);
                    image.take(late);
                    if (image.digest() != digest || marks_set(log, late) != marks_set(log, state) ||
                        at_last_mark(log, late) != late) {
                        __builtin_trap();
                    }
                    (void)image.write();
                    if (image.restore() != 0) {
                        __builtin_trap();  // nobody changed it
                    }
                }
                if (walk.repeated() > walk.looked_at()) {
                    __builtin_trap();
                }
            }
        }
    } catch (const FormatError&) {
        return 0;
    } catch (const InputError&) {
        return 0;
    }
    return 0;
}

}  // namespace sampleblk::crash
