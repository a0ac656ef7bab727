// SPDX-License-Identifier: MIT
// Owned mappings of memory, and files mapped to be read that others may shorten meanwhile.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "sampleblk/error.hpp"

namespace sampleblk {

// What mmap(2) returned: unmapped once, never copied. Its thread safety is that of the memory.
class Mapping {
  public:
    Mapping() noexcept = default;
    // mmap(2) of `size` > 0 bytes. Throws SystemError naming `what`.
    Mapping(std::size_t size, int protection, int flags, int fd, std::int64_t offset, const std::string& what);
    Mapping(Mapping&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    Mapping& operator=(Mapping&& other) noexcept {
        if (this != &other) {
            reset();
            data_ = std::exchange(other.data_, nullptr);
            size_ = std::exchange(other.size_, 0);
        }
        return *this;
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() { reset(); }

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] explicit operator bool() const noexcept { return data_ != nullptr; }
    void reset() noexcept {
        if (data_ != nullptr) {
            (void)::munmap(data_, size_);
            data_ = nullptr;
            size_ = 0;
        }
    }

  private:
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

// A whole file, mapped to be read.
//
// When somebody shortens the file meanwhile, the kernel answers reads behind its new end with SIGBUS. A handler of
// ours, which passes on what is not ours, then puts zeros there, so that any reader comes to an end; check() tells. The
// threads that read must not block SIGBUS (signals.hpp does not).
class MappedFile {
  public:
    // How the bytes may be used: copy_on_write lets a library write to them, which the file never sees.
    enum class Access : std::uint8_t { read, copy_on_write };

    MappedFile() noexcept = default;
    // Throws SystemError.
    explicit MappedFile(const std::string& path, Access access = Access::read);
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile() { reset(); }

    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {mapping_.data(), mapping_.size()}; }
    // Of a copy_on_write mapping.
    [[nodiscard]] std::span<std::byte> writable() noexcept { return {mapping_.data(), mapping_.size()}; }
    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    // Throws FormatError when the file is shorter than it was, SystemError when the kernel could not read it: to be
    // called when what was read of it is about to be believed. Any thread may call.
    void check() const;
    void reset() noexcept;

  private:
    struct Watch;

    std::string path_;
    Mapping mapping_;
    Watch* watch_ = nullptr;
    std::uint64_t device_ = 0;
    std::uint64_t inode_ = 0;
    std::int64_t changed_ns_ = 0;
};

// Calls `read`, then `check`, which is MappedFile::check() of the files that it reads: also where it finds them
// malformed, since a file that is no longer what it was is why.
template <typename Read, typename Check>
void read_checked(Read read, Check check) {
    try {
        read();
    } catch (const FormatError&) {
        check();
        throw;
    }
    check();
}

}  // namespace sampleblk
