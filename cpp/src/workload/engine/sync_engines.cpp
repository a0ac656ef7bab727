// SPDX-License-Identifier: MIT
// The engines whose system call does the whole I/O: read/write, their positioned and vectored relatives, trim, fadvise,
// and the one that does nothing.
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <vector>

#include "engine/loop.hpp"
#include "sampleblk/error.hpp"

namespace sampleblk::workload {

namespace {

// What the engines on plain descriptors have in common.
struct DescriptorEngine {
    Job& job;

    int sync(FileState& file, SyncKind kind) const { return job.files.sync(file, kind); }
    static void opened(FileState& /*file*/) {}
    static void closing(FileState& /*file*/) {}
};

struct SyncEngine : DescriptorEngine {
    static ssize_t perform(const Io& io) {
        if (io.direction == Direction::trim) {
            return trim_range(io);
        }
        FileState& file = *io.file;
        const std::uint64_t position = io.position();
        if (file.kernel_position != position && ::lseek(file.fd, static_cast<off_t>(position), SEEK_SET) < 0) {
            return -1;
        }
        const ssize_t moved = io.direction == Direction::read ? ::read(file.fd, io.data(), io.left())
                                                              : ::write(file.fd, io.data(), io.left());
        if (moved >= 0) {
            file.kernel_position = position + static_cast<std::uint64_t>(moved);
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
    static ssize_t perform(const Io& io) {
        const auto offset = static_cast<off_t>(io.position());
        switch (io.direction) {
            case Direction::read:
                return plain_pread(io.file->fd, io.data(), io.left(), offset);
            case Direction::write:
                return plain_pwrite(io.file->fd, io.data(), io.left(), offset);
            default:
                return trim_range(io);
        }
    }
};

iovec vector_of(const Io& io) noexcept {
    return {.iov_base = io.data(), .iov_len = io.left()};
}

struct PvsyncEngine : DescriptorEngine {
    static ssize_t perform(const Io& io) {
        const iovec vector = vector_of(io);
        const auto offset = static_cast<off_t>(io.position());
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
    int flags = job.options.nowait ? RWF_NOWAIT : 0;
    std::uint32_t hipri_percent = job.options.hipri ? job.options.hipri_percentage : 0;
    Random random = stream(job.plan.seed, Stream::hipri);

    ssize_t perform(const Io& io) {
        const iovec vector = vector_of(io);
        const auto offset = static_cast<off_t>(io.position());
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
    static ssize_t perform(const Io& io) { return static_cast<ssize_t>(io.left()); }
};

// Advice for one range after another: the workload that DONTNEED, WILLNEED and their kin are.
struct FadviseEngine : DescriptorEngine {
    std::size_t turn = 0;

    ssize_t perform(const Io& io) {
        const std::vector<int>& advice = job.options.advice;
        const int now = advice[turn];
        turn = turn + 1 == advice.size() ? 0 : turn + 1;
        const bool whole = job.options.advice_whole_file;
        const int code = ::posix_fadvise(io.file->fd, whole ? 0 : static_cast<off_t>(io.position()),
                                         whole ? 0 : static_cast<off_t>(io.left()), now);
        if (code != 0) {
            errno = code;
            return -1;
        }
        return static_cast<ssize_t>(io.left());
    }
};

// What the engines with a batch of their own have in common: what was committed is complete, and all of it is reaped at
// once, however many are asked for (as fio's are).
class BatchEngine : public NullEngine {
  public:
    explicit BatchEngine(Job& its_job) : NullEngine{its_job} {}

    template <typename F>
    int reap(std::uint32_t /*min*/, std::uint32_t /*max*/, F found) {
        const int count = static_cast<int>(done_.size());
        for (const auto& [slot, result] : done_) {
            found(slot, result);
        }
        done_.clear();
        return count;
    }

  protected:
    std::vector<Io*> batch_;
    std::vector<std::pair<std::uint32_t, std::int32_t>> done_;  // slot, result
};

// The null engine with a depth.
class NullQueueEngine : public BatchEngine {
  public:
    using BatchEngine::BatchEngine;
    static constexpr bool issues_before_commit = false;
    static const char* name() { return "null"; }
    static bool inline_only(const Io& io) { return io.is_sync(); }

    bool queue(Io& io) {
        batch_.push_back(&io);
        return true;
    }
    int commit() {
        for (const Io* io : batch_) {
            done_.emplace_back(io->index, static_cast<std::int32_t>(io->left()));
        }
        const int taken = static_cast<int>(batch_.size());
        batch_.clear();
        return taken;
    }
};

// readv and writev over neighbours: a batch is one call as long as its I/Os follow one another.
class VsyncEngine : public BatchEngine {
  public:
    explicit VsyncEngine(Job& its_job)
        : BatchEngine(its_job), most_(std::min<std::size_t>(its_job.options.iodepth, IOV_MAX)) {}
    static constexpr bool issues_before_commit = true;
    static const char* name() { return "vsync"; }
    static bool inline_only(const Io& io) { return io.is_sync() || io.direction == Direction::trim; }
    ssize_t perform(const Io& io) const { return trim_range(io); }

    bool queue(Io& io) {
        if (!batch_.empty()) {
            const Io& last = *batch_.back();
            const bool follows =
                last.file == io.file && last.direction == io.direction && last.offset + last.length == io.position();
            if (!follows || batch_.size() == most_) {
                return false;
            }
        }
        batch_.push_back(&io);
        return true;
    }

    int commit() {
        const Io& first = *batch_.front();
        vectors_.clear();
        for (const Io* io : batch_) {
            vectors_.push_back(vector_of(*io));
        }
        const int fd = first.file->fd;
        const int count = static_cast<int>(vectors_.size());
        ssize_t moved = ::lseek(fd, static_cast<off_t>(first.position()), SEEK_SET);
        if (moved >= 0) {
            moved = first.direction == Direction::read ? ::readv(fd, vectors_.data(), count)
                                                       : ::writev(fd, vectors_.data(), count);
        }
        const int failure = moved < 0 ? -errno : 0;
        std::size_t left = moved > 0 ? static_cast<std::size_t>(moved) : 0;
        for (const Io* io : batch_) {
            const std::size_t part = std::min(left, io->left());
            // What a short transfer did not come to is issued again: it has not failed, and not read nothing.
            const int untouched = io == &first ? 0 : -EINTR;
            done_.emplace_back(io->index, part != 0 ? static_cast<int>(part) : failure != 0 ? failure : untouched);
            left -= part;
        }
        batch_.clear();
        return count;
    }

  private:
    std::size_t most_;
    std::vector<iovec> vectors_;
};

template <typename E>
std::unique_ptr<EngineInstance> instance(Job& job) {
    return std::make_unique<EngineLoop<E>>(job);
}

}  // namespace

std::unique_ptr<EngineInstance> make_engine(Job& job) {
    switch (job.options.engine) {
        case Engine::sync:
            return instance<SyncEngine>(job);
        case Engine::psync:
            return instance<PsyncEngine>(job);
        case Engine::vsync:
            return instance<VsyncEngine>(job);
        case Engine::pvsync:
            return instance<PvsyncEngine>(job);
        case Engine::pvsync2:
            return instance<Pvsync2Engine>(job);
        case Engine::mmap:
            return make_mmap_engine(job);
        case Engine::libaio:
            return make_libaio_engine(job);
        case Engine::io_uring:
            return make_io_uring_engine(job);
        case Engine::null:
            return job.options.iodepth > 1 ? instance<NullQueueEngine>(job) : instance<NullEngine>(job);
        case Engine::fadvise:
            return instance<FadviseEngine>(job);
    }
    throw UnsupportedError("ioengine", "unknown");
}

}  // namespace sampleblk::workload
