// SPDX-License-Identifier: MIT
// Linux's native asynchronous I/O by its system calls (io_setup(2), io_submit(2), io_getevents(2)): the library of that
// name adds nothing to them but its own names.
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <vector>

#include "engine/loop.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/linux_headers.hpp"

namespace sampleblk::workload {

namespace {

// The completion ring that the kernel maps at the context's address; reading it saves a system call.
// fs/aio.c, struct aio_ring.
struct CompletionRing {
    unsigned id;
    unsigned entries;
    unsigned head;
    unsigned tail;
    unsigned magic;
    unsigned compat_features;
    unsigned incompat_features;
    unsigned header_length;
    io_event events[1];
};
constexpr unsigned ring_magic = 0xa10a10a1;

class LibaioEngine {
  public:
    explicit LibaioEngine(Job& job)
        : job_(job),
          depth_(job.options.iodepth),
          flags_(job.options.nowait ? RWF_NOWAIT : 0),
          reap_in_user_space_(job.options.userspace_reap),
          blocks_(depth_),
          events_(depth_) {
        batch_.reserve(depth_);
        if (::syscall(SYS_io_setup, depth_, &context_) != 0) {
            const int code = errno;
            throw SystemError("io_setup", {}, code, code == EAGAIN ? "raise /proc/sys/fs/aio-max-nr" : "");
        }
    }
    LibaioEngine(const LibaioEngine&) = delete;
    LibaioEngine& operator=(const LibaioEngine&) = delete;
    ~LibaioEngine() { (void)::syscall(SYS_io_destroy, context_); }

    static constexpr bool issues_before_commit = false;
    static const char* name() { return "libaio"; }
    static bool inline_only(const Io& io) { return io.is_sync() || io.direction == Direction::trim; }
    static ssize_t perform(const Io& io) { return trim_range(io); }
    int sync(FileState& file, SyncKind kind) const { return job_.files.sync(file, kind); }
    static void opened(FileState& /*file*/) {}
    static void closing(FileState& /*file*/) {}

    bool queue(Io& io) {
        if (batch_.size() == depth_) {
            return false;
        }
        iocb& block = blocks_[io.index];
        block = iocb{};
        block.aio_data = io.index;
        block.aio_lio_opcode = io.direction == Direction::read ? IOCB_CMD_PREAD : IOCB_CMD_PWRITE;
        block.aio_fildes = static_cast<std::uint32_t>(io.file->fd);
        block.aio_buf = reinterpret_cast<std::uint64_t>(io.data());
        block.aio_nbytes = io.left();
        block.aio_offset = static_cast<std::int64_t>(io.position());
        block.aio_rw_flags = flags_;
        batch_.push_back(&block);
        return true;
    }

    int commit() {
        const long taken = ::syscall(SYS_io_submit, context_, static_cast<long>(batch_.size()), batch_.data());
        if (taken < 0) {
            return -errno;
        }
        batch_.erase(batch_.begin(), batch_.begin() + taken);
        return static_cast<int>(taken);
    }

    template <typename F>
    int reap(std::uint32_t min, std::uint32_t max, F found) {
        const auto most = std::min<std::uint32_t>(max, depth_);
        if (reap_in_user_space_) {
            const int got = reap_ring(most, found);
            if (got != 0 || min == 0) {
                return got;
            }
        }
        timespec none{};
        const long got = ::syscall(SYS_io_getevents, context_, static_cast<long>(min), static_cast<long>(most),
                                   events_.data(), min == 0 ? &none : nullptr);
        if (got < 0) {
            return -errno;
        }
        for (long i = 0; i < got; ++i) {
            const io_event& event = events_[static_cast<std::size_t>(i)];
            found(static_cast<std::uint32_t>(event.data), static_cast<std::int32_t>(event.res));
        }
        return static_cast<int>(got);
    }

  private:
    template <typename F>
    int reap_ring(std::uint32_t most, F found) {
        auto* ring = reinterpret_cast<CompletionRing*>(context_);
        if (ring->magic != ring_magic) {
            return 0;
        }
        std::uint32_t got = 0;
        unsigned head = ring->head;
        while (got < most && head != std::atomic_ref<unsigned>(ring->tail).load(std::memory_order_acquire)) {
            const io_event& event = ring->events[head];
            found(static_cast<std::uint32_t>(event.data), static_cast<std::int32_t>(event.res));
            head = head + 1 == ring->entries ? 0 : head + 1;
            ++got;
        }
        std::atomic_ref<unsigned>(ring->head).store(head, std::memory_order_release);
        return static_cast<int>(got);
    }

    Job& job_;
    std::uint32_t depth_;
    int flags_;
    bool reap_in_user_space_;
    aio_context_t context_ = 0;
    std::vector<iocb> blocks_;
    std::vector<iocb*> batch_;
    std::vector<io_event> events_;
};

}  // namespace

std::unique_ptr<EngineInstance> make_libaio_engine(Job& job) {
    return std::make_unique<EngineLoop<LibaioEngine>>(job);
}

}  // namespace sampleblk::workload
