// SPDX-License-Identifier: MIT
#include "data/buffers.hpp"

#include <fcntl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk::workload {

namespace {

std::size_t round_up(std::size_t value, std::size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// What is there stays there: the file may be longer, and a device has its length.
void grow(int fd, std::size_t bytes, const std::string& path) {
    struct stat status{};
    if (::fstat(fd, &status) != 0) {
        throw_errno("fstat", path);
    }
    if (S_ISREG(status.st_mode) && static_cast<std::size_t>(status.st_size) < bytes &&
        ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
        throw_errno("ftruncate", path);
    }
}

std::size_t huge_page(const JobOptions& options) {
    return options.hugepage_size != 0 ? options.hugepage_size : std::size_t{2} << 20;
}

}  // namespace

BufferMemory::BufferMemory(const JobOptions& options, std::size_t bytes) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t align = options.memory_align > page ? options.memory_align : page;
    const bool huge = options.memory == Memory::mmap_huge || options.memory == Memory::shm_huge;
    mapped_ = round_up(std::max<std::size_t>(bytes, 1) + align - page, huge ? huge_page(options) : page);
    if (options.memory == Memory::shm || options.memory == Memory::shm_huge) {
        const int id = ::shmget(IPC_PRIVATE, mapped_, IPC_CREAT | 0600 | (huge ? SHM_HUGETLB : 0));
        if (id < 0) {
            throw_errno("shmget");
        }
        mapping_ = ::shmat(id, nullptr, 0);
        const int code = errno;
        // Gone with the last detach, however the process ends.
        (void)::shmctl(id, IPC_RMID, nullptr);
        if (mapping_ == reinterpret_cast<void*>(-1)) {
            throw SystemError("shmat", {}, code);
        }
        attached_ = true;
    } else {
        int flags = options.memory == Memory::mmap_shared ? MAP_SHARED : MAP_PRIVATE;
        Fd file;
        if (!options.memory_file.empty()) {
            file = open_file(options.memory_file, O_RDWR | O_CREAT, 0644);
            flags = MAP_SHARED;
            grow(file.get(), mapped_, options.memory_file);
        } else {
            flags |= MAP_ANONYMOUS | (huge ? MAP_HUGETLB : 0);
        }
        mapping_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, flags, file ? file.get() : -1, 0);
        if (mapping_ == MAP_FAILED) {
            const int code = errno;
            throw SystemError("mmap", options.memory_file, code,
                              huge ? "are huge pages reserved in /proc/sys/vm/nr_hugepages?" : "");
        }
    }
    const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
    data_ = static_cast<std::byte*>(mapping_) + (round_up(address, align) - address);
}

BufferMemory::~BufferMemory() {
    if (attached_) {
        (void)::shmdt(mapping_);
    } else {
        (void)::munmap(mapping_, mapped_);
    }
}

void fill_random(std::span<std::byte> buffer, Random& random) noexcept {
    std::byte* at = buffer.data();
    std::size_t left = buffer.size();
    for (; left >= sizeof(std::uint64_t); left -= sizeof(std::uint64_t)) {
        const std::uint64_t word = random.next();
        std::memcpy(at, &word, sizeof(word));
        at += sizeof(word);
    }
    const std::uint64_t word = random.next();
    std::memcpy(at, &word, left);
}

void fill_pattern(std::span<std::byte> buffer, const Pattern& pattern, std::uint64_t offset) noexcept {
    const std::size_t period = pattern.bytes.size();
    for (std::size_t at = 0; at < buffer.size(); at += period) {
        std::memcpy(buffer.data() + at, pattern.bytes.data(), std::min(period, buffer.size() - at));
        for (const std::size_t field : pattern.offset_fields) {
            if (at + field < buffer.size()) {
                std::memcpy(buffer.data() + at + field, &offset, std::min(sizeof(offset), buffer.size() - at - field));
            }
        }
    }
}

BufferFiller::BufferFiller(const JobOptions& options, std::uint64_t job_seed)
    : options_(options),
      random_(stream(job_seed, Stream::buffer)),
      dedupe_(stream(job_seed, Stream::dedupe)),
      previous_(random_) {}

void BufferFiller::fill(std::span<std::byte> buffer, std::uint64_t offset) {
    if (options_.dedupe_percentage != 0 || options_.compress_percentage != 0) {
        fill_compressible(buffer);
    } else if (!options_.buffer_pattern.empty()) {
        fill_pattern(buffer, options_.buffer_pattern, offset);
    } else if (options_.zero_buffers) {
        std::memset(buffer.data(), 0, buffer.size());
    } else {
        fill_random(buffer, random_);
    }
}

void BufferFiller::fill_compressible(std::span<std::byte> buffer) {
    // A buffer repeats the one before it by restarting from the state that made that one.
    if (dedupe_.percent(options_.dedupe_percentage)) {
        random_ = previous_;
    } else {
        previous_ = random_;
    }
    const std::size_t chunk = std::min<std::size_t>(options_.compress_chunk_bytes, buffer.size());
    for (std::size_t at = 0; at < buffer.size(); at += chunk) {
        const std::span<std::byte> part = buffer.subspan(at, std::min(chunk, buffer.size() - at));
        const std::size_t noise = part.size() - part.size() * options_.compress_percentage / 100;
        fill_random(part.first(noise), random_);
        const std::span<std::byte> rest = part.subspan(noise);
        if (options_.buffer_pattern.empty()) {
            std::ranges::fill(rest, std::byte{0});
        } else {
            fill_pattern(rest, options_.buffer_pattern, 0);
        }
    }
}

}  // namespace sampleblk::workload
