// SPDX-License-Identifier: MIT
#include "run/process_settings.hpp"

#include <fcntl.h>
#include <mntent.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string_view>

#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/linux_headers.hpp"

namespace sampleblk::workload {

namespace {

void pin(const JobOptions& options) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (options.cpus_policy == CpuPolicy::split) {
        CPU_SET(static_cast<std::size_t>(options.cpus_allowed[options.job_number % options.cpus_allowed.size()]), &set);
    } else {
        for (const int cpu : options.cpus_allowed) {
            CPU_SET(static_cast<std::size_t>(cpu), &set);
        }
    }
    if (::sched_setaffinity(0, sizeof(set), &set) != 0) {
        throw_errno("sched_setaffinity");
    }
}

std::string cgroup_mount() {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> mounts(::setmntent("/proc/mounts", "r"), ::endmntent);
    while (const mntent* entry = mounts ? ::getmntent(mounts.get()) : nullptr) {
        if (std::string_view(entry->mnt_type) == "cgroup2") {
            return entry->mnt_dir;
        }
    }
    throw UnsupportedError("cgroup", "no cgroup2 file system is mounted", "mount -t cgroup2 none /sys/fs/cgroup");
}

// The cgroup that we are in, to go back to.
std::string own_cgroup() {
    std::ifstream file("/proc/self/cgroup");
    std::string line;
    while (std::getline(file, line)) {
        if (line.starts_with("0::")) {
            return line.substr(3);
        }
    }
    return "/";
}

}  // namespace

void apply_process_settings(const JobOptions& options) {
    if (options.gid >= 0 && ::setgid(static_cast<gid_t>(options.gid)) != 0) {
        throw_errno("setgid");
    }
    if (options.uid >= 0 && ::setuid(static_cast<uid_t>(options.uid)) != 0) {
        throw_errno("setuid");
    }
    if (!options.cpus_allowed.empty()) {
        pin(options);
    }
    if (options.lockmem_bytes != 0) {
        // Kept until the process ends.
        void* memory =
            ::mmap(nullptr, options.lockmem_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED || ::mlock(memory, options.lockmem_bytes) != 0) {
            throw_errno("mlock");
        }
    }
    if (options.prio_given) {
        // As fio has it: the kernel takes no priority without a class.
        const int priority_class = options.prio_class == IOPRIO_CLASS_NONE ? IOPRIO_CLASS_BE : options.prio_class;
        const int priority = IOPRIO_PRIO_VALUE(priority_class, options.prio);
        if (::syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, priority) != 0) {
            throw_errno("ioprio_set");
        }
    }
    if (options.nice != 0) {
        errno = 0;
        const int now = ::getpriority(PRIO_PROCESS, 0);
        if (errno != 0 || ::setpriority(PRIO_PROCESS, 0, now + options.nice) != 0) {
            throw_errno("setpriority");
        }
    }
}

CgroupMembership::CgroupMembership(const JobOptions& options) {
    if (options.cgroup.empty()) {
        return;
    }
    const std::string mount = cgroup_mount();
    parent_ = mount + own_cgroup();
    directory_ = mount + "/" + options.cgroup;
    keep_ = options.cgroup_nodelete;
    if (::mkdir(directory_.c_str(), 0755) != 0) {
        if (errno != EEXIST) {
            throw_errno("mkdir", directory_);
        }
        keep_ = true;  // it was there before us
    }
    if (options.cgroup_weight != 0) {
        write_file(directory_ + "/io.weight", std::to_string(options.cgroup_weight), 0);
    }
    write_file(directory_ + "/cgroup.procs", std::to_string(::getpid()), 0);
}

CgroupMembership::~CgroupMembership() {
    if (directory_.empty()) {
        return;
    }
    try {
        write_file(parent_ + "/cgroup.procs", std::to_string(::getpid()), 0);
    } catch (const SystemError&) {
        return;  // the process ends in a moment; whoever removes the cgroup can do so then
    }
    if (!keep_) {
        // Fails while another job of the run is still in it; the last one removes it.
        (void)::rmdir(directory_.c_str());
    }
}

void run_command(const JobOptions& options, const std::string& command, const char* when) {
    const std::string line = command + " > '" + options.name + "." + when + ".txt' 2>&1";
    const int status = std::system(line.c_str());
    if (status != 0) {
        throw SystemError("exec_" + std::string(when), command, status < 0 ? errno : ECHILD,
                          "exit status " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1));
    }
}

}  // namespace sampleblk::workload
