// SPDX-License-Identifier: MIT
#include "perf/machine.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk::profile {

int perf_event_open(const perf_event_attr& attr, std::int32_t pid, std::int32_t cpu) noexcept {
    return static_cast<int>(::syscall(SYS_perf_event_open, &attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC));
}

std::vector<std::int32_t> online_cpus() {
    std::vector<std::int32_t> out;
    const std::string text = read_file("/sys/devices/system/cpu/online");
    const char* at = text.data();
    const char* end = text.data() + text.size();
    while (at < end) {
        std::int32_t first = 0;
        auto [after, code] = std::from_chars(at, end, first);
        if (code != std::errc()) {
            break;
        }
        std::int32_t last = first;
        if (after < end && *after == '-') {
            after = std::from_chars(after + 1, end, last).ptr;
        }
        for (std::int32_t cpu = first; cpu <= last; ++cpu) {
            out.push_back(cpu);
        }
        at = after + 1;
    }
    return out;
}

std::vector<std::int32_t> numbers_in(const std::string& directory) {
    namespace fs = std::filesystem;
    std::vector<std::int32_t> out;
    std::error_code error;
    for (auto it = fs::directory_iterator(directory, error); !error && it != fs::directory_iterator();
         it.increment(error)) {
        const std::string name = it->path().filename();
        std::int32_t number = 0;
        const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), number);
        if (code == std::errc() && end == name.data() + name.size()) {
            out.push_back(number);
        }
    }
    return out;
}

std::int32_t parent_of(const std::string& directory) {
    const std::string stat = read_file(directory + "/stat");
    const auto close = stat.rfind(')');
    std::int32_t parent = 0;
    if (close != std::string::npos && close + 4 < stat.size()) {
        (void)std::from_chars(stat.data() + close + 4, stat.data() + stat.size(), parent);
    }
    return parent;
}

std::string path_in_process(std::int32_t pid, const std::string& path) {
    return "/proc/" + std::to_string(pid) + "/root" + path;
}

std::vector<std::int32_t> with_descendants(std::vector<std::int32_t> pids) {
    std::multimap<std::int32_t, std::int32_t> children;
    for (const std::int32_t pid : numbers_in("/proc")) {
        try {
            children.emplace(parent_of("/proc/" + std::to_string(pid)), pid);
        } catch (const SystemError&) {
            continue;  // gone since
        }
    }
    std::set<std::int32_t> known(pids.begin(), pids.end());
    for (std::size_t i = 0; i < pids.size(); ++i) {
        const auto [from, to] = children.equal_range(pids[i]);
        for (auto child = from; child != to; ++child) {
            if (known.insert(child->second).second) {
                pids.push_back(child->second);
            }
        }
    }
    return pids;
}

std::vector<std::int32_t> threads_of(std::int32_t pid) {
    const std::string directory = "/proc/" + std::to_string(pid);
    auto out = numbers_in(directory + "/task");
    if (out.empty()) {
        throw SystemError("look at process", directory, ESRCH);
    }
    return out;
}

std::vector<std::int32_t> threads_of(const std::vector<std::int32_t>& pids, bool children) {
    std::vector<std::int32_t> out;
    const auto all = children ? with_descendants(pids) : pids;
    for (std::size_t i = 0; i < all.size(); ++i) {
        try {
            const auto own = threads_of(all[i]);
            out.insert(out.end(), own.begin(), own.end());
        } catch (const SystemError&) {
            if (i < pids.size()) {
                throw;
            }
        }
    }
    return out;
}

std::string paranoid_remedy() {
    std::string level = "?";
    try {
        level = read_file("/proc/sys/kernel/perf_event_paranoid");
        level.erase(level.find_last_not_of('\n') + 1);
    } catch (const SystemError&) {
        level = "?";
    }
    return "run as root or with CAP_PERFMON, or lower kernel.perf_event_paranoid (now " + level + ")";
}

}  // namespace sampleblk::profile
