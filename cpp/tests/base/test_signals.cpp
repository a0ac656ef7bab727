// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <thread>

#include "sampleblk/interrupt.hpp"
#include "sampleblk/signals.hpp"

namespace sampleblk {
namespace {

bool blocked(int signal) {
    sigset_t now;
    (void)::pthread_sigmask(SIG_SETMASK, nullptr, &now);
    return ::sigismember(&now, signal) == 1;
}

TEST(SignalsTest, BlocksWhileAliveAndGivesBackWhatWas) {
    sigset_t one;
    (void)::sigemptyset(&one);
    (void)::sigaddset(&one, SIGUSR1);
    sigset_t before;
    ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &one, &before), 0);
    {
        const SignalsBlocked guard;
        EXPECT_TRUE(blocked(SIGINT));
        EXPECT_TRUE(blocked(SIGCHLD));
    }
    EXPECT_FALSE(blocked(SIGINT));
    EXPECT_TRUE(blocked(SIGUSR1));
    ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, &before, nullptr), 0);
}

TEST(SignalsTest, AThreadStartedMeanwhileKeepsThemBlocked) {
    bool during = false;
    std::thread thread;
    {
        const SignalsBlocked guard;
        thread = std::thread([&during] { during = blocked(SIGINT); });
    }
    thread.join();
    EXPECT_TRUE(during);
    EXPECT_FALSE(blocked(SIGINT));
}

TEST(SignalsTest, ACallThatASignalEndsIsMadeAgainUnlessTheHandlerWantsToStop) {
    int calls = 0;
    const auto call = [&calls] {
        errno = EINTR;
        return ++calls < 3 ? -1 : 7;
    };
    EXPECT_EQ(repeated(call), 7);
    EXPECT_EQ(calls, 3);
    calls = 0;
    set_interrupt_check([] { throw std::runtime_error("stop"); });
    EXPECT_THROW((void)repeated(call), std::runtime_error);
    set_interrupt_check(nullptr);
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(repeated([] { return errno = EIO, -1; }), -1);
}

}  // namespace
}  // namespace sampleblk
