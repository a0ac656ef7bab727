// SPDX-License-Identifier: MIT
// What a stack says about why its thread is where it is; answers are kept by stack.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sampleblk/profile/off_cpu.hpp"

namespace sampleblk::profile {

class StackReader {
  public:
    explicit StackReader(const Profile& profile) : profile_(profile) {}

    // What a thread that blocked on this stack waits for.
    [[nodiscard]] Wait wait(std::uint32_t leaf);
    // The system call that the stack is in; empty outside any.
    [[nodiscard]] const std::string& syscall(std::uint32_t leaf);
    // Whether it is one of a kernel thread, or of a worker of io_uring's.
    [[nodiscard]] bool of_kernel_thread(std::uint32_t leaf);
    // The innermost function that is not the scheduler's own.
    [[nodiscard]] std::int32_t caller(std::uint32_t leaf);

    // A function that takes a lock, and the first one outside the lock's own code; both -1 where there is none.
    struct Lock {
        std::int32_t lock = -1;
        std::int32_t caller = -1;
    };
    [[nodiscard]] Lock lock(std::uint32_t leaf);

  private:
    [[nodiscard]] bool is_of_kernel(std::uint32_t node) const;
    [[nodiscard]] const std::string& name(std::uint32_t node) const;

    const Profile& profile_;
    std::unordered_map<std::uint32_t, Wait> waits_;
    std::unordered_map<std::uint32_t, std::string> syscalls_;
    std::unordered_map<std::uint32_t, bool> threads_;
    std::unordered_map<std::uint32_t, Lock> locks_;
};

}  // namespace sampleblk::profile
