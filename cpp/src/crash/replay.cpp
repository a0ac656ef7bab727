// SPDX-License-Identifier: MIT
#include "sampleblk/crash/replay.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/linux_headers.hpp"
#include "sampleblk/mapping.hpp"

namespace sampleblk::crash {

namespace {

// No piece of a log is larger but by chance; what is goes in several.
constexpr std::size_t buffer_bytes = 1U << 20U;

}  // namespace

void replay(const Log& log, const std::string& device) {
    const Fd fd = open_file(device, O_WRONLY | O_DIRECT);
    Mapping buffer(buffer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, "buffer");
    for (const Write& write : log.writes()) {
        check_interrupt();
        for (const Piece& piece : write.pieces) {
            const std::uint64_t bytes = piece.sectors * sector_bytes;
            const auto at = static_cast<off_t>(piece.sector * sector_bytes);
            if (piece.data == nullptr) {
                constexpr int discard = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
                if (repeated([&] { return ::fallocate(fd.get(), discard, at, static_cast<off_t>(bytes)); }) != 0) {
                    throw_errno("fallocate", device);
                }
                continue;
            }
            for (std::uint64_t done = 0; done < bytes;) {
                const std::size_t part = std::min<std::uint64_t>(bytes - done, buffer_bytes);
                std::memcpy(buffer.data(), piece.data + done, part);
                const ssize_t written =
                    repeated([&] { return ::pwrite(fd.get(), buffer.data(), part, at + static_cast<off_t>(done)); });
                if (written <= 0) {
                    throw_errno("pwrite", device);
                }
                done += static_cast<std::uint64_t>(written);
            }
        }
    }
}

std::vector<sampleblk_part> Replayed::parts(const Image& image) const {
    std::vector<sampleblk_part> found;
    for (const Part& part : image.parts()) {
        // Sectors of the write: where the entry begins, and where the part does and ends.
        std::uint64_t at = 0;
        const std::uint64_t end = part.first + part.sectors;
        for (const Entry& entry : writes_.at(part.write)) {
            const std::uint64_t from = std::max(part.first, at);
            const std::uint64_t to = std::min(end, at + entry.sectors);
            if (from < to) {
                found.push_back({entry.sequence, from - at, to - from});
            }
            at += entry.sectors;
        }
    }
    return found;
}

}  // namespace sampleblk::crash
