// SPDX-License-Identifier: MIT
#include "sampleblk/crash/mounting.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

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

struct Flag {
    std::string_view name;
    unsigned long set;
    unsigned long cleared;
};

// The options of mount(8) that are flags of mount(2); the others are the file system's own.
constexpr std::array flags{
    Flag{"ro", MS_RDONLY, 0},
    Flag{"rw", 0, MS_RDONLY},
    Flag{"sync", MS_SYNCHRONOUS, 0},
    Flag{"async", 0, MS_SYNCHRONOUS},
    Flag{"dirsync", MS_DIRSYNC, 0},
    Flag{"noatime", MS_NOATIME, 0},
    Flag{"atime", 0, MS_NOATIME},
    Flag{"nodiratime", MS_NODIRATIME, 0},
    Flag{"diratime", 0, MS_NODIRATIME},
    Flag{"relatime", MS_RELATIME, 0},
    Flag{"norelatime", 0, MS_RELATIME},
    Flag{"strictatime", MS_STRICTATIME, 0},
    Flag{"nostrictatime", 0, MS_STRICTATIME},
    Flag{"lazytime", MS_LAZYTIME, 0},
    Flag{"nolazytime", 0, MS_LAZYTIME},
    Flag{"nosuid", MS_NOSUID, 0},
    Flag{"suid", 0, MS_NOSUID},
    Flag{"nodev", MS_NODEV, 0},
    Flag{"dev", 0, MS_NODEV},
    Flag{"noexec", MS_NOEXEC, 0},
    Flag{"exec", 0, MS_NOEXEC},
    Flag{"iversion", MS_I_VERSION, 0},
    Flag{"noiversion", 0, MS_I_VERSION},
    Flag{"silent", MS_SILENT, 0},
    Flag{"loud", 0, MS_SILENT},
    Flag{"defaults", 0, 0},
    Flag{"loop", 0, 0},
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
        bool is_flag = false;
        for (const Flag& flag : flags) {
            if (flag.name == word) {
                found.flags = (found.flags & ~flag.cleared) | flag.set;
                is_flag = true;
            }
        }
        if (!is_flag) {
            found.data += found.data.empty() ? "" : ",";
            found.data += word;
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
    Loop loop = attach(image, (parsed.flags & MS_RDONLY) != 0);
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
