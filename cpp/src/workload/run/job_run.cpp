// SPDX-License-Identifier: MIT
#include "sampleblk/workload/job_run.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "pattern/clock.hpp"
#include "pattern/plan.hpp"
#include "pattern/random.hpp"
#include "run/disk_stats.hpp"
#include "run/job_processes.hpp"
#include "run/job_schedule.hpp"
#include "run/layout.hpp"
#include "run/progress_meter.hpp"
#include "run/shared_memory.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fork.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/signals.hpp"
#include "sampleblk/text.hpp"

namespace sampleblk::workload {

namespace {

constexpr std::uint64_t interrupt_interval_ns = 20'000'000;
// What randrepeat=1, the default, seeds from: any number, but the same in every run.
constexpr std::uint64_t repeatable_seed = 0x53616d706c65626b;

std::uint64_t seed_of(const JobOptions& job) {
    std::uint64_t base = repeatable_seed;
    if (job.randseed_given) {
        base = job.randseed;
    } else if (!job.randrepeat) {
        if (::getrandom(&base, sizeof(base), 0) != sizeof(base)) {
            throw_errno("getrandom");
        }
    }
    return mix64(base ^ mix64(job.job_number + 1));
}

std::vector<JobPlan> lay_out(const JobSet& set) {
    std::vector<JobPlan> plans;
    for (const JobOptions& options : set.jobs) {
        check_interrupt();
        plans.push_back(prepare_files(options, seed_of(options)));
    }
    return plans;
}

std::vector<std::uint64_t> log_entries_of(const std::vector<JobPlan>& plans) {
    std::vector<std::uint64_t> entries;
    entries.reserve(plans.size());
    for (const JobPlan& plan : plans) {
        entries.push_back(plan.options.io_log_entries);
    }
    return entries;
}

std::string error_text(const JobState& state) {
    std::string text(state.error_operation.view());
    if (!state.error_path.view().empty()) {
        text += " '" + std::string(state.error_path.view()) + "'";
    }
    // EILSEQ is what fio ends with too, and EINTR stands for a signal that ended a process; their texts ("multibyte or
    // wide character", "interrupted system call") would only mislead.
    const bool differs = state.error == EILSEQ && state.error_operation.view() == "verify";
    const bool killed = state.error == EINTR && state.error_operation.view() == job_process;
    if (!killed) {
        text += differs ? std::string(": not what was written") : std::string(": ") + std::strerror(state.error);
    }
    if (!state.error_detail.view().empty()) {
        text += ": " + std::string(state.error_detail.view());
    }
    return printable(text);
}

std::int64_t wall_clock_ms() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

std::vector<HeatCell> cells_of(const HeatSeries& series) {
    std::vector<HeatCell> cells;
    std::uint64_t begin = 0;
    for (std::uint32_t slot = 0; slot < series.used; ++slot) {
        const HeatColumn& column = series.slots[slot];
        for (std::size_t d = 0; d < data_directions; ++d) {
            for (std::size_t bin = 0; bin < HistogramGeometry::bins; ++bin) {
                if (column.bins[d][bin] != 0) {
                    cells.push_back({.begin_ns = begin,
                                     .end_ns = column.end_ns,
                                     .count = column.bins[d][bin],
                                     .bin = static_cast<std::uint16_t>(bin),
                                     .direction = static_cast<std::uint8_t>(d)});
                }
            }
        }
        begin = column.end_ns;
    }
    return cells;
}

// What a job that is at work, or died at it, has not summed up: until now, or until its death.
void sum_up(const JobState& state, const JobOptions& options, Measured& measured) {
    const std::uint64_t since = state.measured_since_ns.load(std::memory_order_relaxed);
    if (measured.runtime_ns != 0 || since == 0) {
        return;
    }
    const std::uint64_t died = state.died_ns.load(std::memory_order_relaxed);
    const std::uint64_t until = died != 0 ? died : Clock::monotonic_ns();
    const std::uint64_t pass = state.pass_since_ns.load(std::memory_order_relaxed);
    const std::uint64_t verify = state.verify_since_ns.load(std::memory_order_relaxed);
    measured.runtime_ns = until - since;
    for (std::size_t d = 0; d < data_directions; ++d) {
        const bool reads = d == index_of(Direction::read);
        const std::uint64_t begin = reads && (verify != 0 || !options.reads_in_passes()) ? verify : pass;
        if (begin != 0 && measured.data[d].bytes != 0) {
            measured.data[d].runtime_ns += until - std::max(begin, since);
        }
    }
    measured.settle(options.disable_lat);
}

// A job's numbers out of the shared memory. Only what it used is read, for reading a page makes it.
std::shared_ptr<const JobResult> read_job(const JobPlan& plan, const JobShared& shared,
                                          std::span<const IoLogEntry> log) {
    const JobState& state = shared.state;
    auto result = std::make_shared<JobResult>();
    result->options = plan.options;
    result->pid = plan.options.thread ? state.thread_id : state.pid;
    result->seed = plan.seed;
    result->error = state.error;
    result->error_text = state.error == 0 ? std::string() : error_text(state);
    result->measured.merge(state.measured);
    result->measured.jobs = 1;
    sum_up(state, plan.options, result->measured);
    for (std::uint32_t i = 0; i < std::min<std::size_t>(state.mismatches.count, mismatches_kept); ++i) {
        const VerifyMismatch& mismatch = state.mismatches.entries[i];
        result->mismatches.push_back({mismatch, plan.files.at(mismatch.file).path});
    }
    result->rates.assign(shared.rates.slots.begin(), shared.rates.slots.begin() + shared.rates.used);
    result->heat = cells_of(shared.heat);
    const std::uint64_t used = std::min<std::uint64_t>(state.io_log_used.load(std::memory_order_acquire), log.size());
    result->io_log.assign(log.begin(), log.begin() + static_cast<std::ptrdiff_t>(used));
    for (const FileTarget& file : plan.files) {
        result->paths.push_back(file.path);
    }
    return result;
}

}  // namespace

struct JobRun::Impl {
    JobSet set;
    std::vector<JobPlan> plans;
    SharedMemory shared;
    JobProcesses processes;  // the supervising thread's
    std::vector<std::string> messages;
    SchedulerChanges schedulers;

    mutable std::mutex mutex;  // for what follows, but the thread itself
    std::condition_variable changed;
    JobSchedule schedule;
    ProgressMeter meter;
    DiskWatch disks;
    std::vector<DiskStats> disk_results;
    int fork_errno = 0;
    const pid_t made_by = ::getpid();
    bool forked = false;
    bool over = false;
    std::int64_t finished_ms = 0;
    std::uint64_t began_ns = 0;
    std::uint64_t ended_ns = 0;
    std::thread supervisor;

    explicit Impl(JobSet jobs)
        : set(std::move(jobs)),
          plans(lay_out(set)),
          shared(log_entries_of(plans)),
          processes(plans, shared),
          schedule(plans, shared),
          meter(plans, shared) {
        bool measures = false;
        for (const JobPlan& plan : plans) {
            const JobOptions& options = plan.options;
            messages.insert(messages.end(), plan.messages.begin(), plan.messages.end());
            measures = measures || options.clock != ClockSource::clock_gettime;
            for (const FileTarget& file : plan.files) {
                if (!options.ioscheduler.empty()) {
                    schedulers.change(file.path, options.ioscheduler);
                }
                if (options.has_files() && options.disk_util) {
                    disks.add(file.path);
                }
            }
        }
        if (measures) {
            (void)Clock::best();  // once, before the fork, for all
        }
    }

    // --- the supervising thread. It forks, so that a job's parent-death signal is bound to a
    // thread that lives as long as the run: the signal comes when the forking *thread* ends.
    void supervise() {
        const int error = processes.fork();
        {
            const std::lock_guard lock(mutex);
            fork_errno = error;
            forked = true;
        }
        changed.notify_all();
        for (;;) {
            processes.reap();
            std::uint64_t wait_ns = 0;
            {
                const std::lock_guard lock(mutex);
                schedule.step();
                if (schedule.grace_expired()) {
                    processes.kill();
                } else if (schedule.someone_is_to_stop()) {
                    processes.interrupt();
                }
                if (processes.all_gone()) {
                    finish();
                }
                wait_ns = schedule.next_wait_ns();
            }
            changed.notify_all();
            if (over) {
                return;
            }
            processes.wait(wait_ns);
        }
    }

    void finish() {
        disk_results = disks.end();
        schedulers.undo();
        finished_ms = wall_clock_ms();
        ended_ns = Clock::monotonic_ns();
        over = true;
    }

    // Whether every job waits for the start signal. Throws SystemError when one could not be forked.
    [[nodiscard]] bool ready() const {
        if (forked && fork_errno != 0) {
            throw SystemError("fork", {}, fork_errno);
        }
        bool all = forked;
        for (std::size_t i = 0; i < plans.size(); ++i) {
            all = all && phase_of(shared.state(i)) != Phase::created;
        }
        return all;
    }
};

JobRun::JobRun(JobSet set) : impl_(std::make_unique<Impl>(std::move(set))) {
    Impl& impl = *impl_;
    impl.supervisor = start_thread([&impl] { impl.supervise(); });
    try {
        for (;;) {
            {
                std::unique_lock lock(impl.mutex);
                impl.changed.wait_for(lock, std::chrono::nanoseconds(interrupt_interval_ns));
                if (impl.ready()) {
                    return;
                }
            }
            check_interrupt();
        }
    } catch (...) {
        close();
        throw;
    }
}

JobRun::~JobRun() {
    if (left_to_parent(impl_)) {
        return;
    }
    close();
}

std::vector<int> JobRun::pids() const {
    std::vector<int> out;
    out.reserve(impl_->plans.size());
    for (std::size_t i = 0; i < impl_->plans.size(); ++i) {
        out.push_back(impl_->shared.state(i).pid);
    }
    return out;
}

std::vector<int> JobRun::thread_ids() const {
    std::vector<int> out;
    out.reserve(impl_->plans.size());
    for (std::size_t i = 0; i < impl_->plans.size(); ++i) {
        out.push_back(impl_->shared.state(i).thread_id);
    }
    return out;
}

const std::vector<std::string>& JobRun::messages() const {
    return impl_->messages;
}

void JobRun::start() {
    const std::lock_guard lock(impl_->mutex);
    if (!impl_->schedule.start_asked()) {
        impl_->disks.begin();
        impl_->began_ns = Clock::monotonic_ns();
        impl_->schedule.start();
    }
}

bool JobRun::wait(std::uint64_t timeout_ns) {
    const std::uint64_t begin = Clock::monotonic_ns();
    for (;;) {
        {
            std::unique_lock lock(impl_->mutex);
            const std::uint64_t spent = Clock::monotonic_ns() - begin;
            if (!impl_->over && spent < timeout_ns) {
                impl_->changed.wait_for(lock,
                                        std::chrono::nanoseconds(std::min(interrupt_interval_ns, timeout_ns - spent)));
            }
            if (impl_->over) {
                return true;
            }
        }
        check_interrupt();
        if (Clock::monotonic_ns() - begin >= timeout_ns) {
            return false;
        }
    }
}

void JobRun::stop(const std::string& reason) {
    const std::lock_guard lock(impl_->mutex);
    impl_->schedule.stop(reason);
    impl_->shared.wake_supervisor();
}

RunProgress JobRun::progress() {
    const std::lock_guard lock(impl_->mutex);
    return impl_->meter.read();
}

RunResult JobRun::result() const {
    const std::lock_guard lock(impl_->mutex);
    RunResult result;
    result.source = impl_->set.source;
    result.globals = impl_->set.globals;
    result.notices = impl_->set.notices;
    result.messages = impl_->messages;
    for (std::size_t i = 0; i < impl_->plans.size(); ++i) {
        result.jobs.push_back(read_job(impl_->plans[i], impl_->shared.job(i), impl_->shared.log(i)));
    }
    result.disks = impl_->disk_results;
    result.stop_reason = impl_->schedule.stop_reason();
    result.finished_at_ms = impl_->over ? impl_->finished_ms : wall_clock_ms();
    if (impl_->began_ns != 0) {
        result.elapsed_ns = (impl_->over ? impl_->ended_ns : Clock::monotonic_ns()) - impl_->began_ns;
    }
    result.clock_note = Clock::best().why_not();
    return result;
}

void JobRun::close() noexcept {
    if (!impl_) {
        return;
    }
    {
        const std::lock_guard lock(impl_->mutex);
        if (!impl_->over) {
            impl_->schedule.stop("closed");
        }
        impl_->shared.wake_supervisor();
    }
    if (impl_->supervisor.joinable()) {
        impl_->supervisor.join();
    }
}

}  // namespace sampleblk::workload
