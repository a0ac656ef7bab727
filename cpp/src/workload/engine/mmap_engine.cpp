// SPDX-License-Identifier: MIT
// I/O by memcpy to and from a mapping of the file.
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/loop.hpp"
#include "sampleblk/error.hpp"

namespace sampleblk::workload {

namespace {

// Where a whole file does not fit into the address space, a window of it is mapped.
constexpr std::uint64_t window_bytes = std::uint64_t{2} << 30;

struct MmapEngine {
    Job& job;

    ssize_t perform(const Io& io) const {
        if (io.direction == Direction::trim) {
            return trim_range(io);
        }
        FileState& file = *io.file;
        const bool mapped = file.mapping != nullptr && io.offset >= file.mapping_offset &&
                            io.offset + io.length <= file.mapping_offset + file.mapping_length;
        if (!mapped && !map(io)) {
            return -1;
        }
        // Beyond the end of the file a mapping has no pages, and its use is a SIGBUS.
        const auto length =
            static_cast<std::size_t>(std::min(io.left(), file.mapping_end - std::min(file.mapping_end, io.position())));
        auto* at = static_cast<std::byte*>(file.mapping) + (io.position() - file.mapping_offset);
        if (io.direction == Direction::read) {
            std::memcpy(io.data(), at, length);
        } else if (length == io.left()) {
            std::memcpy(at, io.data(), length);
        } else {
            errno = job.options.fill_device ? ENOSPC : ENXIO;  // as mmap(2) has it for what lies beyond the object
            return -1;
        }
        if (job.options.direct) {
            // Not really direct, but nothing stays in the cache.
            if (::msync(at, length, MS_SYNC) != 0) {
                return -1;
            }
            (void)::posix_madvise(at, length, POSIX_MADV_DONTNEED);
        }
        return static_cast<ssize_t>(length);
    }

    int sync(FileState& file, SyncKind /*kind*/) const {
        return file.mapping == nullptr ? job.files.sync(file, SyncKind::fsync)
                                       : ::msync(file.mapping, static_cast<std::size_t>(file.mapping_length), MS_SYNC);
    }

    static void opened(FileState& /*file*/) {}
    static void closing(FileState& file) { unmap(file); }

  private:
    static void unmap(FileState& file) {
        if (file.mapping != nullptr) {
            (void)::munmap(file.mapping, static_cast<std::size_t>(file.mapping_length));
            file.mapping = nullptr;
            file.mapping_length = 0;
        }
    }

    [[nodiscard]] bool map(const Io& io) const {
        FileState& file = *io.file;
        const JobOptions& options = job.options;
        unmap(file);
        const bool reads_too = options.reads || options.verify != Verify::none;
        const int protection =
            (reads_too ? PROT_READ : 0) | (options.writes && options.changes_files() ? PROT_WRITE : 0);
        const std::uint64_t end = file.target->end_bytes();
        // From the start of the file: a mapping begins on a page.
        file.mapping_offset = 0;
        file.mapping_length = end;
        file.mapping = ::mmap(nullptr, static_cast<std::size_t>(end), protection, MAP_SHARED, file.fd, 0);
        if (file.mapping == MAP_FAILED && errno == ENOMEM) {
            constexpr std::uint64_t page = 4096;
            file.mapping_offset = io.offset / page * page;
            file.mapping_length = std::min(window_bytes, end - file.mapping_offset);
            file.mapping = ::mmap(nullptr, static_cast<std::size_t>(file.mapping_length), protection, MAP_SHARED,
                                  file.fd, static_cast<off_t>(file.mapping_offset));
        }
        if (file.mapping == MAP_FAILED) {
            file.mapping = nullptr;
            return false;
        }
        struct stat status{};
        file.mapping_end = ::fstat(file.fd, &status) == 0 && S_ISREG(status.st_mode)
                               ? static_cast<std::uint64_t>(status.st_size)
                               : file.target->size_bytes;
        const auto length = static_cast<std::size_t>(file.mapping_length);
        if (options.fadvise_hint != FadviseHint::none) {
            (void)::posix_madvise(file.mapping, length, options.random ? POSIX_MADV_RANDOM : POSIX_MADV_SEQUENTIAL);
        }
        (void)::posix_madvise(file.mapping, length, POSIX_MADV_DONTNEED);
        return true;
    }
};

}  // namespace

std::unique_ptr<EngineInstance> make_mmap_engine(Job& job) {
    return std::make_unique<EngineLoop<MmapEngine>>(job);
}

}  // namespace sampleblk::workload
