// SPDX-License-Identifier: MIT
#include "sampleblk/mapping.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>

#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk {

Mapping::Mapping(std::size_t size, int protection, int flags, int fd, std::int64_t offset, const std::string& what) {
    void* mapped = ::mmap(nullptr, size, protection, flags, fd, static_cast<off_t>(offset));
    if (mapped == MAP_FAILED) {
        throw_errno("mmap", what);
    }
    data_ = static_cast<std::byte*>(mapped);
    size_ = size;
}

// A mapping that the SIGBUS handler looks after. Entries are made and never freed, only used again, so that the handler
// can go through them without a lock.
struct MappedFile::Watch {
    std::atomic<std::uintptr_t> start{0};  // 0: unused
    std::atomic<std::uintptr_t> end{0};
    std::atomic<int> protection{PROT_READ};
    std::atomic<bool> hit{false};
    Watch* next = nullptr;

    static std::atomic<Watch*>& all() {
        static std::atomic<Watch*> first{nullptr};
        return first;
    }
    static Watch* begin(const Mapping& mapping, int protection);
    void finish() noexcept { start.store(0, std::memory_order_release); }

  private:
    static void handle(int signal, siginfo_t* info, void* context);
    static void install();
    static struct sigaction& before() {
        static struct sigaction previous{};
        return previous;
    }
    // Set once a fault that is not ours was passed on: a second one ends the process as it would without us.
    static std::atomic<bool>& passed_on() {
        static std::atomic<bool> passed{false};
        return passed;
    }
    static std::mutex& lock() {
        static std::mutex mutex;
        return mutex;
    }
};

void MappedFile::Watch::handle(int signal, siginfo_t* info, void* context) {
    const int saved = errno;
    const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
    for (Watch* watch = all().load(std::memory_order_acquire); watch != nullptr; watch = watch->next) {
        const std::uintptr_t start = watch->start.load(std::memory_order_acquire);
        const std::uintptr_t end = watch->end.load(std::memory_order_acquire);
        if (start == 0 || at < start || at >= end) {
            continue;
        }
        // All that is behind is gone, too. mmap(2) is a plain system call, safe in a handler on Linux.
        const std::uintptr_t page = at & ~std::uintptr_t{4095};
        void* zeros = ::mmap(reinterpret_cast<void*>(page), end - page,  // NOLINT(performance-no-int-to-ptr)
                             watch->protection.load(), MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
        if (zeros != MAP_FAILED) {
            watch->hit.store(true, std::memory_order_release);
            errno = saved;
            return;
        }
    }
    errno = saved;
    const struct sigaction& other = before();
    if (passed_on().exchange(true) || other.sa_handler == SIG_DFL || other.sa_handler == SIG_IGN) {
        // Comes again at once, and then ends the process.
        (void)::signal(signal, SIG_DFL);
        return;
    }
    if ((other.sa_flags & SA_SIGINFO) != 0) {
        other.sa_sigaction(signal, info, context);
    } else {
        other.sa_handler(signal);
    }
}

// Also where somebody else's handler took the place of ours since.
void MappedFile::Watch::install() {
    struct sigaction now{};
    if (::sigaction(SIGBUS, nullptr, &now) != 0 || ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &handle)) {
        return;
    }
    before() = now;
    struct sigaction ours{};
    ours.sa_sigaction = &handle;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    (void)::sigemptyset(&ours.sa_mask);
    (void)::sigaction(SIGBUS, &ours, nullptr);
}

MappedFile::Watch* MappedFile::Watch::begin(const Mapping& mapping, int protection) {
    const std::scoped_lock guard(lock());
    install();
    Watch* watch = all().load(std::memory_order_acquire);
    while (watch != nullptr && watch->start.load(std::memory_order_relaxed) != 0) {
        watch = watch->next;
    }
    if (watch == nullptr) {
        watch = new Watch;
        watch->next = all().load(std::memory_order_relaxed);
        all().store(watch, std::memory_order_release);
    }
    const auto start = reinterpret_cast<std::uintptr_t>(mapping.data());
    watch->hit.store(false, std::memory_order_relaxed);
    watch->protection.store(protection, std::memory_order_relaxed);
    watch->end.store((start + mapping.size() + 4095) & ~std::uintptr_t{4095}, std::memory_order_release);
    watch->start.store(start, std::memory_order_release);
    return watch;
}

namespace {

std::int64_t changed_ns(const struct stat& status) {
    return std::int64_t{status.st_ctim.tv_sec} * 1'000'000'000 + status.st_ctim.tv_nsec;
}

}  // namespace

MappedFile::MappedFile(const std::string& path, Access access) : path_(path) {
    // A pipe without a writer would let it wait for one.
    const Fd fd = open_file(path, O_RDONLY | O_NONBLOCK);
    struct stat status{};
    if (::fstat(fd.get(), &status) != 0) {
        throw_errno("fstat", path);
    }
    if (S_ISDIR(status.st_mode)) {
        throw SystemError("read", path, EISDIR);
    }
    if (status.st_size == 0) {
        return;  // mmap refuses an empty range; an empty span says the same
    }
    const int protection = access == Access::read ? PROT_READ : PROT_READ | PROT_WRITE;
    mapping_ = Mapping(static_cast<std::size_t>(status.st_size), protection, MAP_PRIVATE, fd.get(), 0, path);
    device_ = status.st_dev;
    inode_ = status.st_ino;
    changed_ns_ = changed_ns(status);
    watch_ = Watch::begin(mapping_, protection);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      mapping_(std::move(other.mapping_)),
      watch_(std::exchange(other.watch_, nullptr)),
      device_(other.device_),
      inode_(other.inode_),
      changed_ns_(other.changed_ns_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    if (this != &other) {
        reset();
        path_ = std::move(other.path_);
        mapping_ = std::move(other.mapping_);
        watch_ = std::exchange(other.watch_, nullptr);
        device_ = other.device_;
        inode_ = other.inode_;
        changed_ns_ = other.changed_ns_;
    }
    return *this;
}

void MappedFile::check() const {
    if (watch_ == nullptr) {
        return;
    }
    // A file cut inside its last page raises no signal: the rest of the page reads as zeros.
    struct stat status{};
    const bool same = ::stat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
    const bool shorter = same && static_cast<std::size_t>(status.st_size) < mapping_.size();
    const bool hit = watch_->hit.load(std::memory_order_acquire);
    // One that was truncated may have grown again since; what has not changed could not be read, of which the kernel
    // says no more.
    if (hit && same && !shorter && changed_ns(status) == changed_ns_) {
        throw SystemError("read", path_, EIO);
    }
    if (shorter || hit) {
        throw FormatError(path_, shorter ? static_cast<std::uint64_t>(status.st_size) : 0,
                          "the " + std::to_string(mapping_.size()) +
                              " bytes that the file had when it was opened; it was truncated while it was read");
    }
}

void MappedFile::reset() noexcept {
    if (watch_ != nullptr) {
        watch_->finish();
        watch_ = nullptr;
    }
    mapping_.reset();
}

}  // namespace sampleblk
