// SPDX-License-Identifier: MIT
#include "run/job_processes.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "run/worker.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/signals.hpp"

namespace sampleblk::workload {

namespace {

// Interrupts a system call that a stopped job sleeps in. Its handler does nothing.
constexpr int interrupt_signal = SIGUSR1;
// How often processes without a descriptor are looked at.
constexpr std::uint64_t poll_interval_ns = 50'000'000;

void do_nothing(int /*signal*/) {}

// The first things a forked job does. Nothing here may take a lock that another thread of the parent could have held at
// the fork.
void become_job(pid_t parent) {
    // The interrupt hook belongs to whoever embeds the core, and that is no longer us.
    set_interrupt_check(nullptr);
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) {
        ::_exit(1);  // it died before we could ask to follow it
    }
    // Ctrl-C goes to the whole terminal group, and timeout(1)'s SIGTERM to the parent's; the parent decides what they
    // mean.
    for (const int ignored : {SIGINT, SIGQUIT, SIGHUP, SIGTERM, SIGPIPE, SIGTSTP}) {
        (void)::signal(ignored, SIG_IGN);
    }
    // Of whoever embeds us, as Python's faulthandler, which would tell of a crash of its program.
    for (const int not_ours : {SIGALRM, SIGCHLD, SIGUSR2, SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT}) {
        (void)::signal(not_ours, SIG_DFL);
    }
    struct sigaction action{};
    action.sa_handler = do_nothing;  // without SA_RESTART, so that the call returns EINTR
    (void)::sigaction(interrupt_signal, &action, nullptr);
    sigset_t none;
    (void)::sigemptyset(&none);
    (void)::pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

std::string how_it_was_killed(int number) {
    std::string text = "killed by signal " + std::to_string(number);
    if (number == SIGBUS) {
        text += ": its mapping has nothing below it, as where the file was made shorter or the disk is full";
    }
    return text;
}

Clock clock_for(const JobOptions& options) {
    return options.clock == ClockSource::clock_gettime ? Clock() : Clock::best();
}

}  // namespace

JobProcesses::JobProcesses(const std::vector<JobPlan>& plans, const SharedMemory& shared)
    : plans_(plans), shared_(shared) {
    Process threads;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        if (plans[i].options.create_only) {
            shared.state(i).phase.store(static_cast<std::uint32_t>(Phase::finished));
        } else if (plans[i].options.thread) {
            threads.jobs.push_back(i);
        } else {
            processes_.emplace_back().jobs = {i};
        }
    }
    if (!threads.jobs.empty()) {
        processes_.push_back(std::move(threads));
    }
}

int JobProcesses::fork() {
    const SignalsBlocked until_the_job_is_set_up;
    const pid_t parent = ::getpid();
    for (Process& process : processes_) {
        const pid_t pid = ::fork();
        if (pid == 0) {
            become_job(parent);
            run(process);
            ::_exit(0);
        }
        if (pid < 0) {
            const int error = errno;
            for (std::size_t i = 0; i < plans_.size(); ++i) {
                tell_to_stop(shared_.state(i));
            }
            for (Process& other : processes_) {
                other.gone = other.pid < 0;
            }
            return error;
        }
        process.pid = pid;
        process.descriptor = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    }
    return 0;
}

// In the job's process.
void JobProcesses::run(const Process& process) const {
    const Clock clock = clock_for(plans_[process.jobs.front()].options);
    const auto run_one = [&](std::size_t i) {
        const JobControl control(shared_.state(i), shared_.event(), process.jobs.size() > 1);
        Worker(plans_[i], shared_.job(i), shared_.log(i), control, clock).run();
    };
    if (process.jobs.size() == 1) {
        run_one(process.jobs.front());
        return;
    }
    std::vector<std::thread> threads;
    threads.reserve(process.jobs.size());
    for (const std::size_t i : process.jobs) {
        try {
            threads.emplace_back(run_one, i);
        } catch (const std::system_error& error) {
            shared_.state(i).pid = ::getpid();
            JobControl control(shared_.state(i), shared_.event(), true);
            control.fail({"start of a thread", {}, error.code().value(), {}});
            control.set_phase(Phase::finished);
        }
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

void JobProcesses::wait(std::uint64_t timeout_ns) const {
    std::vector<pollfd> watched = {{.fd = shared_.event(), .events = POLLIN, .revents = 0}};
    for (const Process& process : processes_) {
        if (process.gone) {
            continue;
        }
        if (process.descriptor) {
            watched.push_back({.fd = process.descriptor.get(), .events = POLLIN, .revents = 0});
        } else {
            timeout_ns = std::min(timeout_ns, poll_interval_ns);
        }
    }
    const timespec timeout{.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000),
                           .tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000)};
    (void)::ppoll(watched.data(), watched.size(), timeout_ns == UINT64_MAX ? nullptr : &timeout, nullptr);
    std::uint64_t count = 0;
    (void)!::read(shared_.event(), &count, sizeof(count));
}

void JobProcesses::reap() {
    for (Process& process : processes_) {
        if (process.gone) {
            continue;
        }
        int status = 0;
        const pid_t got = ::waitpid(process.pid, &status, WNOHANG);
        if (got == 0 || (got < 0 && errno == EINTR)) {
            continue;
        }
        process.gone = true;
        for (const std::size_t i : process.jobs) {
            if (shared_.finished(i)) {
                continue;
            }
            JobState& state = shared_.state(i);
            // Killed, or reaped by somebody else's waitpid(-1): its last numbers stay.
            const bool killed = got == process.pid && WIFSIGNALED(status);
            if (state.error == 0) {
                state.error = killed ? EINTR : ECHILD;
                state.error_operation.set(job_process);
                if (killed) {
                    state.error_detail.set(how_it_was_killed(WTERMSIG(status)));
                }
            }
            state.measured.stopped_early = 1;
            state.died_ns.store(Clock::monotonic_ns(), std::memory_order_relaxed);
            state.phase.store(static_cast<std::uint32_t>(Phase::finished), std::memory_order_release);
        }
    }
}

bool JobProcesses::all_gone() const {
    return std::ranges::all_of(processes_, [](const Process& process) { return process.gone; });
}

void JobProcesses::interrupt() const {
    for (const Process& process : processes_) {
        if (process.gone) {
            continue;
        }
        for (const std::size_t i : process.jobs) {
            // A process's signal would go to any of its threads, most likely to the one that waits for the others.
            const JobState& state = shared_.state(i);
            if (told_to_stop(state) && phase_of(state) != Phase::created && !shared_.finished(i)) {
                (void)::syscall(SYS_tgkill, process.pid, state.thread_id, interrupt_signal);
            }
        }
    }
}

void JobProcesses::kill() const {
    for (const Process& process : processes_) {
        if (!process.gone && process.pid > 0) {
            (void)::kill(process.pid, SIGKILL);
        }
    }
}

}  // namespace sampleblk::workload
