// SPDX-License-Identifier: MIT
#include "job_processes.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <thread>
#include <utility>

#include "sampleblk/interrupt.hpp"
#include "sampleblk/signals.hpp"
#include "worker.hpp"

namespace sampleblk::workload {

namespace {

// Interrupts a system call that a stopped job sleeps in. It has a handler that does nothing.
constexpr int nudge_signal = SIGUSR1;

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
            processes_.push_back({.pid = -1, .gone = false, .jobs = {i}});
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
    }
    return 0;
}

// In the job's process.
void JobProcesses::run(const Process& process) const {
    const Clock clock = clock_for(plans_[process.jobs.front()].options);
    const auto run_one = [&](std::size_t i) {
        Worker worker(plans_[i], shared_.job(i), shared_.log(i), shared_.event(), clock);
        worker.run();
    };
    if (process.jobs.size() == 1) {
        run_one(process.jobs.front());
        return;
    }
    std::vector<std::thread> threads;
    threads.reserve(process.jobs.size());
    for (const std::size_t i : process.jobs) {
        threads.emplace_back(run_one, i);
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
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
            if (state.error == 0) {
                state.error = got == process.pid && WIFSIGNALED(status) ? EINTR : ECHILD;
                state.error_operation.set("job process");
                if (got == process.pid && WIFSIGNALED(status)) {
                    state.error_detail.set("killed by signal " + std::to_string(WTERMSIG(status)));
                }
            }
            state.stopped_early = 1;
            state.phase.store(static_cast<std::uint32_t>(Phase::finished), std::memory_order_release);
        }
    }
}

bool JobProcesses::all_gone() const {
    return std::ranges::all_of(processes_, [](const Process& process) { return process.gone; });
}

void JobProcesses::nudge() const {
    send(nudge_signal);
}

void JobProcesses::kill() const {
    send(SIGKILL);
}

void JobProcesses::send(int signal) const {
    for (const Process& process : processes_) {
        if (!process.gone && process.pid > 0) {
            (void)::kill(process.pid, signal);
        }
    }
}

}  // namespace sampleblk::workload
