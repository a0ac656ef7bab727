// SPDX-License-Identifier: MIT
#include "sampleblk/trace/readers.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <exception>
#include <span>
#include <thread>

#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/fork.hpp"
#include "sampleblk/signals.hpp"
#include "sampleblk/trace/format.hpp"
#include "sampleblk/trace/tracefs.hpp"

namespace sampleblk::trace {

namespace {

// How long a reader sleeps when no full page is there; a ring buffer of some MiB takes longer than this to fill.
constexpr int kIdleMs = 20;

constexpr std::size_t kPipePages = 16;  // PIPE_DEF_BUFFERS

std::vector<std::uint32_t> buffer_cpus(const std::string& instance_dir) {
    const std::string path = instance_dir + "/per_cpu";
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(path.c_str()), &closedir);
    if (!dir) {
        throw_errno("opendir", path);
    }
    std::vector<std::uint32_t> out;
    while (const dirent* entry = readdir(dir.get())) {
        const std::string_view name = entry->d_name;
        std::uint32_t cpu = 0;
        if (name.starts_with("cpu") &&
            std::from_chars(name.data() + 3, name.data() + name.size(), cpu).ptr == name.data() + name.size()) {
            out.push_back(cpu);
        }
    }
    std::ranges::sort(out);
    return out;
}

}  // namespace

struct BufferReaders::Impl {
    const pid_t made_by = ::getpid();
    struct Reader {
        std::uint32_t cpu = 0;
        Fd raw;
        Fd spool;
        std::string spool_path;
        Fd pipe[2];           // of splice(2), which is between a pipe and something else; empty between two moves
        bool splices = true;  // from there to the spool: some file systems (9p) take none
        std::vector<std::byte> page;
        std::exception_ptr failure;
        std::atomic<int> tid{0};
        std::atomic<std::uint64_t> bytes{0};
        std::thread thread;
    };

    std::string instance_dir;
    Fd stop_event;
    std::vector<std::unique_ptr<Reader>> readers;
    std::vector<SpoolFile> files;
    bool stopped = false;

    // The result of reading the buffer: 0 where there is nothing to read now. ENODEV: a CPU that has not been online
    // since the buffer was made has none.
    static std::size_t available(ssize_t got, const Reader& reader) {
        if (got < 0 && errno != EAGAIN && errno != EINTR && errno != ENODEV) {
            throw_errno("read", reader.spool_path);
        }
        return static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    }

    // Passes on what is in the pipe.
    static void empty_pipe(Reader& reader, std::size_t left) {
        while (left != 0) {
            ssize_t moved = 0;
            if (reader.splices) {
                moved = splice(reader.pipe[0].get(), nullptr, reader.spool.get(), nullptr, left, SPLICE_F_MOVE);
                if (moved < 0 && errno != EINTR && errno != EINVAL) {
                    throw_errno("splice", reader.spool_path);
                }
                reader.splices = moved >= 0 || errno != EINVAL;
            } else {
                const auto part = std::span(reader.page).first(std::min(left, reader.page.size()));
                moved = static_cast<ssize_t>(read_full(reader.pipe[0].get(), part, reader.spool_path));
                write_full(reader.spool.get(), part, reader.spool_path);
            }
            left -= static_cast<std::size_t>(std::max<ssize_t>(moved, 0));
        }
    }

    // For the end, while the ring buffer is there: what did not fit into the file is still in the pipe, and the kernel
    // gives pages that a pipe lets go of back to their ring buffer, also to one that has been freed since
    // (buffer_ref_release() in kernel/trace/trace.c). Forks may have the pipe, too, so closing it would not do.
    static void drop_pipe(Reader& reader) {
        pollfd rest{reader.pipe[0].get(), POLLIN, 0};
        while (poll(&rest, 1, 0) == 1 && (rest.revents & POLLIN) != 0 &&
               read(reader.pipe[0].get(), reader.page.data(), reader.page.size()) > 0) {
        }
        reader.pipe[0].reset();
        reader.pipe[1].reset();
    }

    // Moves one sub-buffer or more; false when there was none.
    static bool move(Reader& reader, bool partial) {
        std::size_t got = 0;
        if (!partial) {
            got = available(splice(reader.raw.get(), nullptr, reader.pipe[1].get(), nullptr,
                                   kPipePages * reader.page.size(), SPLICE_F_MOVE | SPLICE_F_NONBLOCK),
                            reader);
            empty_pipe(reader, got);
        } else {
            got = available(read(reader.raw.get(), reader.page.data(), reader.page.size()), reader);
            if (got != 0) {
                // read(2) of a partly filled page gives only its head; in the file every page has its full size.
                std::fill(reader.page.begin() + static_cast<std::ptrdiff_t>(got), reader.page.end(), std::byte{0});
                got = reader.page.size();
                write_full(reader.spool.get(), reader.page, reader.spool_path);
            }
        }
        reader.bytes += got;
        return got != 0;
    }

    void run(Reader& reader) const {
        reader.tid = gettid();
        try {
            for (;;) {
                pollfd events[2] = {{stop_event.get(), POLLIN, 0}, {reader.raw.get(), POLLIN, 0}};
                if (poll(events, 2, kIdleMs) < 0 && errno != EINTR) {
                    throw_errno("poll", reader.spool_path);
                }
                if ((events[0].revents & POLLIN) != 0) {
                    return;
                }
                bool moved = false;
                while (move(reader, false)) {
                    moved = true;
                }
                if (!moved) {
                    // Readable, but not a whole page yet: poll() would return at once again.
                    (void)poll(events, 1, kIdleMs);
                }
            }
        } catch (...) {
            reader.failure = std::current_exception();
        }
    }

    void join() {
        const std::uint64_t one = 1;
        (void)!write(stop_event.get(), &one, sizeof(one));
        for (const auto& reader : readers) {
            if (reader->thread.joinable()) {
                reader->thread.join();
            }
        }
    }
};

BufferReaders::BufferReaders(const std::string& instance_dir, const std::string& spool_dir)
    : impl_(std::make_unique<Impl>()) {
    impl_->instance_dir = instance_dir;
    impl_->stop_event = Fd(eventfd(0, EFD_CLOEXEC));
    if (!impl_->stop_event) {
        throw_errno("eventfd");
    }
    const std::string header = tracefs_dir() + "/events/header_page";
    std::uint32_t size = parse_page_layout(read_file(header), false, sizeof(long), 4096, header, 0).page_size;
    // An instance's sub-buffers may be larger than what header_page says of the top level (from 6.8 on).
    const std::string size_file = instance_dir + "/buffer_subbuf_size_kb";
    if (access(size_file.c_str(), F_OK) == 0) {
        const std::string text = read_file(size_file);
        std::uint32_t kib = 0;
        std::from_chars(text.data(), text.data() + text.size(), kib);
        size = std::max(size, kib * 1024);
    }
    for (const std::uint32_t cpu : buffer_cpus(instance_dir)) {
        auto reader = std::make_unique<Impl::Reader>();
        reader->cpu = cpu;
        const std::string raw = instance_dir + "/per_cpu/cpu" + std::to_string(cpu) + "/trace_pipe_raw";
        reader->raw = open_file(raw, O_RDONLY | O_NONBLOCK);
        reader->spool_path = spool_dir + "/cpu" + std::to_string(cpu);
        // splice(2) refuses files opened with O_APPEND.
        reader->spool = open_file(reader->spool_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) {
            throw_errno("pipe2");
        }
        reader->pipe[0] = Fd(ends[0]);
        reader->pipe[1] = Fd(ends[1]);
        reader->page.resize(size);
        impl_->readers.push_back(std::move(reader));
    }
    try {
        for (const auto& reader : impl_->readers) {
            reader->thread = start_thread([impl = impl_.get(), target = reader.get()] { impl->run(*target); });
        }
    } catch (...) {
        impl_->join();  // a thread that still runs when it is destroyed ends the process
        throw;
    }
}

BufferReaders::~BufferReaders() {
    if (left_to_parent(impl_)) {
        return;
    }
    if (impl_ && !impl_->stopped) {
        impl_->join();
        for (const auto& reader : impl_->readers) {
            Impl::drop_pipe(*reader);
        }
    }
}

const std::vector<SpoolFile>& BufferReaders::stop() {
    if (impl_->stopped) {
        return impl_->files;
    }
    impl_->join();
    impl_->stopped = true;
    std::exception_ptr failure;
    for (const auto& reader : impl_->readers) {
        try {
            if (reader->failure) {
                std::rethrow_exception(reader->failure);
            }
            while (Impl::move(*reader, true)) {
            }
        } catch (...) {
            failure = std::current_exception();
        }
        Impl::drop_pipe(*reader);
        reader->raw.reset();
        reader->spool.reset();
        impl_->files.push_back({reader->cpu, reader->spool_path, reader->bytes.load()});
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
    return impl_->files;
}

std::vector<int> BufferReaders::thread_ids() const {
    std::vector<int> out;
    for (const auto& reader : impl_->readers) {
        while (reader->tid.load() == 0 && reader->thread.joinable()) {
            std::this_thread::yield();
        }
        out.push_back(reader->tid.load());
    }
    return out;
}

std::uint64_t BufferReaders::bytes() const noexcept {
    std::uint64_t sum = 0;
    for (const auto& reader : impl_->readers) {
        sum += reader->bytes.load();
    }
    return sum;
}

}  // namespace sampleblk::trace
