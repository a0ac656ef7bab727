// SPDX-License-Identifier: MIT
#include "sampleblk/workload/job_run.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <thread>

#include "disk_stats.hpp"
#include "futex.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/signals.hpp"
#include "worker.hpp"

namespace sampleblk::workload {

namespace {

constexpr std::uint64_t millisecond_ns = 1'000'000;
constexpr std::uint64_t watch_interval_ns = 50 * millisecond_ns;
constexpr std::uint64_t interrupt_interval_ns = 20 * millisecond_ns;
// After a stop a job has this long to come back from the system call that it is in.
constexpr std::uint64_t stop_grace_ns = 20'000 * millisecond_ns;
// What randrepeat=1, the default, seeds from: any number, but the same in every run.
constexpr std::uint64_t repeatable_seed = 0x53616d706c65626b;
// Interrupts a system call that a stopped job sleeps in. It has a handler that does nothing.
constexpr int nudge_signal = SIGUSR1;

// What all processes of a run see. The job states follow it in the mapping.
struct SharedHead {
    std::atomic<std::uint32_t> event{0};  // futex: counts phase changes
};

class SharedMemory {
  public:
    // `log_entries` counts the per-I/O log of each job.
    explicit SharedMemory(const std::vector<std::uint64_t>& log_entries) : jobs_(log_entries.size()) {
        const std::size_t states = sizeof(SharedHead) + alignof(JobShared) + jobs_ * sizeof(JobShared);
        std::size_t end = (states + alignof(IoLogEntry) - 1) / alignof(IoLogEntry) * alignof(IoLogEntry);
        for (const std::uint64_t entries : log_entries) {
            logs_.emplace_back(end, static_cast<std::size_t>(entries));
            end += static_cast<std::size_t>(entries) * sizeof(IoLogEntry);
        }
        bytes_ = end;
        // Without a reservation: a log takes memory as it fills, not before.
        base_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base_ == MAP_FAILED) {
            base_ = nullptr;
            throw_errno("mmap");
        }
        // Anonymous memory is zero, which is what every member starts as: constructing the large
        // arrays would only touch pages that a job may never use. The atomics are lock-free.
        head_ = static_cast<SharedHead*>(base_);
        auto address = reinterpret_cast<std::uintptr_t>(head_ + 1);
        address = (address + alignof(JobShared) - 1) / alignof(JobShared) * alignof(JobShared);
        states_ = reinterpret_cast<JobShared*>(address);
    }
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;
    ~SharedMemory() {
        if (base_ != nullptr) {
            (void)::munmap(base_, bytes_);
        }
    }
    [[nodiscard]] std::atomic<std::uint32_t>& event() const noexcept { return head_->event; }
    [[nodiscard]] JobShared& job(std::size_t i) const noexcept { return states_[i]; }
    [[nodiscard]] JobState& state(std::size_t i) const noexcept { return states_[i].state; }
    [[nodiscard]] std::span<IoLogEntry> log(std::size_t i) const noexcept {
        auto* first = reinterpret_cast<IoLogEntry*>(static_cast<std::byte*>(base_) + logs_[i].first);
        return {first, logs_[i].second};
    }

  private:
    std::size_t jobs_;
    std::size_t bytes_ = 0;
    void* base_ = nullptr;
    SharedHead* head_ = nullptr;
    JobShared* states_ = nullptr;
    std::vector<std::pair<std::size_t, std::size_t>> logs_;  // offset, entries
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);

Phase phase_of(const JobState& state) {
    return static_cast<Phase>(state.phase.load(std::memory_order_acquire));
}

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

void do_nothing(int /*signal*/) {}

// The first things a forked job does. Nothing here may take a lock that another thread of the parent
// could have held at the fork.
void become_job(pid_t parent) {
    // The interrupt hook belongs to whoever embeds the core, and that is not us any more.
    set_interrupt_check(nullptr);
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) {
        ::_exit(1);  // it died before we could ask to follow it
    }
    // Ctrl-C goes to the whole terminal group; the parent decides what it means.
    for (const int ignored : {SIGINT, SIGQUIT, SIGHUP, SIGPIPE, SIGTSTP}) {
        (void)::signal(ignored, SIG_IGN);
    }
    for (const int fatal : {SIGTERM, SIGALRM, SIGCHLD, SIGUSR2}) {
        (void)::signal(fatal, SIG_DFL);
    }
    struct sigaction nudge{};
    nudge.sa_handler = do_nothing;  // without SA_RESTART, so that the call returns EINTR
    (void)::sigaction(nudge_signal, &nudge, nullptr);
    sigset_t none;
    (void)::sigemptyset(&none);
    (void)::pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

// One process, and the jobs that are its.
struct Member {
    pid_t pid = -1;
    bool gone = false;
    std::vector<std::size_t> jobs;
};

}  // namespace

struct JobRun::Impl {
    JobSet set;
    std::vector<JobPlan> plans;
    std::unique_ptr<SharedMemory> shared;
    std::vector<Member> members;
    std::vector<std::string> messages;
    DiskWatch disks;
    std::vector<DiskStats> disk_results;
    std::vector<SchedulerChange> schedulers;

    mutable std::mutex mutex;
    std::condition_variable changed;
    std::thread supervisor;
    std::string fork_error;
    int fork_errno = 0;
    bool forked = false;
    bool start_asked = false;
    bool over = false;
    bool stop_asked = false;
    std::string stop_reason;
    std::uint64_t stop_at_ns = 0;
    std::int64_t finished_ms = 0;
    std::vector<bool> started;
    std::vector<std::uint64_t> begin_at_ns;  // startdelay

    std::uint64_t last_ns = 0;
    std::uint64_t last_bytes = 0;
    std::uint64_t last_ios = 0;

    // --- the supervising thread. It forks, so that a job's parent-death signal is bound to a
    // thread that lives as long as the run: the signal comes when the forking *thread* ends.
    void supervise() {
        fork_members();
        {
            const std::lock_guard lock(mutex);
            forked = true;
        }
        changed.notify_all();
        for (;;) {
            const std::uint32_t seen = shared->event().load(std::memory_order_acquire);
            reap();
            {
                const std::lock_guard lock(mutex);
                schedule();
                if (all_gone()) {
                    disk_results = disks.end();
                    schedulers.clear();
                    finished_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                                      std::chrono::system_clock::now().time_since_epoch())
                                      .count();
                    over = true;
                }
            }
            changed.notify_all();
            if (over) {
                return;
            }
            futex_wait(shared->event(), seen, next_wait_ns());
        }
    }

    void fork_members() {
        const SignalsBlocked until_the_job_is_set_up;
        const pid_t parent = ::getpid();
        for (Member& member : members) {
            const pid_t pid = ::fork();
            if (pid == 0) {
                become_job(parent);
                run_member(member);
                ::_exit(0);
            }
            if (pid < 0) {
                fork_errno = errno;
                fork_error = "fork";
                break;
            }
            member.pid = pid;
        }
        if (fork_errno != 0) {
            for (std::size_t i = 0; i < plans.size(); ++i) {
                ask_to_stop(shared->state(i));
            }
            for (Member& member : members) {
                member.gone = member.pid < 0;
            }
        }
    }

    // In the job's process.
    void run_member(const Member& member) {
        const Clock clock = clock_for(plans[member.jobs.front()].options);
        const auto run_one = [&](std::size_t i) {
            Worker worker(plans[i], shared->job(i), shared->log(i), shared->event(), clock);
            worker.run();
        };
        if (member.jobs.size() == 1) {
            run_one(member.jobs.front());
            return;
        }
        std::vector<std::thread> threads;
        threads.reserve(member.jobs.size());
        for (const std::size_t i : member.jobs) {
            threads.emplace_back(run_one, i);
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    }

    static Clock clock_for(const JobOptions& options) {
        return options.clock == ClockSource::clock_gettime ? Clock() : Clock::best();
    }

    void reap() {
        for (Member& member : members) {
            if (member.gone) {
                continue;
            }
            int status = 0;
            const pid_t got = ::waitpid(member.pid, &status, WNOHANG);
            if (got == 0 || (got < 0 && errno == EINTR)) {
                continue;
            }
            member.gone = true;
            for (const std::size_t i : member.jobs) {
                JobState& state = shared->state(i);
                if (phase_of(state) == Phase::finished) {
                    continue;
                }
                // Killed, or reaped by somebody else's waitpid(-1): its last numbers stay.
                if (state.error == 0) {
                    state.error = got == member.pid && WIFSIGNALED(status) ? EINTR : ECHILD;
                    state.error_operation.set("job process");
                    if (got == member.pid && WIFSIGNALED(status)) {
                        state.error_detail.set("killed by signal " + std::to_string(WTERMSIG(status)));
                    }
                }
                state.stopped_early = 1;
                state.phase.store(static_cast<std::uint32_t>(Phase::finished), std::memory_order_release);
            }
        }
    }

    [[nodiscard]] bool all_gone() const {
        return std::ranges::all_of(members, [](const Member& member) { return member.gone; });
    }

    [[nodiscard]] bool finished(std::size_t i) const { return phase_of(shared->state(i)) == Phase::finished; }

    static void ask_to_stop(JobState& state) {
        state.stop.store(1, std::memory_order_release);
        futex_wake(state.stop);
        // A job that never got the word waits on the other futex.
        state.go.fetch_or(2, std::memory_order_release);
        futex_wake(state.go);
    }

    void stop_all(const std::string& reason) {
        if (!stop_asked) {
            stop_asked = true;
            stop_reason = reason;
            stop_at_ns = Clock::monotonic_ns();
        }
        for (std::size_t i = 0; i < plans.size(); ++i) {
            ask_to_stop(shared->state(i));
        }
    }

    void schedule() {
        const std::uint64_t now = Clock::monotonic_ns();
        for (std::size_t i = 0; i < plans.size(); ++i) {
            const JobState& state = shared->state(i);
            if (!finished(i)) {
                continue;
            }
            if ((state.error == ENOSPC || state.error == EDQUOT) && !stop_asked) {
                stop_all("no space left on the device of job '" + plans[i].options.name + "'");
            }
            const JobOptions& options = plans[i].options;
            if (options.exitall || (options.exitall_on_error && state.error != 0)) {
                stop_others(i);
            }
        }
        if (stop_asked) {
            nudge();
            return;
        }
        if (start_asked) {
            start_due(now);
        }
    }

    void stop_others(std::size_t ended) {
        const JobOptions& options = plans[ended].options;
        for (std::size_t i = 0; i < plans.size(); ++i) {
            const bool same_group = plans[i].options.group_id == options.group_id;
            const bool meant = options.exit_what == ExitWhat::all ||
                               (options.exit_what == ExitWhat::group && same_group) ||
                               (options.exit_what == ExitWhat::stonewall && started[i]);
            if (meant && !finished(i)) {
                ask_to_stop(shared->state(i));
            }
        }
    }

    // Calls back jobs that sleep in the kernel, and in the end kills them.
    void nudge() const {
        const bool patience_over = Clock::monotonic_ns() > stop_at_ns + stop_grace_ns;
        for (const Member& member : members) {
            if (!member.gone && member.pid > 0) {
                (void)::kill(member.pid, patience_over ? SIGKILL : nudge_signal);
            }
        }
    }

    // Starts the jobs whose turn has come: up to the next stonewall, after those that are waited for.
    void start_due(std::uint64_t now) {
        bool earlier_all_finished = true;
        for (std::size_t i = 0; i < plans.size(); ++i) {
            const JobOptions& options = plans[i].options;
            if (options.stonewall && !earlier_all_finished) {
                return;
            }
            if (!started[i] && wait_is_over(i) && phase_of(shared->state(i)) == Phase::ready) {
                if (begin_at_ns[i] == 0) {
                    begin_at_ns[i] = now + delay_of(i);
                }
                if (now >= begin_at_ns[i]) {
                    started[i] = true;
                    JobState& state = shared->state(i);
                    state.go.fetch_or(1, std::memory_order_release);
                    futex_wake(state.go);
                }
            }
            earlier_all_finished = earlier_all_finished && finished(i);
        }
    }

    [[nodiscard]] bool wait_is_over(std::size_t i) const {
        const std::string& name = plans[i].options.wait_for;
        if (name.empty()) {
            return true;
        }
        for (std::size_t other = 0; other < i; ++other) {
            if (plans[other].options.name == name && !finished(other)) {
                return false;
            }
        }
        return true;
    }

    [[nodiscard]] std::uint64_t delay_of(std::size_t i) const {
        const JobOptions& options = plans[i].options;
        if (options.startdelay_upper_ns <= options.startdelay_ns) {
            return options.startdelay_ns;
        }
        Random random = stream(plans[i].seed, Stream::start_delay);
        return options.startdelay_ns + random.below(options.startdelay_upper_ns - options.startdelay_ns);
    }

    [[nodiscard]] std::uint64_t next_wait_ns() const {
        const std::uint64_t now = Clock::monotonic_ns();
        std::uint64_t wait = watch_interval_ns;
        for (std::size_t i = 0; i < plans.size(); ++i) {
            if (!started[i] && begin_at_ns[i] > now) {
                wait = std::min(wait, begin_at_ns[i] - now);
            }
        }
        return wait;
    }

    void join() {
        if (supervisor.joinable()) {
            supervisor.join();
        }
    }
};

JobRun::JobRun(JobSet set) : impl_(std::make_unique<Impl>()) {
    Impl& impl = *impl_;
    impl.set = std::move(set);
    bool measures = false;
    for (const JobOptions& options : impl.set.jobs) {
        check_interrupt();
        impl.plans.push_back(prepare_files(options, seed_of(options)));
        const JobPlan& plan = impl.plans.back();
        impl.messages.insert(impl.messages.end(), plan.messages.begin(), plan.messages.end());
        measures = measures || options.clock != ClockSource::clock_gettime;
    }
    if (measures) {
        (void)Clock::best();  // once, before the fork, for all
    }
    std::vector<std::uint64_t> log_entries;
    log_entries.reserve(impl.plans.size());
    for (const JobPlan& plan : impl.plans) {
        log_entries.push_back(plan.options.io_log_entries);
    }
    impl.shared = std::make_unique<SharedMemory>(log_entries);
    impl.started.assign(impl.plans.size(), false);
    impl.begin_at_ns.assign(impl.plans.size(), 0);
    Member threads;
    for (std::size_t i = 0; i < impl.plans.size(); ++i) {
        if (impl.plans[i].options.create_only) {
            impl.shared->state(i).phase.store(static_cast<std::uint32_t>(Phase::finished));
        } else if (impl.plans[i].options.thread) {
            threads.jobs.push_back(i);
        } else {
            impl.members.push_back({.pid = -1, .gone = false, .jobs = {i}});
        }
        if (!impl.plans[i].options.ioscheduler.empty()) {
            for (const FileTarget& file : impl.plans[i].files) {
                impl.schedulers.emplace_back(file.path, impl.plans[i].options.ioscheduler);
            }
        }
        if (impl.plans[i].options.has_files() && impl.plans[i].options.disk_util) {
            for (const FileTarget& file : impl.plans[i].files) {
                impl.disks.add(file.path);
            }
        }
    }
    if (!threads.jobs.empty()) {
        impl.members.push_back(std::move(threads));
    }
    {
        const SignalsBlocked in_the_thread;
        impl.supervisor = std::thread([&impl] { impl.supervise(); });
    }
    for (;;) {
        std::unique_lock lock(impl.mutex);
        impl.changed.wait_for(lock, std::chrono::nanoseconds(interrupt_interval_ns));
        if (impl.forked && impl.fork_errno != 0) {
            lock.unlock();
            close();
            throw SystemError(impl.fork_error, {}, impl.fork_errno);
        }
        bool ready = impl.forked;
        for (std::size_t i = 0; i < impl.plans.size(); ++i) {
            ready = ready && phase_of(impl.shared->state(i)) != Phase::created;
        }
        if (ready) {
            return;
        }
        lock.unlock();
        try {
            check_interrupt();
        } catch (...) {
            close();
            throw;
        }
    }
}

JobRun::~JobRun() {
    close();
}

std::vector<int> JobRun::pids() const {
    std::vector<int> out;
    out.reserve(impl_->plans.size());
    for (std::size_t i = 0; i < impl_->plans.size(); ++i) {
        out.push_back(impl_->shared->state(i).pid);
    }
    return out;
}

std::vector<int> JobRun::thread_ids() const {
    std::vector<int> out;
    out.reserve(impl_->plans.size());
    for (std::size_t i = 0; i < impl_->plans.size(); ++i) {
        out.push_back(impl_->shared->state(i).thread_id);
    }
    return out;
}

const std::vector<std::string>& JobRun::messages() const {
    return impl_->messages;
}

std::uint64_t JobRun::layout_bytes() const {
    std::uint64_t bytes = 0;
    for (const JobPlan& plan : impl_->plans) {
        bytes += plan.layout_bytes;
    }
    return bytes;
}

void JobRun::start() {
    {
        const std::lock_guard lock(impl_->mutex);
        if (impl_->start_asked) {
            return;
        }
        impl_->disks.begin();
        impl_->start_asked = true;
        if (!impl_->stop_asked) {
            impl_->start_due(Clock::monotonic_ns());
        }
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
    impl_->stop_all(reason);
    impl_->shared->event().fetch_add(1, std::memory_order_release);
    futex_wake(impl_->shared->event());
}

RunProgress JobRun::progress() {
    const std::lock_guard lock(impl_->mutex);
    RunProgress progress;
    const std::uint64_t now = Clock::monotonic_ns();
    std::uint64_t first_start = 0;
    double fractions = 0;
    double slowest_left_s = 0;
    bool known = true;
    progress.jobs = static_cast<std::uint32_t>(impl_->plans.size());
    for (std::size_t i = 0; i < impl_->plans.size(); ++i) {
        const JobPlan& plan = impl_->plans[i];
        const JobState& state = impl_->shared->state(i);
        const std::uint64_t bytes = state.done_bytes.load(std::memory_order_relaxed);
        const std::uint64_t started = state.started_ns.load(std::memory_order_relaxed);
        progress.done_bytes += bytes;
        progress.done_ios += state.done_ios.load(std::memory_order_relaxed);
        if (started != 0) {
            first_start = first_start == 0 ? started : std::min(first_start, started);
        }
        if (impl_->finished(i)) {
            ++progress.finished;
            fractions += 1;
            continue;
        }
        if (started == 0) {
            known = false;
            continue;
        }
        ++progress.running;
        const auto elapsed = static_cast<double>(now - started) * 1e-9;
        const auto limit = static_cast<double>(plan.options.runtime_ns + plan.options.ramp_time_ns) * 1e-9;
        const double by_time = plan.options.runtime_ns != 0 ? elapsed / limit : 0;
        const double all = static_cast<double>(plan.io_bytes) * static_cast<double>(plan.options.loops);
        const double by_bytes = plan.options.time_based || all <= 0 ? 0 : static_cast<double>(bytes) / all;
        const double fraction = std::min(1.0, std::max(by_time, by_bytes));
        fractions += fraction;
        if (fraction > 0) {
            slowest_left_s = std::max(slowest_left_s, elapsed / fraction - elapsed);
        } else {
            known = false;
        }
    }
    progress.fraction = progress.jobs == 0 ? 1 : fractions / progress.jobs;
    progress.elapsed_s = first_start == 0 ? 0 : static_cast<double>(now - first_start) * 1e-9;
    progress.eta_s = known ? slowest_left_s : -1;
    if (impl_->last_ns != 0 && now > impl_->last_ns) {
        const double spent = static_cast<double>(now - impl_->last_ns) * 1e-9;
        progress.bytes_per_s = static_cast<double>(progress.done_bytes - impl_->last_bytes) / spent;
        progress.ios_per_s = static_cast<double>(progress.done_ios - impl_->last_ios) / spent;
    }
    impl_->last_ns = now;
    impl_->last_bytes = progress.done_bytes;
    impl_->last_ios = progress.done_ios;
    return progress;
}

RunResult JobRun::result() const {
    const std::lock_guard lock(impl_->mutex);
    RunResult result;
    result.source = impl_->set.source;
    result.globals = impl_->set.globals;
    result.notices = impl_->set.notices;
    result.messages = impl_->messages;
    for (std::size_t i = 0; i < impl_->plans.size(); ++i) {
        const JobShared& job = impl_->shared->job(i);
        result.jobs.push_back(read_state(impl_->plans[i].options, impl_->plans[i].seed, job.state));
        JobResult& one = result.jobs.back();
        one.rates = std::make_shared<RateSeries>(job.rates);
        one.heat = std::make_shared<HeatSeries>(job.heat);
        const std::span<IoLogEntry> log = impl_->shared->log(i);
        const std::uint64_t used = job.state.io_log_used.load(std::memory_order_acquire);
        one.io_log.assign(log.begin(),
                          log.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(used, log.size())));
        for (const FileTarget& file : impl_->plans[i].files) {
            one.paths.push_back(file.path);
        }
    }
    result.disks = impl_->disk_results;
    result.stop_reason = impl_->stop_reason;
    result.finished_at_ms = impl_->finished_ms;
    result.finished_at_s = impl_->finished_ms / 1000;
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
            impl_->stop_all("closed");
        }
        impl_->shared->event().fetch_add(1, std::memory_order_release);
        futex_wake(impl_->shared->event());
    }
    impl_->join();
}

}  // namespace sampleblk::workload
