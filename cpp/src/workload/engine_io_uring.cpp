// SPDX-License-Identifier: MIT
// io_uring by its system calls and shared rings (io_uring(7), include/uapi/linux/io_uring.h). Flags
// and features that the running kernel lacks are left out one by one.
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <vector>

#include "engines.hpp"
#include "loop_async.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"

// Newer than the headers of the oldest system that we build on.
#ifndef IORING_SETUP_COOP_TASKRUN
#define IORING_SETUP_COOP_TASKRUN (1U << 8)
#endif
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif

namespace sampleblk::workload {

namespace {

class RingMapping {
  public:
    RingMapping() = default;
    RingMapping(int fd, std::size_t bytes, off_t what) : bytes_(bytes) {
        base_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what);
        if (base_ == MAP_FAILED) {
            base_ = nullptr;
            throw_errno("mmap", "io_uring");
        }
    }
    RingMapping(RingMapping&& other) noexcept
        : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    RingMapping& operator=(RingMapping&& other) noexcept {
        std::swap(base_, other.base_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    RingMapping(const RingMapping&) = delete;
    RingMapping& operator=(const RingMapping&) = delete;
    ~RingMapping() {
        if (base_ != nullptr) {
            (void)::munmap(base_, bytes_);
        }
    }
    template <typename T>
    [[nodiscard]] T* at(std::size_t offset) const {
        return reinterpret_cast<T*>(static_cast<std::byte*>(base_) + offset);
    }
    [[nodiscard]] bool empty() const { return base_ == nullptr; }

  private:
    void* base_ = nullptr;
    std::size_t bytes_ = 0;
};

unsigned load_acquire(unsigned* word) {
    return std::atomic_ref<unsigned>(*word).load(std::memory_order_acquire);
}

void store_release(unsigned* word, unsigned value) {
    std::atomic_ref<unsigned>(*word).store(value, std::memory_order_release);
}

class IoUringEngine {
  public:
    explicit IoUringEngine(Worker& worker) : options_(worker.options()), vectors_(options_.iodepth) {
        set_up();
        map_rings();
        register_parts(worker);
        choose_operations();
    }

    static constexpr bool issues_before_commit = false;
    static const char* name() { return "io_uring"; }
    static bool inline_only(const Io& io) { return io.direction == Direction::trim && io.sync == SyncKind::none; }

    void opened(FileState& file) {
        if (options_.registerfiles) {
            update_file(file.number, file.fd);
        }
    }
    void closing(FileState& file) {
        if (options_.registerfiles) {
            update_file(file.number, -1);
        }
    }

    bool queue(Io& io) {
        const unsigned tail = local_tail_;
        if (tail - load_acquire(sq_head_) >= sq_entries_) {
            return false;
        }
        io_uring_sqe& entry = entries_[tail & sq_mask_];
        entry = io_uring_sqe{};
        entry.user_data = io.index;
        if (options_.registerfiles) {
            entry.fd = static_cast<std::int32_t>(io.file->number);
            entry.flags = IOSQE_FIXED_FILE;
        } else {
            entry.fd = io.file->fd;
        }
        if (options_.force_async != 0 && ++since_async_ >= options_.force_async) {
            since_async_ = 0;
            entry.flags |= IOSQE_ASYNC;
        }
        if (io.sync != SyncKind::none) {
            fill_sync(entry, io);
        } else {
            fill_data(entry, io);
        }
        sq_array_[tail & sq_mask_] = tail & sq_mask_;
        local_tail_ = tail + 1;
        store_release(sq_tail_, local_tail_);
        ++queued_;
        return true;
    }

    int commit() {
        if (options_.sqthread_poll) {
            // The kernel's thread takes them; it only wants waking when it has dozed off. The fence
            // orders our tail before its flag.
            std::atomic_thread_fence(std::memory_order_seq_cst);
            if ((load_acquire(sq_flags_) & IORING_SQ_NEED_WAKEUP) != 0) {
                (void)enter(queued_, 0, IORING_ENTER_SQ_WAKEUP);
            }
            return static_cast<int>(std::exchange(queued_, 0));
        }
        // With completions deferred to us, only a call that asks for events posts those that are ready:
        // done here, it spares the call that would wait for them.
        const int taken = enter(queued_, 0, IORING_ENTER_GETEVENTS);
        if (taken > 0) {
            queued_ -= static_cast<unsigned>(taken);
        }
        return taken;
    }

    template <typename F>
    int reap(std::uint32_t min, std::uint32_t max, F found) {
        std::uint32_t got = take(max, found);
        while (got < min || (min == 0 && got == 0 && options_.hipri)) {
            if (options_.sqthread_poll && !options_.hipri) {
                // Completions appear by themselves; a short spin is what polling was asked for.
                for (int spin = 0; spin < 1000 && got < min; ++spin) {
                    got += take(max - got, found);
                }
                if (got >= min) {
                    break;
                }
            }
            const int result = enter(0, min > got ? min - got : 0, IORING_ENTER_GETEVENTS);
            if (result < 0 && result != -EAGAIN) {
                return got != 0 ? static_cast<int>(got) : result;
            }
            got += take(max - got, found);
            if (min == 0) {
                break;
            }
        }
        return static_cast<int>(got);
    }

  private:
    [[nodiscard]] int enter(unsigned submit, unsigned wait, unsigned flags) const {
        const long result = ::syscall(SYS_io_uring_enter, ring_number_, submit, wait, flags | enter_flags_, nullptr, 0);
        return result < 0 ? -errno : static_cast<int>(result);
    }

    template <typename F>
    std::uint32_t take(std::uint32_t max, F& found) {
        unsigned head = *cq_head_;
        const unsigned tail = load_acquire(cq_tail_);
        std::uint32_t got = 0;
        while (head != tail && got < max) {
            const io_uring_cqe& event = completions_[head & cq_mask_];
            found(static_cast<std::uint32_t>(event.user_data), event.res);
            ++head;
            ++got;
        }
        if (got != 0) {
            store_release(cq_head_, head);
        }
        return got;
    }

    void set_up() {
        parameters_.flags =
            IORING_SETUP_CQSIZE | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
        parameters_.cq_entries = options_.iodepth;
        if (options_.hipri) {
            parameters_.flags |= IORING_SETUP_IOPOLL;
        }
        if (options_.sqthread_poll) {
            parameters_.flags |= IORING_SETUP_SQPOLL;
            // The kernel refuses to defer to a task that does not submit.
            parameters_.flags &= ~(IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN);
            if (options_.sqthread_poll_cpu >= 0) {
                parameters_.flags |= IORING_SETUP_SQ_AFF;
                parameters_.sq_thread_cpu = static_cast<std::uint32_t>(options_.sqthread_poll_cpu);
            }
        }
        // 6.1, 6.0, 5.19 and 5.5 brought these; an older kernel answers EINVAL.
        for (const unsigned newer : {IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SINGLE_ISSUER,
                                     0U + IORING_SETUP_COOP_TASKRUN, 0U + IORING_SETUP_CQSIZE, 0U}) {
            io_uring_params parameters = parameters_;
            const long fd = ::syscall(SYS_io_uring_setup, options_.iodepth, &parameters);
            if (fd >= 0) {
                ring_ = Fd(static_cast<int>(fd));
                ring_number_ = ring_.get();
                parameters_ = parameters;
                return;
            }
            if (errno != EINVAL || newer == 0) {
                break;
            }
            parameters_.flags &= ~newer;
        }
        const int code = errno;
        throw SystemError("io_uring_setup", {}, code,
                          code == ENOSYS || code == EPERM ? "see /proc/sys/kernel/io_uring_disabled" : "");
    }

    void map_rings() {
        const io_sqring_offsets& sq = parameters_.sq_off;
        const io_cqring_offsets& cq = parameters_.cq_off;
        std::size_t sq_bytes = sq.array + parameters_.sq_entries * sizeof(unsigned);
        const std::size_t cq_bytes = cq.cqes + parameters_.cq_entries * sizeof(io_uring_cqe);
        const bool single = (parameters_.features & IORING_FEAT_SINGLE_MMAP) != 0;
        if (single) {
            sq_bytes = std::max(sq_bytes, cq_bytes);
        }
        sq_mapping_ = RingMapping(ring_.get(), sq_bytes, IORING_OFF_SQ_RING);
        if (!single) {
            cq_mapping_ = RingMapping(ring_.get(), cq_bytes, IORING_OFF_CQ_RING);
        }
        sqe_mapping_ = RingMapping(ring_.get(), parameters_.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES);
        const RingMapping& cq_ring = single ? sq_mapping_ : cq_mapping_;
        sq_head_ = sq_mapping_.at<unsigned>(sq.head);
        sq_tail_ = sq_mapping_.at<unsigned>(sq.tail);
        sq_flags_ = sq_mapping_.at<unsigned>(sq.flags);
        sq_array_ = sq_mapping_.at<unsigned>(sq.array);
        sq_mask_ = *sq_mapping_.at<unsigned>(sq.ring_mask);
        sq_entries_ = *sq_mapping_.at<unsigned>(sq.ring_entries);
        cq_head_ = cq_ring.at<unsigned>(cq.head);
        cq_tail_ = cq_ring.at<unsigned>(cq.tail);
        cq_mask_ = *cq_ring.at<unsigned>(cq.ring_mask);
        completions_ = cq_ring.at<io_uring_cqe>(cq.cqes);
        entries_ = sqe_mapping_.at<io_uring_sqe>(0);
        local_tail_ = *sq_tail_;
    }

    void register_parts(Worker& worker) {
        for (std::uint32_t i = 0; i < options_.iodepth; ++i) {
            vectors_[i] = {.iov_base = worker.buffer_of(i), .iov_len = worker.buffer_stride()};
        }
        if (options_.fixedbufs && ::syscall(SYS_io_uring_register, ring_.get(), IORING_REGISTER_BUFFERS,
                                            vectors_.data(), options_.iodepth) != 0) {
            const int code = errno;
            throw SystemError("io_uring_register buffers", {}, code,
                              code == ENOMEM ? "raise the limit of locked memory (ulimit -l)" : "");
        }
        if (options_.registerfiles) {
            const std::vector<int> none(worker.files().size(), -1);
            if (::syscall(SYS_io_uring_register, ring_.get(), IORING_REGISTER_FILES, none.data(), none.size()) != 0) {
                throw_errno("io_uring_register files");
            }
        }
#ifdef IORING_REGISTER_RING_FDS
        // Spares the look-up of the descriptor in every call (5.18); without it all works too.
        io_uring_rsrc_update update{};
        update.offset = static_cast<std::uint32_t>(-1);
        update.data = static_cast<std::uint64_t>(ring_.get());
        if (::syscall(SYS_io_uring_register, ring_.get(), IORING_REGISTER_RING_FDS, &update, 1) == 1) {
            ring_number_ = static_cast<int>(update.offset);
            enter_flags_ = IORING_ENTER_REGISTERED_RING;
        }
#endif
    }

    void update_file(std::uint32_t number, int fd) const {
        io_uring_files_update update{};
        update.offset = number;
        update.fds = reinterpret_cast<std::uint64_t>(&fd);
        if (::syscall(SYS_io_uring_register, ring_.get(), IORING_REGISTER_FILES_UPDATE, &update, 1) < 0) {
            throw_errno("io_uring_register files");
        }
    }

    // Plain read and write came with 5.6; before, only the vectored forms are there.
    void choose_operations() {
        if (options_.nonvectored_given) {
            plain_ = options_.nonvectored;
            return;
        }
        constexpr unsigned known = 64;
        std::vector<std::byte> room(sizeof(io_uring_probe) + known * sizeof(io_uring_probe_op));
        auto* probe = reinterpret_cast<io_uring_probe*>(room.data());
        plain_ = ::syscall(SYS_io_uring_register, ring_.get(), IORING_REGISTER_PROBE, probe, known) == 0 &&
                 probe->last_op >= IORING_OP_WRITE;
    }

    void fill_data(io_uring_sqe& entry, Io& io) {
        const bool reads = io.direction == Direction::read;
        entry.off = io.offset;
        if (options_.fixedbufs) {
            entry.opcode = reads ? IORING_OP_READ_FIXED : IORING_OP_WRITE_FIXED;
            entry.addr = reinterpret_cast<std::uint64_t>(io.buffer);
            entry.len = static_cast<std::uint32_t>(io.length);
            entry.buf_index = static_cast<std::uint16_t>(io.index);
        } else if (plain_) {
            entry.opcode = reads ? IORING_OP_READ : IORING_OP_WRITE;
            entry.addr = reinterpret_cast<std::uint64_t>(io.buffer);
            entry.len = static_cast<std::uint32_t>(io.length);
        } else {
            vectors_[io.index] = {.iov_base = io.buffer, .iov_len = static_cast<std::size_t>(io.length)};
            entry.opcode = reads ? IORING_OP_READV : IORING_OP_WRITEV;
            entry.addr = reinterpret_cast<std::uint64_t>(&vectors_[io.index]);
            entry.len = 1;
        }
        entry.rw_flags = options_.nowait ? RWF_NOWAIT : 0;
    }

    void fill_sync(io_uring_sqe& entry, const Io& io) const {
        if (io.sync == SyncKind::range) {
            const FileState& file = *io.file;
            const bool any = file.first_written != UINT64_MAX;
            entry.opcode = IORING_OP_SYNC_FILE_RANGE;
            entry.off = any ? file.first_written : 0;
            entry.len = any ? static_cast<std::uint32_t>(file.last_written - file.first_written) : 0;
            entry.sync_range_flags = options_.sync_file_range_flags;
        } else {
            entry.opcode = IORING_OP_FSYNC;
            entry.fsync_flags = io.sync == SyncKind::fdatasync ? IORING_FSYNC_DATASYNC : 0;
        }
    }

    const JobOptions& options_;
    io_uring_params parameters_{};
    Fd ring_;
    int ring_number_ = -1;  // the descriptor, or its place among the registered ones
    unsigned enter_flags_ = 0;
    RingMapping sq_mapping_;
    RingMapping cq_mapping_;
    RingMapping sqe_mapping_;
    unsigned* sq_head_ = nullptr;
    unsigned* sq_tail_ = nullptr;
    unsigned* sq_flags_ = nullptr;
    unsigned* sq_array_ = nullptr;
    unsigned* cq_head_ = nullptr;
    unsigned* cq_tail_ = nullptr;
    unsigned sq_mask_ = 0;
    unsigned sq_entries_ = 0;
    unsigned cq_mask_ = 0;
    unsigned local_tail_ = 0;
    unsigned queued_ = 0;
    std::uint32_t since_async_ = 0;
    io_uring_sqe* entries_ = nullptr;
    io_uring_cqe* completions_ = nullptr;
    bool plain_ = true;
    std::vector<iovec> vectors_;
};

}  // namespace

std::unique_ptr<EngineInstance> make_io_uring_engine(Worker& worker) {
    return std::make_unique<AsyncInstance<IoUringEngine>>(worker);
}

}  // namespace sampleblk::workload
