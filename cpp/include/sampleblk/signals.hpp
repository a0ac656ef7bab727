// SPDX-License-Identifier: MIT
// Which thread a signal reaches. A signal to the process may be delivered to any thread that lets it
// through; only the one that runs the interpreter (or main) is meant to, as only there does it end a
// blocking call and is its meaning known. So helper threads begin with every signal blocked, but for those that a
// thread's own instruction raises: blocked, they would end the process (mapping.hpp handles SIGBUS).
#pragma once

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "sampleblk/error.hpp"

namespace sampleblk {

// All signals but those are blocked in this thread while one is alive. Threads started meanwhile, and their
// children, keep them blocked (pthread_sigmask(3)); so does a forked process until it says otherwise.
class SignalsBlocked {
  public:
    SignalsBlocked() noexcept {
        sigset_t all;
        (void)::sigfillset(&all);
        for (const int own : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP}) {
            (void)::sigdelset(&all, own);
        }
        (void)::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;
    ~SignalsBlocked() { (void)::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_{};
};

// A helper thread, which no signal reaches. Throws SystemError, as where the limit of processes is reached.
template <typename Thread = std::thread, typename Function>
[[nodiscard]] Thread start_thread(Function&& function) {
    const SignalsBlocked in_the_thread;
    try {
        return Thread(std::forward<Function>(function));
    } catch (const std::system_error& error) {
        throw SystemError("start of a thread", {}, error.code().value());
    }
}

}  // namespace sampleblk
