// SPDX-License-Identifier: MIT
#include "sampleblk/crash/mounting.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/linux_headers.hpp"

namespace sampleblk::crash {

namespace {

constexpr const char* control_path = "/dev/loop-control";
// Somebody else may take the device that the kernel names as free.
constexpr int most_tries = 100;

// A flag of mount(2), with the options of mount(8) that set and clear it; without a flag, two that change nothing.
struct Flag {
    unsigned long bit;
    std::string_view on;
    std::string_view off;
};

// The other options are the file system's own.
constexpr std::array flags{
    Flag{MS_RDONLY, "ro", "rw"},
    Flag{MS_SYNCHRONOUS, "sync", "async"},
    Flag{MS_DIRSYNC, "dirsync", ""},
    Flag{MS_NOATIME, "noatime", "atime"},
    Flag{MS_NODIRATIME, "nodiratime", "diratime"},
    Flag{MS_RELATIME, "relatime", "norelatime"},
    Flag{MS_STRICTATIME, "strictatime", "nostrictatime"},
    Flag{MS_LAZYTIME, "lazytime", "nolazytime"},
    Flag{MS_NOSUID, "nosuid", "suid"},
    Flag{MS_NODEV, "nodev", "dev"},
    Flag{MS_NOEXEC, "noexec", "exec"},
    Flag{MS_NOSYMFOLLOW, "nosymfollow", "symfollow"},
    Flag{MS_I_VERSION, "iversion", "noiversion"},
    Flag{MS_SILENT, "silent", "loud"},
    Flag{0, "defaults", "loop"},
};

struct Options {
    unsigned long flags = 0;
    std::string data;
};

Options parse(std::string_view text) {
    Options found;
    while (!text.empty()) {
        const std::size_t end = text.find(',');
        const std::string_view word = text.substr(0, end);
        text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
        if (word.empty()) {
            continue;
        }
        const auto flag =
            std::ranges::find_if(flags, [word](const Flag& one) { return word == one.on || word == one.off; });
        if (flag == flags.end()) {
            found.data += found.data.empty() ? "" : ",";
            found.data += word;
        } else {
            found.flags = word == flag->on ? found.flags | flag->bit : found.flags & ~flag->bit;
        }
    }
    return found;
}

struct Loop {
    std::string path;
    // As long as it is open the device stays; then as long as it is mounted.
    Fd fd;
};

Loop attach(const std::string& image, bool read_only) {
    const int way = read_only ? O_RDONLY : O_RDWR;
    const Fd backing = open_file(image, way);
    const Fd control = open_file(control_path, O_RDWR);
    loop_config config{};
    config.fd = static_cast<std::uint32_t>(backing.get());
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (read_only) {
        config.info.lo_flags |= LO_FLAGS_READ_ONLY;
    }
    for (int tries = 0; tries < most_tries; ++tries) {
        const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
        if (number < 0) {
            throw_errno("LOOP_CTL_GET_FREE", control_path);
        }
        std::string path = "/dev/loop" + std::to_string(number);
        Fd fd = open_file(path, way);
        if (::ioctl(fd.get(), LOOP_CONFIGURE, &config) == 0) {
            return {std::move(path), std::move(fd)};
        }
        if (errno != EBUSY) {
            throw_errno("LOOP_CONFIGURE", path);
        }
    }
    throw SystemError("LOOP_CONFIGURE", control_path, EBUSY, "others take every loop device that is free");
}

}  // namespace

MountedImage::MountedImage(const std::string& image, std::string target, const std::string& fstype,
                           const std::string& options)
    : target_(std::move(target)) {
    const Options parsed = parse(options);
    struct stat about{};
    if (::stat(image.c_str(), &about) != 0) {
        throw_errno("stat", image);
    }
    Loop loop;
    if (S_ISBLK(about.st_mode)) {
        loop.path = image;
    } else {
        loop = attach(image, (parsed.flags & MS_RDONLY) != 0);
    }
    if (::mount(loop.path.c_str(), target_.c_str(), fstype.c_str(), parsed.flags, parsed.data.c_str()) != 0) {
        throw_errno("mount(2) of " + fstype, image);
    }
    mounted_ = true;
    device_ = std::move(loop.path);
}

MountedImage::~MountedImage() {
    if (mounted_) {
        ::umount2(target_.c_str(), MNT_DETACH);
    }
}

void MountedImage::unmount(bool detach) {
    if (!mounted_) {
        return;
    }
    if (::umount2(target_.c_str(), detach ? MNT_DETACH : 0) != 0) {
        throw_errno("umount2", target_);
    }
    mounted_ = false;
}

}  // namespace sampleblk::crash
