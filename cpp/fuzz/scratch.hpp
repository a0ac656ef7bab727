// SPDX-License-Identifier: MIT
// Where fuzz targets write their exports: a folder in memory that goes away with the process.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace sampleblk::fuzz {

class ScratchFolder {
  public:
    ScratchFolder() : path_(std::filesystem::exists("/dev/shm") ? "/dev/shm/fuzz-XXXXXX" : "/tmp/fuzz-XXXXXX") {
        if (::mkdtemp(path_.data()) == nullptr) {
            std::abort();
        }
    }
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;
    ~ScratchFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

    static const ScratchFolder& one() {
        static const ScratchFolder folder;
        return folder;
    }

  private:
    std::string path_;
};

}  // namespace sampleblk::fuzz
