// SPDX-License-Identifier: MIT
// Owned file descriptors, and whole-file helpers that keep errno and path.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace sampleblk {

// An owned descriptor: closed once, never copied.
class Fd {
  public:
    Fd() noexcept = default;
    explicit Fd(int fd) noexcept : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Fd& operator=(Fd&& other) noexcept;
    Fd(const Fd&) = delete;
    Fd& operator=(const Fd&) = delete;
    ~Fd() { reset(); }

    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
    void reset() noexcept;

  private:
    int fd_ = -1;
};

// open(2), always O_CLOEXEC. Throws SystemError, and InputError for a name with a byte 0 in it.
[[nodiscard]] Fd open_file(const std::string& path, int flags, mode_t mode = 0);

// Reads until `buffer` is full or the end of file; returns the bytes read. Retries EINTR. Throws
// SystemError naming `path`.
std::size_t read_full(int fd, std::span<std::byte> buffer, std::string_view path);

// Writes all of `data`, retrying short writes and EINTR. Throws SystemError naming `path`.
void write_full(int fd, std::span<const std::byte> data, std::string_view path);
void write_full(int fd, std::string_view text, std::string_view path);

// The whole of a file; procfs and tracefs files, whose size is given as 0, included.
[[nodiscard]] std::string read_file(const std::string& path);

// The first `most` bytes of a file, without waiting for any; empty when it cannot be read.
[[nodiscard]] std::string read_start(const std::string& path, std::size_t most);

// One write(2) of the whole text, as control files of the kernel want it. `flags` are beyond
// O_WRONLY.
void write_file(const std::string& path, std::string_view text, int flags = O_TRUNC);

// posix_fallocate(3): room for all of the file's `bytes`. Throws SystemError naming `path`.
void allocate(int fd, std::size_t bytes, std::string_view path);

// A file that is written whole or not at all: it has another name beside its own until finish(), and nobody who has the
// file open that it replaces sees it change. What is not a regular file, such as a pipe, is written as it comes.
class WholeFile {
  public:
    // Opens it for writing. Throws SystemError.
    explicit WholeFile(const std::string& path);
    WholeFile(const WholeFile&) = delete;
    WholeFile& operator=(const WholeFile&) = delete;
    WholeFile(WholeFile&&) = delete;
    WholeFile& operator=(WholeFile&&) = delete;
    ~WholeFile();

    [[nodiscard]] int get() const noexcept { return fd_.get(); }
    // The file's own name, for messages.
    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    // Gives it its name. Throws SystemError.
    void finish();

  private:
    std::string path_;
    std::string partial_;  // empty: written in place
    Fd fd_;
};

}  // namespace sampleblk
