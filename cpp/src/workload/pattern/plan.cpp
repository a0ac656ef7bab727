// SPDX-License-Identifier: MIT
#include "pattern/plan.hpp"

#include <sys/stat.h>

#include <cerrno>

#include "sampleblk/error.hpp"

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

std::vector<std::string> split_names(const std::string& text) {
    std::vector<std::string> names(1);
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] == ':') {
            names.back() += text[++i];
        } else if (text[i] == ':') {
            names.emplace_back();
        } else {
            names.back() += text[i];
        }
    }
    std::erase(names, std::string());
    return names;
}

std::string directory_of(const JobOptions& options, std::size_t number) {
    const std::vector<std::string> directories = split_names(options.directory);
    return directories.empty() ? std::string() : directories[number % directories.size()];
}

std::string below(const std::string& directory, const std::string& name) {
    const bool joined = directory.empty() || directory.ends_with('/') || name.starts_with('/');
    return joined ? directory + name : directory + "/" + name;
}

std::string below_directory(const JobOptions& options, const std::string& name, std::size_t number) {
    const std::string directory = directory_of(options, number);
    // One that is misspelt is not made, on whatever disk it would be.
    if (!directory.empty()) {
        struct stat status{};
        if (::stat(directory.c_str(), &status) != 0) {
            throw_errno("directory", directory);
        }
        if (!S_ISDIR(status.st_mode)) {
            throw SystemError("directory", directory, ENOTDIR);
        }
    }
    return below(directory, name);
}

}  // namespace sampleblk::workload
