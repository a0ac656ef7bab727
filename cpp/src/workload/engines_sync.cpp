// SPDX-License-Identifier: MIT
// The engines whose system call does the whole I/O: read/write, their positioned and vectored
// relatives, trim, fadvise, and the one that does nothing.
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "engines.hpp"
#include "loop_async.hpp"
#include "loop_sync.hpp"
#include "sampleblk/error.hpp"

namespace sampleblk::workload {

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

namespace {

// What the engines on plain descriptors have in common.
struct DescriptorEngine {
    Worker& worker;

    int sync(FileState& file, SyncKind kind) const { return worker.sync_file(file, kind); }
    static void opened(FileState& /*file*/) {}
    static void closing(FileState& /*file*/) {}
};

struct SyncEngine : DescriptorEngine {
    static ssize_t transfer(Io& io) {
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

// pread() and pwrite() without glibc's cancellation points, which cost two atomic operations in a process that has, or
// before its fork had, threads.
ssize_t plain_pread(int fd, void* buffer, std::size_t length, off_t offset) noexcept {
#if defined(__LP64__)
    return ::syscall(SYS_pread64, fd, buffer, length, offset);
#else
    return ::pread(fd, buffer, length, offset);
#endif
}

ssize_t plain_pwrite(int fd, const void* buffer, std::size_t length, off_t offset) noexcept {
#if defined(__LP64__)
    return ::syscall(SYS_pwrite64, fd, buffer, length, offset);
#else
    return ::pwrite(fd, buffer, length, offset);
#endif
}

struct PsyncEngine : DescriptorEngine {
    static ssize_t transfer(Io& io) {
        const auto offset = static_cast<off_t>(io.offset);
        switch (io.direction) {
            case Direction::read:
                return plain_pread(io.file->fd, io.buffer, io.length, offset);
            case Direction::write:
                return plain_pwrite(io.file->fd, io.buffer, io.length, offset);
            default:
                return trim_range(io);
        }
    }
};

struct PvsyncEngine : DescriptorEngine {
    static ssize_t transfer(Io& io) {
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

struct Pvsync2Engine : DescriptorEngine {
    int flags = worker.options().nowait ? RWF_NOWAIT : 0;
    std::uint32_t hipri_percent = worker.options().hipri ? worker.options().hipri_percentage : 0;
    Random random = stream(worker.plan().seed, Stream::hipri);

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

struct NullEngine : DescriptorEngine {
    static ssize_t transfer(Io& io) { return static_cast<ssize_t>(io.length); }
};

// Advice for one range after another: the workload that DONTNEED, WILLNEED and their kin are.
struct FadviseEngine : DescriptorEngine {
    std::size_t turn = 0;

    ssize_t transfer(Io& io) {
        const std::vector<int>& advice = worker.options().advice;
        const int now = advice[turn];
        turn = turn + 1 == advice.size() ? 0 : turn + 1;
        const bool whole = worker.options().advice_whole_file;
        const int code = ::posix_fadvise(io.file->fd, whole ? 0 : static_cast<off_t>(io.offset),
                                         whole ? 0 : static_cast<off_t>(io.length), now);
        if (code != 0) {
            errno = code;
            return -1;
        }
        return static_cast<ssize_t>(io.length);
    }
};

// The null engine with a depth: every batch is complete as soon as it is committed.
class NullQueueEngine {
  public:
    explicit NullQueueEngine(Worker& worker) { (void)worker; }
    static constexpr bool issues_before_commit = false;
    static const char* name() { return "null"; }
    static bool inline_only(const Io& io) { return io.sync != SyncKind::none; }
    static void opened(FileState& /*file*/) {}
    static void closing(FileState& /*file*/) {}

    bool queue(Io& io) {
        batch_.push_back({io.index, static_cast<std::int32_t>(io.length)});
        return true;
    }
    int commit() {
        done_.insert(done_.end(), batch_.begin(), batch_.end());
        const int taken = static_cast<int>(batch_.size());
        batch_.clear();
        return taken;
    }
    template <typename F>
    int reap(std::uint32_t /*min*/, std::uint32_t max, F found) {
        const std::size_t count = std::min<std::size_t>(max, done_.size());
        for (std::size_t i = 0; i < count; ++i) {
            found(done_[i].slot, done_[i].result);
        }
        done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
        return static_cast<int>(count);
    }

  private:
    struct Done {
        std::uint32_t slot;
        std::int32_t result;
    };
    std::vector<Done> batch_;
    std::vector<Done> done_;
};

// readv and writev over neighbours: a batch is one call as long as its I/Os follow one another.
class VsyncEngine {
  public:
    explicit VsyncEngine(Worker& worker) : depth_(worker.options().iodepth) { vectors_.reserve(depth_); }
    static constexpr bool issues_before_commit = true;
    static const char* name() { return "vsync"; }
    static bool inline_only(const Io& io) { return io.sync != SyncKind::none || io.direction == Direction::trim; }
    static void opened(FileState& /*file*/) {}
    static void closing(FileState& /*file*/) {}

    bool queue(Io& io) {
        if (!batch_.empty()) {
            const Io& last = *batch_.back();
            const bool follows =
                last.file == io.file && last.direction == io.direction && last.offset + last.length == io.offset;
            if (!follows || batch_.size() == depth_) {
                return false;
            }
        }
        batch_.push_back(&io);
        return true;
    }

    int commit() {
        if (batch_.empty()) {
            return 0;
        }
        const Io& first = *batch_.front();
        FileState& file = *first.file;
        vectors_.clear();
        for (const Io* io : batch_) {
            vectors_.push_back({.iov_base = io->buffer, .iov_len = static_cast<std::size_t>(io->length)});
        }
        ssize_t moved = 0;
        if (::lseek(file.fd, static_cast<off_t>(first.offset), SEEK_SET) < 0) {
            moved = -1;
        } else {
            const int count = static_cast<int>(vectors_.size());
            moved = first.direction == Direction::read ? ::readv(file.fd, vectors_.data(), count)
                                                       : ::writev(file.fd, vectors_.data(), count);
        }
        const int code = errno;
        std::uint64_t left = moved > 0 ? static_cast<std::uint64_t>(moved) : 0;
        for (const Io* io : batch_) {
            const std::uint64_t part = std::min(left, io->length);
            done_.push_back({io->index, moved < 0 ? -code : static_cast<std::int32_t>(part)});
            left -= part;
        }
        const int taken = static_cast<int>(batch_.size());
        batch_.clear();
        return taken;
    }

    template <typename F>
    int reap(std::uint32_t /*min*/, std::uint32_t /*max*/, F found) {
        for (const Done& done : done_) {
            found(done.slot, done.result);
        }
        return static_cast<int>(std::exchange(done_, {}).size());
    }

  private:
    struct Done {
        std::uint32_t slot;
        std::int32_t result;
    };
    std::uint32_t depth_;
    std::vector<Io*> batch_;
    std::vector<iovec> vectors_;
    std::vector<Done> done_;
};

}  // namespace

std::unique_ptr<EngineInstance> make_engine(Worker& worker) {
    switch (worker.options().engine) {
        case Engine::sync:
            return std::make_unique<SyncInstance<SyncEngine>>(worker);
        case Engine::psync:
            return std::make_unique<SyncInstance<PsyncEngine>>(worker);
        case Engine::vsync:
            return std::make_unique<AsyncInstance<VsyncEngine>>(worker);
        case Engine::pvsync:
            return std::make_unique<SyncInstance<PvsyncEngine>>(worker);
        case Engine::pvsync2:
            return std::make_unique<SyncInstance<Pvsync2Engine>>(worker);
        case Engine::mmap:
            return make_mmap_engine(worker);
        case Engine::libaio:
            return make_libaio_engine(worker);
        case Engine::io_uring:
            return make_io_uring_engine(worker);
        case Engine::null:
            if (worker.options().iodepth > 1) {
                return std::make_unique<AsyncInstance<NullQueueEngine>>(worker);
            }
            return std::make_unique<SyncInstance<NullEngine>>(worker);
        case Engine::fadvise:
            return std::make_unique<SyncInstance<FadviseEngine>>(worker);
    }
    throw UnsupportedError("ioengine", "unknown");
}

}  // namespace sampleblk::workload
