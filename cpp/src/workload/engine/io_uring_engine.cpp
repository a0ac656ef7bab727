// SPDX-License-Identifier: MIT
// io_uring by liburing. Flags and features that the running kernel lacks are left out one by one.
#include <liburing.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "engine/loop.hpp"
#include "sampleblk/error.hpp"

namespace sampleblk::workload {

namespace {

// A ring takes no longer transfer in one go (MAX_RW_COUNT in include/linux/fs.h); the loop asks for what is left.
constexpr std::size_t longest_transfer = 0x7ffff000;

class IoUringEngine {
  public:
    explicit IoUringEngine(Job& job) : job_(job), options_(job.options), vectors_(options_.iodepth) {
        set_up();
        register_parts();
        plain_ = options_.nonvectored_given ? options_.nonvectored : has_plain_operations();
    }
    IoUringEngine(const IoUringEngine&) = delete;
    IoUringEngine& operator=(const IoUringEngine&) = delete;
    ~IoUringEngine() {
        let_go_of_files();
        ::io_uring_queue_exit(&ring_);
    }

    static constexpr bool issues_before_commit = false;
    static const char* name() { return "io_uring"; }
    static bool inline_only(const Io& io) { return io.direction == Direction::trim && !io.is_sync(); }
    static ssize_t perform(const Io& io) { return trim_range(io); }
    int sync(FileState& file, SyncKind kind) const { return job_.files.sync(file, kind); }

    void opened(FileState& file) {
        if (options_.registerfiles) {
            register_table();
            register_file(file.number, file.fd);
        }
    }
    void closing(FileState& file) {
        if (has_table_) {
            register_file(file.number, -1);
        }
    }
    // It is done before the job closes them: whoever closes a file last ends its use, and where that is a thread of the
    // kernel it is some time later (fput() in fs/file_table.c), so that a device cannot be removed nor a file system
    // unmounted.
    void closing_all() { let_go_of_files(); }

    bool queue(Io& io) {
        io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
        if (entry == nullptr) {
            return false;
        }
        const int fd = options_.registerfiles ? static_cast<int>(io.file->number) : io.file->fd;
        if (io.is_sync()) {
            fill_sync(*entry, fd, io);
        } else {
            fill_data(*entry, fd, io);
        }
        unsigned flags = options_.registerfiles ? IOSQE_FIXED_FILE : 0U;
        if (options_.force_async != 0 && ++since_async_ >= options_.force_async) {
            since_async_ = 0;
            flags |= IOSQE_ASYNC;
        }
        ::io_uring_sqe_set_flags(entry, flags);
        ::io_uring_sqe_set_data64(entry, io.index);
        ++queued_;
        return true;
    }

    int commit() {
        // With completions deferred to us, only a call that asks for events posts those that are ready: done here, it
        // spares the call that would wait for them.
        const int result =
            options_.sqthread_poll ? ::io_uring_submit(&ring_) : ::io_uring_submit_and_get_events(&ring_);
        if (result < 0) {
            return result;
        }
        // The kernel's thread takes them when it comes to them: liburing counts those that wait for it from before too.
        const int taken = options_.sqthread_poll ? queued_ : result;
        queued_ -= taken;
        return taken;
    }

    template <typename F>
    int reap(std::uint32_t min, std::uint32_t max, F found) {
        std::uint32_t got = take(max, found);
        if (got >= min && got != 0) {
            return static_cast<int>(got);
        }
        if (options_.sqthread_poll && !options_.hipri) {
            // Completions appear by themselves; a short spin is what polling was asked for.
            for (int spin = 0; spin < 1000 && got < min; ++spin) {
                got += take(max - got, found);
            }
        }
        return got < min ? wait(got, min, max, found) : static_cast<int>(got);
    }

  private:
    template <typename F>
    std::uint32_t take(std::uint32_t max, F& found) {
        unsigned head = 0;
        std::uint32_t got = 0;
        io_uring_cqe* event = nullptr;
        io_uring_for_each_cqe(&ring_, head, event) {
            if (got == max) {
                break;
            }
            found(static_cast<std::uint32_t>(event->user_data), event->res);
            ++got;
        }
        ::io_uring_cq_advance(&ring_, got);
        return got;
    }

    // Waits in the kernel until `min` are there: how many are, or -errno. What io-wq's threads do (all buffered I/O on
    // a tmpfs, for example) completes every microsecond or so: to enter the kernel for each contends for the list that
    // they add to, and has them wake us. So after a short wait the next one begins with a pause outside of the kernel:
    // on tmpfs at a depth of 32 the time per I/O falls by a tenth to a fifth, and the CPU time with it. A completion is
    // seen at most that much later.
    template <typename F>
    int wait(std::uint32_t got, std::uint32_t min, std::uint32_t max, F& found) {
        const std::uint64_t start = job_.clock.ticks();
        while (pauses_ && last_wait_was_short_ && job_.clock.ticks() - start < pause_) {
        }
        while (got < min) {
            io_uring_cqe* first = nullptr;
            const int result = ::io_uring_wait_cqe_nr(&ring_, &first, std::min(min, max) - got);
            if (result < 0 && result != -EAGAIN) {
                return got != 0 ? static_cast<int>(got) : result;
            }
            got += take(max - got, found);
            if (got == max) {
                break;
            }
        }
        last_wait_was_short_ = job_.clock.ticks() - start < short_wait_;
        return static_cast<int>(got);
    }

    void set_up() {
        io_uring_params wanted{};
        wanted.flags =
            IORING_SETUP_CQSIZE | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
        wanted.cq_entries = options_.iodepth;
        if (options_.hipri) {
            wanted.flags |= IORING_SETUP_IOPOLL;
        }
        if (options_.sqthread_poll) {
            wanted.flags |= IORING_SETUP_SQPOLL;
            // The kernel refuses to defer to a task that does not submit.
            wanted.flags &= ~(IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN);
            if (options_.sqthread_poll_cpu >= 0) {
                wanted.flags |= IORING_SETUP_SQ_AFF;
                wanted.sq_thread_cpu = static_cast<std::uint32_t>(options_.sqthread_poll_cpu);
            }
        }
        // 6.1, 6.0, 5.19 and 5.5 brought these; an older kernel answers EINVAL.
        int result = -EINVAL;
        for (const unsigned newer : {0U, IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SINGLE_ISSUER,
                                     0U + IORING_SETUP_COOP_TASKRUN, 0U + IORING_SETUP_CQSIZE}) {
            wanted.flags &= ~newer;
            io_uring_params parameters = wanted;
            result = ::io_uring_queue_init_params(options_.iodepth, &ring_, &parameters);
            if (result != -EINVAL) {
                break;
            }
        }
        if (result < 0) {
            throw SystemError("io_uring_setup", {}, -result,
                              result == -ENOSYS || result == -EPERM ? "see /proc/sys/kernel/io_uring_disabled" : "");
        }
    }

    void register_parts() {
        for (std::uint32_t i = 0; i < options_.iodepth; ++i) {
            vectors_[i] = {.iov_base = job_.buffer_of(i), .iov_len = job_.buffer_stride};
        }
        if (options_.fixedbufs) {
            const int result = ::io_uring_register_buffers(&ring_, vectors_.data(), options_.iodepth);
            if (result < 0) {
                throw SystemError("io_uring_register buffers", {}, -result,
                                  result == -ENOMEM ? "raise the limit of locked memory (ulimit -l)" : "");
            }
        }
        if (options_.registerfiles) {
            register_table();
        }
        // Spares the look-up of the descriptor in every call (5.18); without it all works too.
        (void)::io_uring_register_ring_fd(&ring_);
    }

    // One without files, if there is none.
    void register_table() {
        if (has_table_) {
            return;
        }
        const std::vector<int> none(job_.files.all().size(), -1);
        if (const int result = ::io_uring_register_files(&ring_, none.data(), static_cast<unsigned>(none.size()));
            result < 0) {
            throw SystemError("io_uring_register files", {}, -result);
        }
        has_table_ = true;
    }

    // Waits until the kernel has let go of them all, which 6.1 else does up to a second later.
    void let_go_of_files() {
        while (has_table_ && ::io_uring_unregister_files(&ring_) == -EINTR) {
        }
        has_table_ = false;
    }

    void register_file(std::uint32_t number, int fd) {
        if (const int result = ::io_uring_register_files_update(&ring_, number, &fd, 1); result < 0) {
            throw SystemError("io_uring_register files", {}, -result);
        }
    }

    // Plain read and write came with 5.6; before, only the vectored forms are there.
    [[nodiscard]] bool has_plain_operations() {
        const std::unique_ptr<io_uring_probe, void (*)(io_uring_probe*)> probe(::io_uring_get_probe_ring(&ring_),
                                                                               ::io_uring_free_probe);
        return probe != nullptr && ::io_uring_opcode_supported(probe.get(), IORING_OP_WRITE) != 0;
    }

    void fill_data(io_uring_sqe& entry, int fd, const Io& io) {
        const bool reads = io.direction == Direction::read;
        const auto length = static_cast<unsigned>(std::min(io.left(), longest_transfer));
        if (options_.fixedbufs) {
            const auto slot = static_cast<int>(io.index);
            reads ? ::io_uring_prep_read_fixed(&entry, fd, io.data(), length, io.position(), slot)
                  : ::io_uring_prep_write_fixed(&entry, fd, io.data(), length, io.position(), slot);
        } else if (plain_) {
            reads ? ::io_uring_prep_read(&entry, fd, io.data(), length, io.position())
                  : ::io_uring_prep_write(&entry, fd, io.data(), length, io.position());
        } else {
            iovec& vector = vectors_[io.index];
            vector = {.iov_base = io.data(), .iov_len = length};
            reads ? ::io_uring_prep_readv(&entry, fd, &vector, 1, io.position())
                  : ::io_uring_prep_writev(&entry, fd, &vector, 1, io.position());
        }
        entry.rw_flags = options_.nowait ? RWF_NOWAIT : 0;
    }

    void fill_sync(io_uring_sqe& entry, int fd, const Io& io) const {
        if (io.sync != SyncKind::range) {
            ::io_uring_prep_fsync(&entry, fd, io.sync == SyncKind::fdatasync ? IORING_FSYNC_DATASYNC : 0U);
            return;
        }
        const FileState& file = *io.file;
        const bool any = file.first_written != UINT64_MAX;
        const std::uint64_t length = any ? file.last_written - file.first_written : 0;
        // A length of 0 means to the end of the file, and so does one that the field cannot hold.
        ::io_uring_prep_sync_file_range(&entry, fd, length > UINT32_MAX ? 0 : static_cast<unsigned>(length),
                                        any ? file.first_written : 0, static_cast<int>(options_.sync_file_range_flags));
    }

    Job& job_;
    const JobOptions& options_;
    io_uring ring_{};
    bool has_table_ = false;  // of registered files
    int queued_ = 0;
    std::uint32_t since_async_ = 0;
    bool plain_ = true;
    // One I/O at a time is waited for alone; polled ones complete in the call that waits.
    const bool pauses_ = options_.iodepth > 1 && !options_.hipri;
    bool last_wait_was_short_ = false;
    const std::uint64_t pause_ = job_.clock.ticks_for(2000);
    const std::uint64_t short_wait_ = job_.clock.ticks_for(6000);
    std::vector<iovec> vectors_;
};

}  // namespace

std::unique_ptr<EngineInstance> make_io_uring_engine(Job& job) {
    return std::make_unique<EngineLoop<IoUringEngine>>(job);
}

}  // namespace sampleblk::workload
