// SPDX-License-Identifier: MIT
#include "pattern/plan.hpp"

#include <sys/stat.h>

namespace sampleblk::workload {

FileIdentity identity_of(const std::string& path) noexcept {
    struct stat status{};
    return ::lstat(path.c_str(), &status) == 0 ? FileIdentity{.device = status.st_dev, .inode = status.st_ino}
                                               : FileIdentity{};
}

FileIdentity identity_of(int fd) noexcept {
    struct stat status{};
    return ::fstat(fd, &status) == 0 ? FileIdentity{.device = status.st_dev, .inode = status.st_ino} : FileIdentity{};
}

}  // namespace sampleblk::workload
