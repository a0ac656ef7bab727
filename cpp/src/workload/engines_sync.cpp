// SPDX-License-Identifier: MIT
// The engines whose system call does the whole I/O: read/write, their positioned and vectored
// relatives, trim, fadvise, and the one that does nothing.
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>

#include "engines.hpp"
#include "loop_sync.hpp"
#include "sampleblk/error.hpp"

namespace sampleblk::workload {

namespace {

// Discards on a device, a hole in a file.
ssize_t trim_range(const Io& io) {
    int result = 0;
    if (io.file->target->type == FileType::block) {
        std::array<std::uint64_t, 2> range = {io.offset, io.length};
        result = ::ioctl(io.file->fd, BLKDISCARD, range.data());
    } else {
        result = ::fallocate(io.file->fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, static_cast<off_t>(io.offset),
                             static_cast<off_t>(io.length));
    }
    return result == 0 ? static_cast<ssize_t>(io.length) : -1;
}

struct SyncEngine {
    ssize_t transfer(Io& io) const {
        if (io.direction == Direction::trim) {
            return trim_range(io);
        }
        FileState& file = *io.file;
        if (file.kernel_position != io.offset) {
            if (::lseek(file.fd, static_cast<off_t>(io.offset), SEEK_SET) < 0) {
                return -1;
            }
        }
        const ssize_t moved = io.direction == Direction::read ? ::read(file.fd, io.buffer, io.length)
                                                              : ::write(file.fd, io.buffer, io.length);
        if (moved >= 0) {
            file.kernel_position = io.offset + static_cast<std::uint64_t>(moved);
        }
        return moved;
    }
};

struct PsyncEngine {
    ssize_t transfer(Io& io) const {
        const auto offset = static_cast<off_t>(io.offset);
        switch (io.direction) {
            case Direction::read:
                return ::pread(io.file->fd, io.buffer, io.length, offset);
            case Direction::write:
                return ::pwrite(io.file->fd, io.buffer, io.length, offset);
            default:
                return trim_range(io);
        }
    }
};

struct PvsyncEngine {
    ssize_t transfer(Io& io) const {
        const auto offset = static_cast<off_t>(io.offset);
        const iovec vector{.iov_base = io.buffer, .iov_len = static_cast<std::size_t>(io.length)};
        switch (io.direction) {
            case Direction::read:
                return ::preadv(io.file->fd, &vector, 1, offset);
            case Direction::write:
                return ::pwritev(io.file->fd, &vector, 1, offset);
            default:
                return trim_range(io);
        }
    }
};

struct Pvsync2Engine {
    int flags = 0;
    std::uint32_t hipri_percent = 0;
    Random random;

    ssize_t transfer(Io& io) {
        const auto offset = static_cast<off_t>(io.offset);
        const iovec vector{.iov_base = io.buffer, .iov_len = static_cast<std::size_t>(io.length)};
        const int now = flags | (hipri_percent != 0 && random.percent(hipri_percent) ? RWF_HIPRI : 0);
        switch (io.direction) {
            case Direction::read:
                return ::preadv2(io.file->fd, &vector, 1, offset, now);
            case Direction::write:
                return ::pwritev2(io.file->fd, &vector, 1, offset, now);
            default:
                return trim_range(io);
        }
    }
};

struct NullEngine {
    ssize_t transfer(Io& io) const { return static_cast<ssize_t>(io.length); }
};

// Advice for one range after another: the workload that DONTNEED, WILLNEED and their kin are.
struct FadviseEngine {
    const JobOptions& options;
    std::size_t turn = 0;

    ssize_t transfer(Io& io) {
        const int advice = options.advice[turn];
        turn = turn + 1 == options.advice.size() ? 0 : turn + 1;
        const bool whole = options.advice_whole_file;
        const int code = ::posix_fadvise(io.file->fd, whole ? 0 : static_cast<off_t>(io.offset),
                                         whole ? 0 : static_cast<off_t>(io.length), advice);
        if (code != 0) {
            errno = code;
            return -1;
        }
        return static_cast<ssize_t>(io.length);
    }
};

template <typename E>
void run(Worker& worker, E engine) {
    sync_loop(worker, engine);
}

}  // namespace

void run_engine_loop(Worker& worker) {
    const JobOptions& options = worker.options();
    switch (options.engine) {
        case Engine::sync:
            return run(worker, SyncEngine{});
        case Engine::psync:
            return run(worker, PsyncEngine{});
        case Engine::pvsync:
            return run(worker, PvsyncEngine{});
        case Engine::pvsync2:
            return run(worker, Pvsync2Engine{.flags = options.nowait ? RWF_NOWAIT : 0,
                                             .hipri_percent = options.hipri ? options.hipri_percentage : 0,
                                             .random = stream(worker.plan().seed, Stream::hipri)});
        case Engine::null:
            return run(worker, NullEngine{});
        case Engine::fadvise:
            return run(worker, FadviseEngine{.options = options});
        default:
            throw UnsupportedError("ioengine", "not there yet");
    }
}

}  // namespace sampleblk::workload
