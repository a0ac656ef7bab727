// SPDX-License-Identifier: MIT
// Every long loop of the core can be interrupted. The core knows nothing of Python, so whoever
// embeds it installs a check that throws when the user wants to stop.
#pragma once

#include <cerrno>

namespace sampleblk {

// Called from long loops, on the thread that runs them and without any lock of ours held. Throws to
// stop.
using InterruptCheck = void (*)();

// Installs the check; nullptr removes it. Not for use while a loop runs.
void set_interrupt_check(InterruptCheck check) noexcept;

// Runs the installed check, if any. Cheap enough for every few thousand iterations, not for each
// one.
void check_interrupt();

// Makes a system call again for as long as a signal ends it (EINTR) whose handler does not want to stop. Returns what
// the call, a callable, returned at last.
template <typename Call>
auto repeated(const Call& call) {
    for (;;) {
        const auto result = call();
        if (result >= 0 || errno != EINTR) {
            return result;
        }
        check_interrupt();
    }
}

}  // namespace sampleblk
