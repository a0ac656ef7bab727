// SPDX-License-Identifier: MIT
#include "engine/job_files.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <utility>

#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/linux_headers.hpp"
#include "sampleblk/mapping.hpp"

namespace sampleblk::workload {

namespace {

// What a file of an engine without files has for a descriptor: open, but never given to the kernel.
constexpr int no_descriptor = std::numeric_limits<int>::max();

int open_flags(const JobOptions& options, FileType type) {
    const bool makes_files = options.allow_file_create && !options.only_checks();
    int flags = 0;
    if (!options.trims) {
        flags |= options.direct ? O_DIRECT : 0;
        flags |= options.sync == SyncMode::sync ? O_SYNC : options.sync == SyncMode::dsync ? O_DSYNC : 0;
        flags |= options.create_on_open && makes_files ? O_CREAT : 0;
    }
    flags |= type != FileType::regular ? O_NOATIME : 0;
    if (options.changes_files()) {
        flags |= O_RDWR;
        flags |= type == FileType::regular && makes_files && options.writes ? O_CREAT : 0;
    }
    return flags;
}

void hint_write_life(const JobOptions& options, const FileState& file) {
    std::uint64_t hint = options.write_hint;
    // Of the inode for buffered I/O, of the descriptor for direct; 4.13 to 5.17 knew the latter.
    if (::fcntl(file.fd, options.direct ? F_SET_FILE_RW_HINT : F_SET_RW_HINT, &hint) != 0 &&
        ::fcntl(file.fd, F_SET_RW_HINT, &hint) != 0) {
        throw_errno("fcntl write hint", file.target->path);
    }
}

}  // namespace

ssize_t trim_range(const Io& io) noexcept {
    int result = 0;
    if (io.file->target->type == FileType::block) {
        std::array<std::uint64_t, 2> range = {io.position(), io.left()};
        result = ::ioctl(io.file->fd, BLKDISCARD, range.data());
    } else {
        result = ::fallocate(io.file->fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, static_cast<off_t>(io.position()),
                             static_cast<off_t>(io.left()));
    }
    return result == 0 ? static_cast<ssize_t>(io.left()) : -1;
}

JobFiles::JobFiles(const JobPlan& plan, JobControl& control) : options_(plan.options), control_(control) {
    files_.resize(plan.files.size());
    made_.reserve(files_.size());
    for (std::size_t i = 0; i < files_.size(); ++i) {
        files_[i].target = &plan.files[i];
        files_[i].number = static_cast<std::uint32_t>(i);
        files_[i].begin = plan.files[i].offset_bytes;
        made_.push_back(plan.files[i].made);
    }
}

JobFiles::~JobFiles() {
    for (FileState& file : files_) {
        if (file.fd >= 0 && file.fd != no_descriptor) {
            (void)::close(file.fd);
        }
    }
}

void JobFiles::open(FileState& file) {
    if (!options_.has_files()) {
        file.fd = no_descriptor;
        ++open_;
        return;
    }
    const std::string& path = file.target->path;
    int flags = open_flags(options_, file.target->type);
    const bool watches = (options_.unlink || options_.unlink_each_loop) && (flags & O_CREAT) != 0;
    const bool was_there = watches && identity_of(path).known();
    // No O_CLOEXEC: a job executes nothing while it has files open, and the flag would show as a difference in every
    // trace that is compared with fio's.
    for (;;) {
        file.fd = ::open(path.c_str(), flags, 0600);
        if (file.fd >= 0) {
            break;
        }
        if (errno == EPERM && (flags & O_NOATIME) != 0) {
            flags &= ~O_NOATIME;
        } else if (errno != EINTR || control_.stopping()) {
            const int code = errno;
            throw SystemError("open", path, code,
                              code == EINVAL && options_.direct ? "does the file system support direct=1?" : "");
        }
    }
    ++open_;
    if (watches && !was_there) {
        made_[file.number] = identity_of(file.fd);
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
    if (options_.write_hint != 0 && has_pages) {
        hint_write_life(options_, file);
    }
    if (engine_ != nullptr) {
        engine_->opened(file);
    }
}

void JobFiles::close(FileState& file) {
    if (file.fd < 0) {
        return;
    }
    --open_;
    if (file.fd == no_descriptor) {
        file.fd = -1;
        return;
    }
    if (engine_ != nullptr) {
        engine_->closing(file);
    }
    if (options_.fsync_on_close && generator_->needs_sync() && ::fsync(file.fd) != 0) {
        control_.fail({"fsync", file.target->path, errno, {}});
    }
    if (::close(std::exchange(file.fd, -1)) != 0 && errno != EINTR) {
        control_.fail({"close", file.target->path, errno, {}});
    }
}

void JobFiles::invalidate(FileState& file) {
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

int JobFiles::sync(FileState& file, SyncKind kind) const noexcept {
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

void JobFiles::close_all() {
    if (engine_ != nullptr && open_ != 0) {
        engine_->closing_all();
    }
    for (FileState& file : files_) {
        close(file);
    }
}

void JobFiles::unlink_made() {
    for (const FileState& file : files_) {
        FileIdentity& made = made_[file.number];
        const std::string& path = file.target->path;
        if (file.target->type != FileType::regular || !made.known() || identity_of(path) != made) {
            continue;
        }
        if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
            control_.fail({"unlink", path, errno, {}});
        }
        made = {};
    }
}

void JobFiles::pre_read() {
    const auto length = static_cast<std::size_t>(options_.max_bs[index_of(Direction::read)]);
    // O_DIRECT wants memory, offset and length of whole sectors, so the last one is not shortened.
    const Mapping memory(length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, "pre_read");
    for (const FileState& file : files_) {
        const FileTarget& target = *file.target;
        if (target.type == FileType::character || target.type == FileType::pipe) {
            continue;
        }
        // Without hints and without dropping what is cached already: filling the cache is the point.
        const Fd fd(::open(target.path.c_str(), open_flags(options_, target.type), 0600));
        if (!fd) {
            throw_errno("open", target.path);
        }
        if (::lseek(fd.get(), static_cast<off_t>(file.begin), SEEK_SET) < 0) {
            throw_errno("lseek", target.path);
        }
        for (std::uint64_t left = target.extent_bytes; left != 0 && !control_.stopping();) {
            const ssize_t got =
                ::read(fd.get(), memory.data(), options_.direct ? length : std::min<std::uint64_t>(left, length));
            if (got < 0 && errno != EINTR) {
                throw_errno("read", target.path);
            }
            const bool at_end = got == 0 || (options_.direct && got > 0 && static_cast<std::size_t>(got) < length);
            if (at_end) {
                break;
            }
            left -= got > 0 ? std::min(left, static_cast<std::uint64_t>(got)) : 0;
        }
    }
}

}  // namespace sampleblk::workload
