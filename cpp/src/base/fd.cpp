// SPDX-License-Identifier: MIT
#include "sampleblk/fd.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"

namespace sampleblk {

Fd& Fd::operator=(Fd&& other) noexcept {
    if (this != &other) {
        reset();
        fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
}

void Fd::reset() noexcept {
    if (fd_ >= 0) {
        // EINTR from close(2) leaves the descriptor closed on Linux; a retry could close another's.
        ::close(std::exchange(fd_, -1));
    }
}

namespace {

// To the system, the name would end there: it would be another file.
void check_name(const std::string& path) {
    if (path.find('\0') != std::string::npos) {
        throw InputError(std::string("a byte 0 after '") + path.c_str() + "', the name of a file", {}, 0,
                         "a name without one");
    }
}

}  // namespace

Fd open_file(const std::string& path, int flags, mode_t mode) {
    check_name(path);
    for (;;) {
        Fd fd(::open(path.c_str(), flags | O_CLOEXEC, mode));
        if (fd) {
            return fd;
        }
        if (errno != EINTR) {
            throw_errno("open", path);
        }
    }
}

std::size_t read_full(int fd, std::span<std::byte> buffer, std::string_view path) {
    std::size_t done = 0;
    while (done < buffer.size()) {
        const ssize_t got = ::read(fd, buffer.data() + done, buffer.size() - done);
        if (got == 0) {
            break;
        }
        if (got < 0) {
            if (errno == EINTR) {
                continue;
            }
            throw_errno("read", path);
        }
        done += static_cast<std::size_t>(got);
    }
    return done;
}

void write_full(int fd, std::span<const std::byte> data, std::string_view path) {
    while (!data.empty()) {
        const ssize_t put = ::write(fd, data.data(), data.size());
        if (put < 0) {
            if (errno == EINTR) {
                continue;
            }
            throw_errno("write", path);
        }
        data = data.subspan(static_cast<std::size_t>(put));
    }
}

void write_full(int fd, std::string_view text, std::string_view path) {
    write_full(fd, std::as_bytes(std::span(text)), path);
}

std::string read_file(const std::string& path) {
    const Fd fd = open_file(path, O_RDONLY);
    std::string text;
    std::array<std::byte, 65536> chunk{};
    for (;;) {
        const std::size_t got = read_full(fd.get(), chunk, path);
        text.append(reinterpret_cast<const char*>(chunk.data()), got);
        if (got < chunk.size()) {
            return text;
        }
    }
}

std::string read_start(const std::string& path, std::size_t most) {
    std::string text(most, '\0');
    try {
        const Fd fd = open_file(path, O_RDONLY | O_NONBLOCK);
        text.resize(read_full(fd.get(), std::as_writable_bytes(std::span(text)), path));
    } catch (const SystemError&) {
        text.clear();
    }
    return text;
}

void write_file(const std::string& path, std::string_view text, int flags) {
    const Fd fd = open_file(path, O_WRONLY | flags, 0644);
    write_full(fd.get(), text, path);
}

void allocate(int fd, std::size_t bytes, std::string_view path) {
    // It returns its error, and is made again where a signal ended it.
    if (repeated([&] { return (errno = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes))) == 0 ? 0 : -1; }) != 0) {
        throw_errno("posix_fallocate", path);
    }
}

WholeFile::WholeFile(const std::string& path) : path_(path) {
    check_name(path);
    struct stat before{};
    const bool exists = ::stat(path.c_str(), &before) == 0;
    if (exists && !S_ISREG(before.st_mode)) {
        fd_ = open_file(path, O_WRONLY | O_TRUNC);
        return;
    }
    // A link stays one, to what is written.
    const std::unique_ptr<char, decltype(&std::free)> real(exists ? ::realpath(path.c_str(), nullptr) : nullptr,
                                                           &std::free);
    if (real) {
        path_ = real.get();
        (void)open_file(path_, O_WRONLY);  // who may not write to it may not replace it
    }
    static std::atomic<unsigned> number{0};
    const std::string partial = path_ + "." + std::to_string(::getpid()) + "-" + std::to_string(++number) + ".tmp";
    fd_ = Fd(::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd_) {
        throw_errno("open", path_);
    }
    partial_ = partial;
    if (exists) {
        (void)::fchmod(fd_.get(), before.st_mode & 07777U);
    }
}

WholeFile::~WholeFile() {
    if (!partial_.empty()) {
        (void)::unlink(partial_.c_str());
    }
}

void WholeFile::finish() {
    if (partial_.empty()) {
        return;
    }
    if (::rename(partial_.c_str(), path_.c_str()) != 0) {
        throw_errno("rename", path_);
    }
    partial_.clear();
}

}  // namespace sampleblk
