// SPDX-License-Identifier: MIT
#include "worker.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <limits>

#include "engines.hpp"
#include "futex.hpp"
#include "job_fixups.hpp"
#include "sampleblk/error.hpp"

namespace sampleblk::workload {

namespace {

struct rusage usage_now(bool thread) {
    struct rusage usage{};
    (void)::getrusage(thread ? RUSAGE_THREAD : RUSAGE_SELF, &usage);
    return usage;
}

std::uint64_t microseconds(const timeval& from, const timeval& to) {
    return static_cast<std::uint64_t>((to.tv_sec - from.tv_sec) * 1'000'000 + (to.tv_usec - from.tv_usec));
}

// What a file of an engine without files has for a descriptor: open, but never given to the kernel.
constexpr int no_descriptor = std::numeric_limits<int>::max();

std::uint64_t saturating_product(std::uint64_t a, std::uint64_t b) {
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

}  // namespace

Worker::Worker(const JobPlan& plan, JobState& state, std::atomic<std::uint32_t>& event, const Clock& clock)
    : plan_(plan), options_(plan.options), state_(state), event_(event), clock_(clock) {}

Worker::~Worker() {
    for (FileState& file : files_) {
        if (file.fd >= 0 && file.fd != no_descriptor) {
            (void)::close(file.fd);
        }
    }
}

void Worker::set_phase(Phase phase) noexcept {
    state_.phase.store(static_cast<std::uint32_t>(phase), std::memory_order_release);
    event_.fetch_add(1, std::memory_order_release);
    futex_wake(event_);
}

void Worker::fail(JobError error) noexcept {
    failed_ = true;
    if (state_.error == 0) {
        state_.error = error.code != 0 ? error.code : EIO;
        state_.error_operation.set(error.operation);
        state_.error_path.set(error.path);
        state_.error_detail.set(error.detail);
    }
}

void Worker::open(FileState& file) {
    if (!options_.has_files()) {
        file.fd = no_descriptor;
        return;
    }
    int flags = 0;
    if (!options_.trims) {
        flags |= options_.direct ? O_DIRECT : 0;
        flags |= options_.sync == SyncMode::sync ? O_SYNC : options_.sync == SyncMode::dsync ? O_DSYNC : 0;
        flags |= options_.create_on_open && options_.allow_file_create ? O_CREAT : 0;
    }
    const std::string& path = file.target->path;
    if (file.target->type != FileType::regular) {
        flags |= O_NOATIME;
    }
    if (options_.writes || options_.trims) {
        flags |= O_RDWR;
        if (file.target->type == FileType::regular && options_.allow_file_create && options_.writes) {
            flags |= O_CREAT;
        }
    }
    // No O_CLOEXEC: a job executes nothing while it has files open, and the flag would show as a
    // difference in every trace that is compared with fio's.
    for (;;) {
        file.fd = ::open(path.c_str(), flags, 0600);
        if (file.fd >= 0) {
            break;
        }
        if (errno == EPERM && (flags & O_NOATIME) != 0) {
            flags &= ~O_NOATIME;
        } else if (errno != EINTR || stopping()) {
            const int code = errno;
            throw SystemError("open", path, code,
                              code == EINVAL && options_.direct ? "does the file system support direct=1?" : "");
        }
    }
    file.kernel_position = 0;
    if (options_.invalidate) {
        invalidate(file);
    }
    const bool has_pages = file.target->type == FileType::regular || file.target->type == FileType::block;
    if (options_.fadvise_hint != FadviseHint::none && has_pages) {
        const bool random = options_.fadvise_hint == FadviseHint::random ||
                            (options_.fadvise_hint == FadviseHint::by_pattern && options_.random);
        // A refused hint costs nothing but speed, and fio goes on too.
        (void)::posix_fadvise(file.fd, static_cast<off_t>(file.begin), static_cast<off_t>(file.target->extent_bytes),
                              random ? POSIX_FADV_RANDOM : POSIX_FADV_SEQUENTIAL);
    }
}

void Worker::close(FileState& file) {
    if (file.fd < 0) {
        return;
    }
    if (file.fd == no_descriptor) {
        file.fd = -1;
        return;
    }
    if (options_.fsync_on_close && generator_->needs_sync() && ::fsync(file.fd) != 0) {
        fail({"fsync", file.target->path, errno, {}});
    }
    if (::close(std::exchange(file.fd, -1)) != 0 && errno != EINTR) {
        fail({"close", file.target->path, errno, {}});
    }
}

void Worker::invalidate(FileState& file) {
    if (!options_.has_files()) {
        return;
    }
    if (file.target->type == FileType::regular) {
        (void)::posix_fadvise(file.fd, static_cast<off_t>(file.begin), static_cast<off_t>(file.target->extent_bytes),
                              POSIX_FADV_DONTNEED);
    } else if (file.target->type == FileType::block) {
        // Only root may; others run with a warm cache, as with fio.
        (void)::ioctl(file.fd, BLKFLSBUF);
    }
}

int Worker::sync_file(FileState& file, SyncKind kind) const noexcept {
    switch (kind) {
        case SyncKind::fdatasync:
            return ::fdatasync(file.fd);
        case SyncKind::range:
            if (file.first_written == UINT64_MAX) {
                return 0;
            }
            return ::sync_file_range(file.fd, static_cast<off_t>(file.first_written),
                                     static_cast<off_t>(file.last_written - file.first_written),
                                     options_.sync_file_range_flags);
        default:
            return ::fsync(file.fd);
    }
}

void Worker::account_sync(std::uint64_t issue, std::uint64_t end) noexcept {
    generator_->count_sync();
    if (measuring_) {
        ++state_.sync_ios;
        if (record_clat_) {
            state_.sync_latency.add(clock_.ns(end - issue));
        }
    }
}

void Worker::account_more(const Io& io, std::uint64_t end) noexcept {
    DirectionStats& stats = state_.data[index_of(io.direction)];
    if ((features_ & separate_lat) != 0) {
        stats.lat.add(clock_.ns(end - io.start_ticks));
    }
}

bool Worker::survives(const Io& io, int code, const char* operation) {
    const std::uint8_t kind = io.direction == Direction::read ? continue_on_read : continue_on_write;
    if (code != ENOSPC && code != EDQUOT && (options_.continue_on_error & kind) != 0) {
        ++state_.error_count;
        return true;
    }
    if (options_.fill_device && (code == ENOSPC || code == EDQUOT)) {
        // What fill_device was asked to reach.
        state_.stopped_early = 0;
        total_limit_ios_ = total_issued_ios_;
        return true;
    }
    fail({operation, io.file->target->path, code,
          "at offset " + std::to_string(io.offset) + ", " + std::to_string(io.length) + " bytes"});
    return false;
}

void Worker::set_up() {
    state_.pid = static_cast<std::int32_t>(::getpid());
    state_.thread_id = static_cast<std::int32_t>(::syscall(SYS_gettid));
    files_.resize(plan_.files.size());
    for (std::size_t i = 0; i < files_.size(); ++i) {
        files_[i].target = &plan_.files[i];
        files_[i].number = static_cast<std::uint32_t>(i);
        files_[i].begin = plan_.files[i].offset_bytes;
    }
    generator_ = std::make_unique<Generator>(plan_, files_, *this);
    filler_ = std::make_unique<BufferFiller>(options_, plan_.seed);
    std::uint64_t longest = 0;
    for (std::size_t i = 0; i < data_directions; ++i) {
        longest = std::max(longest, options_.max_bs[i]);
    }
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    buffer_stride_ = (static_cast<std::size_t>(longest) + page - 1) / page * page;
    buffers_ = BufferMemory(options_, buffer_stride_ * options_.iodepth);
    if (options_.writes) {
        for (std::uint32_t i = 0; i < options_.iodepth; ++i) {
            filler_->fill({buffer_of(i), static_cast<std::size_t>(longest)}, 0);
        }
    }
    total_limit_bytes_ = options_.time_based ? UINT64_MAX : saturating_product(plan_.io_bytes, options_.loops);
    total_limit_ios_ = options_.number_ios == 0 ? UINT64_MAX : saturating_product(options_.number_ios, options_.loops);
    record_clat_ = !options_.disable_clat && options_.stats;
    features_ = !is_synchronous(options_.engine) && !options_.disable_lat ? separate_lat : 0U;
}

bool Worker::wait_for_start() {
    set_phase(Phase::ready);
    while (state_.go.load(std::memory_order_acquire) == 0) {
        if (stopping()) {
            return false;
        }
        futex_wait(state_.go, 0, UINT64_MAX);
    }
    return !stopping();
}

void Worker::start_measuring(std::uint64_t now) noexcept {
    measuring_ = true;
    began_ticks_ = now;
    began_ = ClockMark::take(clock_);
    usage_at_start_ = usage_now(options_.thread);
    deadline_ = options_.runtime_ns == 0 ? UINT64_MAX : now + clock_.ticks_for(options_.runtime_ns);
    last_bw_sample_ = last_iops_sample_ = now;
    const bool samples = !options_.disable_bw && options_.stats;
    next_bw_sample_ = samples ? now + clock_.ticks_for(options_.bwavgtime_ns) : UINT64_MAX;
    next_iops_sample_ = samples ? now + clock_.ticks_for(options_.iopsavgtime_ns) : UINT64_MAX;
    ramp_end_ = UINT64_MAX;
    plan_events();
}

void Worker::plan_events() noexcept {
    next_event_ = std::min({deadline_, ramp_end_, next_bw_sample_, next_iops_sample_});
}

void Worker::take_rate_samples(std::uint64_t now) noexcept {
    if (now >= next_bw_sample_) {
        const auto spent = static_cast<double>(clock_.ns(now - last_bw_sample_));
        for (std::size_t d = 0; d < data_directions; ++d) {
            const std::uint64_t bytes = state_.data[d].bytes - sampled_bytes_[d];
            if (state_.data[d].bytes != 0) {
                state_.data[d].bw_kib.add(static_cast<double>(bytes) * 1e9 / 1024 / spent);
            }
            sampled_bytes_[d] = state_.data[d].bytes;
        }
        last_bw_sample_ = now;
        next_bw_sample_ = now + clock_.ticks_for(options_.bwavgtime_ns);
    }
    if (now >= next_iops_sample_) {
        const auto spent = static_cast<double>(clock_.ns(now - last_iops_sample_));
        for (std::size_t d = 0; d < data_directions; ++d) {
            const std::uint64_t ios = state_.data[d].ios - sampled_ios_[d];
            if (state_.data[d].ios != 0) {
                state_.data[d].iops.add(static_cast<double>(ios) * 1e9 / spent);
            }
            sampled_ios_[d] = state_.data[d].ios;
        }
        last_iops_sample_ = now;
        next_iops_sample_ = now + clock_.ticks_for(options_.iopsavgtime_ns);
    }
}

bool Worker::on_time(std::uint64_t now) {
    if (now >= ramp_end_) {
        set_phase(Phase::running);
        start_measuring(now);
    }
    take_rate_samples(now);
    plan_events();
    if (now >= deadline_) {
        state_.runtime_reached = 1;
        return false;
    }
    return true;
}

bool Worker::another_pass(std::uint64_t& loops_left) const noexcept {
    if (failed_ || stopping() || state_.runtime_reached != 0) {
        return false;
    }
    if (options_.time_based) {
        return true;
    }
    if (loops_left != 0) {
        --loops_left;
        return true;
    }
    if (total_issued_ios_ >= total_limit_ios_) {
        return false;
    }
    // io_size above size: more passes over the same files.
    const std::uint64_t largest = *std::max_element(options_.max_bs.begin(), options_.max_bs.end());
    return plan_.io_bytes > plan_.size_bytes && total_issued_bytes_ < total_limit_bytes_ &&
           total_limit_bytes_ - total_issued_bytes_ >= largest;
}

void Worker::close_all() {
    for (FileState& file : files_) {
        close(file);
    }
}

void Worker::final_syncs() {
    if (!(options_.end_fsync || options_.fsync_on_close) || !generator_->needs_sync()) {
        return;
    }
    for (FileState& file : files_) {
        const bool opened_here = !file.is_open();
        if (opened_here) {
            open(file);
        }
        const std::uint64_t issue = clock_.ticks();
        if (::fsync(file.fd) != 0) {
            fail({"fsync", file.target->path, errno, {}});
        }
        if (measuring_ && record_clat_) {
            state_.sync_latency.add(clock_.ns(clock_.ticks() - issue));
        }
        if (opened_here) {
            close(file);
        }
    }
    generator_->count_sync();
}

void Worker::run_pass() {
    pass_issued_bytes_ = 0;
    pass_limit_bytes_ = options_.time_based ? UINT64_MAX : plan_.size_bytes;
    if (options_.writes && options_.random && options_.norandommap) {
        pass_limit_bytes_ = std::max(pass_limit_bytes_, plan_.io_bytes);
    }
    generator_->begin_pass();
    run_engine_loop(*this);
    if (!failed_ && !stopping()) {
        final_syncs();
    }
}

void Worker::run_passes() {
    std::uint64_t loops_left = options_.loops;
    bool first = true;
    while (another_pass(loops_left)) {
        if (!first) {
            close_all();
            if (options_.unlink_each_loop) {
                remove_files(plan_);
            }
        }
        first = false;
        const std::uint64_t issued_before = total_issued_ios_;
        run_pass();
        const std::uint64_t now = clock_.ticks();
        for (std::size_t d = 0; d < data_directions; ++d) {
            if (state_.data[d].bytes != 0) {
                state_.data[d].runtime_ns = clock_.ns(now - began_ticks_);
            }
        }
        state_.loop.fetch_add(1, std::memory_order_relaxed);
        if (total_issued_ios_ == issued_before) {
            break;  // a pass that finds nothing to do would go on for ever
        }
    }
    close_all();
}

void Worker::finish() noexcept {
    const struct rusage usage = usage_now(options_.thread);
    const ClockMark end = ClockMark::take(clock_);
    state_.runtime_ns = end.monotonic_ns - began_.monotonic_ns;
    state_.used_tsc = clock_.uses_tsc() ? 1 : 0;
    state_.clock_drift_ppm = end.drift_ppm(clock_, began_);
    state_.user_us = microseconds(usage_at_start_.ru_utime, usage.ru_utime);
    state_.system_us = microseconds(usage_at_start_.ru_stime, usage.ru_stime);
    state_.voluntary_switches = static_cast<std::uint64_t>(usage.ru_nvcsw - usage_at_start_.ru_nvcsw);
    state_.involuntary_switches = static_cast<std::uint64_t>(usage.ru_nivcsw - usage_at_start_.ru_nivcsw);
    state_.major_faults = static_cast<std::uint64_t>(usage.ru_majflt - usage_at_start_.ru_majflt);
    state_.minor_faults = static_cast<std::uint64_t>(usage.ru_minflt - usage_at_start_.ru_minflt);
    if (is_synchronous(options_.engine)) {
        // Known without counting: one at a time, each submitted and completed alone.
        std::uint64_t ios = state_.sync_ios;
        for (DirectionStats& stats : state_.data) {
            ios += stats.ios;
            if (!options_.disable_lat && stats.lat.count == 0) {
                stats.lat = stats.clat;
            }
        }
        state_.depth_map[0] = ios;
        state_.submit_map[1] = state_.complete_map[1] = ios;
        state_.submits = state_.completes = ios;
    }
    for (DirectionStats& stats : state_.data) {
        if (stats.bytes != 0 && stats.runtime_ns == 0) {
            stats.runtime_ns = state_.runtime_ns;  // an error ended the first pass
        }
    }
    state_.stopped_early = stopping() ? 1 : 0;
    state_.ended_ns.store(end.monotonic_ns, std::memory_order_relaxed);
}

void Worker::run() noexcept {
    try {
        set_up();
        if (wait_for_start()) {
            const std::uint64_t now = clock_.ticks();
            state_.started_ns.store(Clock::monotonic_ns(), std::memory_order_relaxed);
            set_phase(options_.ramp_time_ns != 0 ? Phase::ramp : Phase::running);
            start_measuring(now);
            if (options_.ramp_time_ns != 0) {
                measuring_ = false;
                ramp_end_ = now + clock_.ticks_for(options_.ramp_time_ns);
                deadline_ = next_bw_sample_ = next_iops_sample_ = UINT64_MAX;
                plan_events();
            }
            run_passes();
            finish();
        }
    } catch (const SystemError& error) {
        fail({error.operation(), error.path(), error.code(), {}});
        finish();
    } catch (const std::exception& error) {
        fail({"job", options_.name, EINVAL, error.what()});
        finish();
    }
    set_phase(Phase::finished);
}

}  // namespace sampleblk::workload
