// SPDX-License-Identifier: MIT
// What opening events takes: the call itself, CPUs, and the threads of processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sampleblk/linux_headers.hpp"

namespace sampleblk::profile {

// perf_event_open(2); -1 and errno on failure.
[[nodiscard]] int perf_event_open(const perf_event_attr& attr, std::int32_t pid, std::int32_t cpu) noexcept;

[[nodiscard]] std::vector<std::int32_t> online_cpus();
// Numbers that entries of a directory are named by, such as processes in /proc; empty when it does not exist.
[[nodiscard]] std::vector<std::int32_t> numbers_in(const std::string& directory);
// The parent of the process or thread at "/proc/12". Throws SystemError.
[[nodiscard]] std::int32_t parent_of(const std::string& directory);
// Where a path of /proc/PID/maps is: a process may have another root, or other mounts.
[[nodiscard]] std::string path_in_process(std::int32_t pid, const std::string& path);
// `pids` and what descends from them by now.
[[nodiscard]] std::vector<std::int32_t> with_descendants(std::vector<std::int32_t> pids);
// Throws SystemError when there is no such process.
[[nodiscard]] std::vector<std::int32_t> threads_of(std::int32_t pid);
// Of those of all processes; ones that go away meanwhile are left out, if some stay. Throws SystemError for a process
// of `pids` that does not exist.
[[nodiscard]] std::vector<std::int32_t> threads_of(const std::vector<std::int32_t>& pids, bool children);

// What to do where perf_event_open says EACCES.
[[nodiscard]] std::string paranoid_remedy();

}  // namespace sampleblk::profile
