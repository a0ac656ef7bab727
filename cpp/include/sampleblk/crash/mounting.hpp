// SPDX-License-Identifier: MIT
// A state's image, mounted without a process: mount(8) and umount(8) take longer than what they ask the kernel for.
#pragma once

#include <string>

namespace sampleblk::crash {

// An image on a loop device of its own, mounted; or a block device as it is. Not copied, used by one thread at a time;
// needs root. The loop device goes with the mount, whoever ends that.
class MountedImage {
  public:
    // `options` are those of mount -o (mount(8)). Throws SystemError.
    MountedImage(const std::string& image, std::string target, const std::string& fstype, const std::string& options);
    MountedImage(const MountedImage&) = delete;
    MountedImage& operator=(const MountedImage&) = delete;
    // Detaches what is still mounted.
    ~MountedImage();

    [[nodiscard]] const std::string& device() const noexcept { return device_; }
    // The second time does nothing. `detach` takes it out of the tree even where somebody has a file open (umount2(2),
    // MNT_DETACH). Throws SystemError, with EBUSY for that otherwise.
    void unmount(bool detach);

  private:
    std::string target_;
    std::string device_;
    bool mounted_ = false;
};

}  // namespace sampleblk::crash
