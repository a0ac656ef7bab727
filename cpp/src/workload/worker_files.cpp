// SPDX-License-Identifier: MIT
// A running job's files: opened, hinted, synced, closed, with the calls that fio makes.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include "replay.hpp"
#include "sampleblk/error.hpp"
#include "worker.hpp"

namespace sampleblk::workload {

namespace {

// What a file of an engine without files has for a descriptor: open, but never given to the kernel.
constexpr int no_descriptor = std::numeric_limits<int>::max();

int open_flags(const JobOptions& options, FileType type) {
    int flags = 0;
    if (!options.trims) {
        flags |= options.direct ? O_DIRECT : 0;
        flags |= options.sync == SyncMode::sync ? O_SYNC : options.sync == SyncMode::dsync ? O_DSYNC : 0;
        flags |= options.create_on_open && options.allow_file_create ? O_CREAT : 0;
    }
    flags |= type != FileType::regular ? O_NOATIME : 0;
    if (options.writes || options.trims) {
        flags |= O_RDWR;
        flags |= type == FileType::regular && options.allow_file_create && options.writes ? O_CREAT : 0;
    }
    return flags;
}

void hint_write_life(const JobOptions& options, const FileState& file) {
    constexpr std::array<std::string_view, 5> names = {"none", "short", "medium", "long", "extreme"};
    std::uint64_t hint = 1;  // RWH_WRITE_LIFE_NONE
    for (std::size_t i = 0; i < names.size(); ++i) {
        hint = names[i] == options.write_hint ? i + 1 : hint;
    }
    // Of the inode for buffered I/O, of the descriptor for direct; 4.13 to 5.17 knew the latter.
    if (::fcntl(file.fd, options.direct ? F_SET_FILE_RW_HINT : F_SET_RW_HINT, &hint) != 0 &&
        ::fcntl(file.fd, F_SET_RW_HINT, &hint) != 0) {
        throw_errno("fcntl write hint", file.target->path);
    }
}

}  // namespace

Worker::~Worker() {
    engine_.reset();
    for (FileState& file : files_) {
        if (file.fd >= 0 && file.fd != no_descriptor) {
            (void)::close(file.fd);
        }
    }
}

void Worker::open(FileState& file) {
    if (!options_.has_files()) {
        file.fd = no_descriptor;
        return;
    }
    const std::string& path = file.target->path;
    int flags = open_flags(options_, file.target->type);
    // No O_CLOEXEC: a job executes nothing while it has files open, and the flag would show as a
    // difference in every trace that is compared with fio's.
    for (;;) {
        file.fd = ::open(path.c_str(), flags, 0600);
        if (file.fd >= 0) {
            break;
        }
        if (errno == EPERM && (flags & O_NOATIME) != 0) {
            flags &= ~O_NOATIME;
        } else if (errno != EINTR || stopping()) {
            const int code = errno;
            throw SystemError("open", path, code,
                              code == EINVAL && options_.direct ? "does the file system support direct=1?" : "");
        }
    }
    file.kernel_position = 0;
    if (options_.invalidate) {
        invalidate(file);
    }
    const bool has_pages = file.target->type == FileType::regular || file.target->type == FileType::block;
    if (options_.fadvise_hint != FadviseHint::none && has_pages) {
        const bool random = options_.fadvise_hint == FadviseHint::random ||
                            (options_.fadvise_hint == FadviseHint::by_pattern && options_.random);
        // A refused hint costs nothing but speed, and fio goes on too.
        (void)::posix_fadvise(file.fd, static_cast<off_t>(file.begin), static_cast<off_t>(file.target->extent_bytes),
                              random ? POSIX_FADV_RANDOM : POSIX_FADV_SEQUENTIAL);
    }
    if (!options_.write_hint.empty() && has_pages) {
        hint_write_life(options_, file);
    }
    if (engine_) {
        engine_->opened(file);
    }
}

void Worker::close(FileState& file) {
    if (file.fd < 0) {
        return;
    }
    if (file.fd == no_descriptor) {
        file.fd = -1;
        return;
    }
    if (engine_) {
        engine_->closing(file);
    }
    if (options_.fsync_on_close && generator_->needs_sync() && ::fsync(file.fd) != 0) {
        fail({"fsync", file.target->path, errno, {}});
    }
    if (::close(std::exchange(file.fd, -1)) != 0 && errno != EINTR) {
        fail({"close", file.target->path, errno, {}});
    }
}

void Worker::invalidate(FileState& file) {
    if (!options_.has_files()) {
        return;
    }
    if (file.target->type == FileType::regular) {
        (void)::posix_fadvise(file.fd, static_cast<off_t>(file.begin), static_cast<off_t>(file.target->extent_bytes),
                              POSIX_FADV_DONTNEED);
    } else if (file.target->type == FileType::block) {
        // Only root may; others run with a warm cache, as with fio.
        (void)::ioctl(file.fd, BLKFLSBUF);
    }
}

int Worker::sync_file(FileState& file, SyncKind kind) const noexcept {
    if (!options_.has_files()) {
        return 0;
    }
    switch (kind) {
        case SyncKind::fdatasync:
            return ::fdatasync(file.fd);
        case SyncKind::range:
            if (file.first_written == UINT64_MAX) {
                return 0;
            }
            return ::sync_file_range(file.fd, static_cast<off_t>(file.first_written),
                                     static_cast<off_t>(file.last_written - file.first_written),
                                     options_.sync_file_range_flags);
        default:
            return ::fsync(file.fd);
    }
}

void Worker::close_all() {
    for (FileState& file : files_) {
        close(file);
    }
}

void Worker::unlink_all() {
    for (const FileState& file : files_) {
        if (file.target->type == FileType::regular && options_.has_files() &&
            ::unlink(file.target->path.c_str()) != 0 && errno != ENOENT) {
            fail({"unlink", file.target->path, errno, {}});
        }
    }
}

void Worker::pre_read() {
    std::vector<std::byte> buffer(static_cast<std::size_t>(options_.max_bs[index_of(Direction::read)]));
    for (FileState& file : files_) {
        if (file.target->type == FileType::character || file.target->type == FileType::pipe) {
            continue;
        }
        // Without hints and without dropping what is cached already: filling the cache is the point.
        file.fd = ::open(file.target->path.c_str(), open_flags(options_, file.target->type), 0600);
        if (file.fd < 0) {
            throw_errno("open", file.target->path);
        }
        if (::lseek(file.fd, static_cast<off_t>(file.begin), SEEK_SET) < 0) {
            throw_errno("lseek", file.target->path);
        }
        for (std::uint64_t left = file.target->extent_bytes; left != 0 && !stopping();) {
            const ssize_t got = ::read(file.fd, buffer.data(), std::min<std::uint64_t>(left, buffer.size()));
            if (got < 0 && errno != EINTR) {
                throw_errno("read", file.target->path);
            }
            if (got == 0) {
                break;
            }
            left -= got > 0 ? static_cast<std::uint64_t>(got) : 0;
        }
        (void)::close(std::exchange(file.fd, -1));
    }
}

void Worker::final_syncs() {
    if (!(options_.end_fsync || options_.fsync_on_close) || !generator_->needs_sync()) {
        return;
    }
    for (FileState& file : files_) {
        const bool opened_here = !file.is_open();
        if (opened_here) {
            open(file);
        }
        const std::uint64_t issue = clock_.ticks();
        if (sync_file(file, SyncKind::fsync) != 0) {
            fail({"fsync", file.target->path, errno, {}});
        }
        if (measuring_ && record_clat_) {
            state_.sync_latency.add(clock_.ns(clock_.ticks() - issue));
        }
        generator_->count_sync();
        if (opened_here) {
            close(file);
        }
    }
}

}  // namespace sampleblk::workload
