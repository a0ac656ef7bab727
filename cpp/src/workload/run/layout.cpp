// SPDX-License-Identifier: MIT
#include "run/layout.hpp"

#include <fcntl.h>
#include <mntent.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "data/buffers.hpp"
#include "data/digest.hpp"
#include "data/verify.hpp"
#include "pattern/replay.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/linux_headers.hpp"
#include "sampleblk/workload/job_run.hpp"

namespace sampleblk::workload {

namespace {

constexpr std::uint64_t unlimited = UINT64_MAX;
constexpr std::uint64_t longest_file = INT64_MAX;

[[noreturn]] void refuse(const JobOptions& options, const std::string& message, const std::string& expected) {
    throw InputError("job '" + options.name + "': " + message, {}, 0, expected);
}

void replace_all(std::string& text, std::string_view word, const std::string& value) {
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + value.size())) {
        text.replace(at, word.size(), value);
    }
}

// One of nrfiles, where filename= does not give them.
std::string made_up_name(const JobOptions& options, std::uint32_t number) {
    std::string name = options.filename_format.empty() ? "$jobname.$jobnum.$filenum" : options.filename_format;
    replace_all(name, "$jobname", options.name);
    replace_all(name, "$jobnum", std::to_string(options.subjob_number));
    replace_all(name, "$filenum", std::to_string(number));
    replace_all(name, "$clientuid", "");
    return name;
}

std::vector<std::string> file_names(const JobOptions& options) {
    std::vector<std::string> names;
    if (!options.opendir.empty()) {
        std::error_code error;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(options.opendir, error)) {
            if (entry.is_regular_file()) {
                names.push_back(entry.path().string());
            }
        }
        if (error) {
            throw SystemError("opendir", options.opendir, error.value());
        }
        std::ranges::sort(names);
        if (names.empty()) {
            refuse(options, "opendir '" + options.opendir + "' has no files", "a directory with files");
        }
        return names;
    }
    if (!options.filename.empty()) {
        for (const std::string& name : split_names(options.filename)) {
            names.push_back(below_directory(options, name));
        }
        if (names.empty()) {
            refuse(options, "filename '" + options.filename + "' names no file", "at least one name");
        }
        return names;
    }
    for (std::uint32_t i = 0; i < options.nrfiles; ++i) {
        // The copies of a job take several directories in rotation.
        names.push_back(below_directory(options, made_up_name(options, i), options.subjob_number));
    }
    return names;
}

void refuse_mounted(const JobOptions& options, const std::string& path, dev_t device) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> mounts(::setmntent("/proc/mounts", "r"), ::endmntent);
    if (!mounts) {
        return;
    }
    while (const mntent* entry = ::getmntent(mounts.get())) {
        struct stat status{};
        if (::stat(entry->mnt_fsname, &status) == 0 && S_ISBLK(status.st_mode) && status.st_rdev == device) {
            refuse(options, "'" + path + "' is mounted on '" + entry->mnt_dir + "' and the job writes",
                   "a device that is not mounted, or allow_mounted_write=1");
        }
    }
}

std::uint64_t device_size(const std::string& path) {
    const Fd fd = open_file(path, O_RDONLY);
    std::uint64_t bytes = 0;
    if (::ioctl(fd.get(), BLKGETSIZE64, &bytes) != 0) {
        throw_errno("ioctl BLKGETSIZE64", path);
    }
    return bytes;
}

// Finds what is there; a missing regular file has size 0.
void find_size(const JobOptions& options, FileTarget& file) {
    struct stat status{};
    if (::stat(file.path.c_str(), &status) != 0) {
        if (errno != ENOENT) {
            throw_errno("stat", file.path);
        }
        if (!options.allow_file_create) {
            throw SystemError("stat", file.path, ENOENT, "allow_file_create=0 keeps us from creating it");
        }
        return;
    }
    if (S_ISDIR(status.st_mode)) {
        throw SystemError("open", file.path, EISDIR);
    }
    if (S_ISBLK(status.st_mode)) {
        file.type = FileType::block;
        file.size_bytes = device_size(file.path);
        if (options.changes_files() && !options.allow_mounted_write) {
            refuse_mounted(options, file.path, status.st_rdev);
        }
    } else if (S_ISCHR(status.st_mode)) {
        file.type = FileType::character;
        file.size_bytes = unlimited;
    } else if (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)) {
        file.type = FileType::pipe;
        file.size_bytes = unlimited;
    } else {
        file.size_bytes = static_cast<std::uint64_t>(status.st_size);
    }
}

void make_directories(const std::string& path) {
    for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
        const std::string part = path.substr(0, slash);
        struct stat status{};
        if (::stat(part.c_str(), &status) != 0 && ::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
            throw_errno("mkdir", part);
        }
    }
}

// Of any number: the product alone may not fit.
std::uint64_t percent_of(std::uint64_t value, std::uint32_t percent) {
    return value / 100 * percent + value % 100 * percent / 100;
}

std::uint64_t start_offset(const JobOptions& options, const FileTarget& file) {
    if (options.file_append && file.type == FileType::regular) {
        return file.size_bytes;
    }
    const std::uint64_t increment = options.offset_increment.percent != 0
                                        ? percent_of(file.size_bytes, options.offset_increment.percent)
                                        : options.offset_increment.bytes;
    const bool aligned = options.offset.percent != 0 || options.offset_increment.percent != 0;
    std::uint64_t offset =
        options.offset.percent != 0 ? percent_of(file.size_bytes, options.offset.percent) : options.offset.bytes;
    offset += increment * options.subjob_number;
    if (aligned) {
        const std::uint64_t unit = options.offset_align != 0 ? options.offset_align : options.least_block();
        offset = (offset + unit - 1) / unit * unit;
    }
    return offset;
}

// The job's part of each file, as fio divides size= among them.
void divide_extents(const JobOptions& options, JobPlan& plan) {
    const std::uint64_t block = options.least_block();
    std::uint64_t each = 0;
    std::uint64_t extra_blocks = 0;
    if (options.filesize.lower == 0 && options.size.bytes != 0) {
        each = options.size.bytes / plan.files.size();
        extra_blocks = (options.size.bytes - each * plan.files.size()) / block;
    }
    Random sizes = stream(plan.seed, Stream::file_size);
    for (FileTarget& file : plan.files) {
        file.offset_bytes = start_offset(options, file);
        const auto offset_fits = [&](std::uint64_t size) {
            if (file.offset_bytes > size) {
                refuse(options,
                       "offset " + std::to_string(file.offset_bytes) + " lies beyond the end of '" + file.path +
                           "' at " + std::to_string(size),
                       "an offset inside the file");
            }
        };
        if (options.filesize.lower == 0) {
            file.extent_bytes = each;
            if (extra_blocks != 0) {
                --extra_blocks;
                file.extent_bytes += block;
            }
            if (file.extent_bytes == 0) {
                offset_fits(file.size_bytes);
                file.extent_bytes = file.size_bytes == unlimited ? unlimited : file.size_bytes - file.offset_bytes;
            }
        } else if (file.size_bytes < options.filesize.lower || file.size_bytes > options.filesize.upper) {
            std::uint64_t size = options.filesize.lower;
            if (options.filesize.upper > options.filesize.lower) {
                size += sizes.below(options.filesize.upper - options.filesize.lower);
                size -= size % block;
            }
            offset_fits(size);
            file.extent_bytes = size - file.offset_bytes;
        } else {
            offset_fits(file.size_bytes);
            file.extent_bytes = file.size_bytes - file.offset_bytes;
        }
        if (file.type == FileType::block) {
            offset_fits(file.size_bytes);
            if (const std::uint64_t room = file.size_bytes - file.offset_bytes; file.extent_bytes > room) {
                // As fio's, a job ends with the device.
                plan.messages.push_back(
                    options.name + ": '" + file.path + "' ends at " + std::to_string(file.size_bytes) + ", " +
                    std::to_string(file.extent_bytes - room) + " bytes before the job's size= does");
                file.extent_bytes = room;
            }
        }
        if (options.size.percent != 0 && options.size.percent != 100 && file.extent_bytes != unlimited) {
            const std::uint64_t whole = file.extent_bytes + file.offset_bytes;
            file.extent_bytes = std::min(percent_of(whole, options.size.percent), whole - file.offset_bytes);
            file.extent_bytes -= file.extent_bytes % block;
        }
    }
}

void preallocate(const JobOptions& options, const FileTarget& file, int fd) {
    if (file.size_bytes == 0 || options.fill_device) {
        return;
    }
    const auto size = static_cast<off_t>(file.size_bytes);
    switch (options.fallocate) {
        case Fallocate::none:
            return;
        case Fallocate::truncate:
            if (repeated([&] { return ::ftruncate(fd, size); }) != 0) {
                throw_errno("ftruncate", file.path);
            }
            return;
        case Fallocate::posix:
            allocate(fd, file.size_bytes, file.path);
            return;
        case Fallocate::keep:
            if (repeated([&] { return ::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, size); }) != 0 && errno != EOPNOTSUPP) {
                throw_errno("fallocate", file.path);
            }
            return;
        case Fallocate::native:
            if (repeated([&] { return ::fallocate(fd, 0, 0, size); }) != 0 && errno != EOPNOTSUPP) {
                throw_errno("fallocate", file.path);
            }
            return;
    }
}

// From `begin` to the end of the file.
void write_contents(const JobOptions& options, const JobPlan& plan, const FileTarget& file, int fd,
                    std::uint64_t begin) {
    if (!options.fill_device && repeated([&] { return ::ftruncate(fd, static_cast<off_t>(file.size_bytes)); }) != 0 &&
        errno != EFBIG) {
        throw_errno("ftruncate", file.path);
    }
    if (begin != 0 && ::lseek(fd, static_cast<off_t>(begin), SEEK_SET) < 0) {
        throw_errno("lseek", file.path);
    }
    std::uint64_t left = file.size_bytes - begin;
    std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(options.max_bs[index_of(Direction::write)], left)));
    BufferFiller filler(options, plan.seed);
    while (left != 0) {
        check_interrupt();
        const std::size_t length = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), left));
        filler.fill(std::span(buffer).first(length), file.size_bytes - left);
        const ssize_t put = repeated([&] { return ::write(fd, buffer.data(), length); });
        if (put < 0) {
            if (options.fill_device && (errno == ENOSPC || errno == EDQUOT)) {
                break;
            }
            throw_errno("write", file.path);
        }
        left -= static_cast<std::uint64_t>(put);
    }
    if (options.create_fsync && repeated([&] { return ::fsync(fd); }) != 0) {
        throw_errno("fsync", file.path);
    }
}

// A file that a layout makes, and that goes again unless it is kept: by what it is, not by its name, which a file had
// before that is not ours, or has by now.
class NewFile {
  public:
    NewFile(const std::string& path, int flags) : path_(path) {
        const bool was_there = identity_of(path).known();
        fd_ = open_file(path, flags, 0644);
        if (!was_there) {
            made_ = identity_of(fd_.get());
        }
    }
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;
    ~NewFile() {
        if (made_.known() && identity_of(path_) == made_) {
            (void)::unlink(path_.c_str());
        }
    }

    [[nodiscard]] int fd() const noexcept { return fd_.get(); }
    // Unknown where the file was there before.
    [[nodiscard]] FileIdentity keep() noexcept { return std::exchange(made_, {}); }

  private:
    const std::string& path_;
    Fd fd_;
    FileIdentity made_;
};

std::uint64_t free_bytes(const std::string& path) {
    struct statvfs status{};
    std::string directory = path;
    if (::statvfs(directory.c_str(), &status) != 0) {
        const std::size_t slash = path.rfind('/');
        directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
        if (::statvfs(directory.c_str(), &status) != 0) {
            return 0;
        }
    }
    return static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
}

// A layout replaces a file that is too short. It must not take the file away and then find no space for the new one.
void check_space(const FileTarget& file) {
    struct stat status{};
    if (::stat(file.path.c_str(), &status) != 0 || status.st_size == 0) {
        return;
    }
    const std::uint64_t space = free_bytes(file.path) + static_cast<std::uint64_t>(status.st_blocks) * 512;
    if (file.size_bytes > space) {
        throw SystemError("layout", file.path, ENOSPC, "the file that is there was left alone");
    }
}

// `old_size` is how long the file is.
void lay_out(const JobOptions& options, JobPlan& plan, FileTarget& file, std::uint64_t old_size) {
    const bool replays = !plan.replay.empty();
    // A mapping cannot be written beyond the end of its file.
    const bool in_full = options.reads || (options.writes && options.overwrite && !options.file_append) ||
                         (options.writes && options.engine == Engine::mmap);
    const bool fresh = options.writes && !options.overwrite && !options.file_append;
    // What a recording is replayed onto is extended, not replaced.
    const bool replaces = (in_full || fresh) && !replays;
    if (replaces) {
        const bool takes_space =
            in_full || (options.fallocate != Fallocate::none && options.fallocate != Fallocate::truncate);
        if (takes_space && !options.fill_device) {
            check_space(file);
        }
        if (::unlink(file.path.c_str()) != 0 && errno != ENOENT) {
            throw_errno("unlink", file.path);
        }
    }
    NewFile made(file.path, O_WRONLY | O_CREAT | (in_full && replaces ? O_TRUNC : 0));
    preallocate(options, file, made.fd());
    if (in_full) {
        write_contents(options, plan, file, made.fd(), replaces ? 0 : old_size);
    }
    // Not fatal, as in fio: some file systems have no cache to drop.
    (void)::posix_fadvise(made.fd(), static_cast<off_t>(old_size), static_cast<off_t>(file.end_bytes() - old_size),
                          POSIX_FADV_DONTNEED);
    file.made = made.keep();
}

// A replay's regular files must reach as far as its I/Os do; reads want contents.
void lay_out_replay(JobPlan& plan) {
    for (FileTarget& file : plan.files) {
        plan.size_bytes += file.extent_bytes;
        if (file.type != FileType::regular || file.extent_bytes <= file.size_bytes || !plan.options.has_files() ||
            plan.options.only_checks()) {
            file.size_bytes = std::max(file.size_bytes, file.extent_bytes);
            continue;
        }
        const std::uint64_t old_size = std::exchange(file.size_bytes, file.extent_bytes);
        lay_out(plan.options, plan, file, old_size);
    }
}

// A block for which no file has room: fio's job ends, without an error, with the first that is due.
void refuse_blocks_that_fit_nowhere(const JobPlan& plan) {
    constexpr std::array<const char*, data_directions> names = {"reads", "writes", "trims"};
    const JobOptions& options = plan.options;
    std::uint64_t room = 0;
    for (const FileTarget& file : plan.files) {
        room = std::max(room, std::max(file.size_bytes, file.end_bytes()) - file.offset_bytes);
    }
    const bool zones = options.random && options.zonemode == ZoneMode::strided && options.zone_range_bytes != 0;
    room = zones ? std::min(room, options.zone_range_bytes) : room;
    for (std::size_t i = 0; i < data_directions; ++i) {
        const std::uint64_t block = options.min_bs[options.size_index(i, options.random)];
        if (options.uses(i) && block > room) {
            refuse(options,
                   "the block size of " + std::string(names[i]) + ", " + std::to_string(block) +
                       " bytes, is larger than the " + std::to_string(room) + " bytes that there are of a " +
                       (zones ? "zone" : "file"),
                   "a smaller bs or offset, or a larger size");
        }
    }
}

}  // namespace

std::optional<std::vector<std::string>> places_of(const JobOptions& options) {
    std::vector<std::string> places;
    if (!options.has_files()) {
        return places;
    }
    if (options.replay || !options.read_iolog.empty()) {
        if (options.replay_redirect.empty()) {
            return std::nullopt;
        }
        const std::string& path = options.replay_redirect;
        places.push_back(path.starts_with('/') ? path : below(directory_of(options), path));
    } else if (!options.opendir.empty()) {
        places.push_back(options.opendir);
    } else if (!options.filename.empty()) {
        for (const std::string& name : split_names(options.filename)) {
            places.push_back(below(directory_of(options), name));
        }
    } else {
        const std::string name = below(directory_of(options, options.subjob_number), made_up_name(options, 0));
        const std::size_t slash = name.rfind('/');
        places.push_back(slash == std::string::npos ? "." : name.substr(0, slash + 1));
    }
    return places;
}

JobPlan prepare_files(const JobOptions& options, std::uint64_t seed) {
    JobPlan plan;
    plan.options = options;
    plan.seed = seed;
    if (options.verify != Verify::none) {
        check_verify_room(options);
        load_digest(options.verify);
    }
    const bool replays = options.replay || !options.read_iolog.empty();
    if (replays) {
        const ReplayLog log = options.replay ? *options.replay : read_replay_log(options.read_iolog);
        plan_replay(plan, log);
        for (const auto& [reason, count] : log.skipped) {
            plan.messages.push_back(options.name + ": replay leaves out " + std::to_string(count) + " " + reason);
        }
        const PerDirection<std::uint64_t> any_rate{};
        for (const auto& [key, given] :
             {std::pair("rate", options.rate_bps != any_rate), std::pair("number_ios", options.number_ios != 0),
              std::pair("io_size", options.io_size.set())}) {
            if (given) {
                plan.messages.push_back(options.name + ": " + key + " has no effect on a replay, as in fio");
            }
        }
        plan.options.rate_bps = {};
    } else {
        for (std::string& name : file_names(options)) {
            FileTarget& file = plan.files.emplace_back();
            file.path = std::move(name);
        }
    }
    const bool on_disk = options.engine != Engine::null;
    if (on_disk) {
        for (FileTarget& file : plan.files) {
            if (!options.only_checks()) {
                make_directories(file.path);
            }
            find_size(options, file);
        }
    }
    plan.options.nrfiles = static_cast<std::uint32_t>(plan.files.size());
    if (replays) {
        lay_out_replay(plan);
        return plan;
    }
    const bool known = std::ranges::any_of(
        plan.files, [](const FileTarget& file) { return file.size_bytes != 0 && file.size_bytes != unlimited; });
    if (options.size.bytes == 0 && !known && options.filesize.lower == 0 && !options.fill_device) {
        refuse(options, "the files do not exist and no size above 0, in bytes, is given", "size=…");
    }
    divide_extents(options, plan);

    std::uint64_t total = 0;
    std::uint64_t to_extend = 0;
    std::uint32_t extended = 0;
    std::vector<bool> extend(plan.files.size(), false);
    for (std::size_t i = 0; i < plan.files.size(); ++i) {
        FileTarget& file = plan.files[i];
        if (options.fill_device && options.size.bytes == 0 && file.type == FileType::regular) {
            file.extent_bytes = free_bytes(file.path) + file.size_bytes;
        }
        // As in fio, a share of the files bounds each loop, as a smaller size= would.
        const std::uint64_t share = options.io_size.percent == 0 || file.extent_bytes == unlimited
                                        ? file.extent_bytes
                                        : percent_of(file.extent_bytes, options.io_size.percent);
        total = share > unlimited - total ? unlimited : total + share;
        if (file.type == FileType::regular && file.end_bytes() > file.size_bytes) {
            if (file.offset_bytes > longest_file || file.extent_bytes > longest_file - file.offset_bytes) {
                refuse(options, "'" + file.path + "' would have to be longer than any file",
                       "a smaller offset or size");
            }
            if (on_disk && !options.create_on_open && !options.only_checks()) {
                extend[i] = true;
                ++extended;
                to_extend += file.end_bytes();
            } else {
                file.size_bytes = file.end_bytes();
            }
        }
    }
    plan.size_bytes =
        options.size.bytes == 0 || (total != 0 && options.size.bytes > total) ? total : options.size.bytes;
    plan.io_bytes = options.io_size.bytes != 0 ? options.io_size.bytes : plan.size_bytes;
    if (plan.size_bytes < options.least_block()) {
        refuse(options, "the block size is larger than the " + std::to_string(plan.size_bytes) + " bytes of its files",
               "a smaller bs or a larger size");
    }
    if (!on_disk && options.filesize.lower != 0) {
        // As in fio: a file that nobody opens has an end by size=, but not by filesize=, and an I/O that begins inside
        // its part may reach beyond it.
        for (FileTarget& file : plan.files) {
            file.size_bytes = options.size.bytes == 0
                                  ? unlimited
                                  : std::max(options.size.bytes / plan.files.size(), file.end_bytes());
        }
    }
    refuse_blocks_that_fit_nowhere(plan);
    if (extended != 0) {
        plan.messages.push_back(options.name + ": Laying out IO file" + (extended > 1 ? "s" : "") + " (" +
                                std::to_string(extended) + " file" + (extended > 1 ? "s / total " : " / ") +
                                std::to_string(to_extend >> 20) + "MiB)");
        for (std::size_t i = 0; i < plan.files.size(); ++i) {
            if (extend[i]) {
                FileTarget& file = plan.files[i];
                const std::uint64_t old_size = file.size_bytes;
                file.size_bytes = file.end_bytes();
                lay_out(options, plan, file, old_size);
            }
        }
    }
    return plan;
}

}  // namespace sampleblk::workload
