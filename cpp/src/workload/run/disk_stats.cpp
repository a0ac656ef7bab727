// SPDX-License-Identifier: MIT
#include "run/disk_stats.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string>
#include <utility>

#include "pattern/clock.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/text.hpp"

namespace sampleblk::workload {

namespace {

// What the kernel says of a disk's I/O schedulers; empty where it says nothing, as newer ones of a disk of bios.
std::string schedulers_of(const std::string& file) {
    try {
        return std::string(trim(read_file(file)));
    } catch (const SystemError& error) {
        if (error.code() != ENOENT) {
            throw;
        }
        return {};
    }
}

// Documentation/block/stat.rst: the eleven fields that every kernel since 2.6 has.
DiskStats read_stat(const std::string& directory) {
    DiskStats stats;
    stats.name = std::filesystem::path(directory).filename().string();
    std::array<std::uint64_t, 11> fields{};
    try {
        const std::string text = read_file(directory + "/stat");
        const char* at = text.data();
        const char* end = at + text.size();
        for (std::uint64_t& field : fields) {
            while (at < end && *at == ' ') {
                ++at;
            }
            at = std::from_chars(at, end, field).ptr;
        }
    } catch (const SystemError&) {
        return stats;  // the device went away; zero differences say so
    }
    stats.ios = {fields[0], fields[4]};
    stats.merges = {fields[1], fields[5]};
    stats.sectors = {fields[2], fields[6]};
    stats.ticks_ms = {fields[3], fields[7]};
    stats.busy_ms = fields[9];
    stats.in_queue_ms = fields[10];
    return stats;
}

}  // namespace

std::string disk_directory(const std::string& path) {
    struct stat status{};
    std::string existing = path;
    if (::stat(existing.c_str(), &status) != 0) {
        existing = std::filesystem::path(path).parent_path().string();
        if (existing.empty()) {
            existing = ".";
        }
        if (::stat(existing.c_str(), &status) != 0) {
            return {};
        }
    }
    const dev_t device = S_ISBLK(status.st_mode) ? status.st_rdev : status.st_dev;
    std::error_code error;
    std::filesystem::path directory = std::filesystem::canonical(
        "/sys/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device)), error);
    if (error) {
        return {};
    }
    // A partition lies inside its disk's directory.
    if (std::filesystem::exists(directory / "partition", error)) {
        directory = directory.parent_path();
    }
    return directory.string();
}

void SchedulerChanges::change(const std::string& path, const std::string& scheduler) {
    const std::string directory = disk_directory(path);
    if (directory.empty()) {
        throw UnsupportedError("ioscheduler", "'" + path + "' lies on no block device");
    }
    change_disk(directory, scheduler);
}

void SchedulerChanges::change_disk(const std::string& directory, const std::string& scheduler) {
    const std::string file = directory + "/queue/scheduler";
    // "none [mq-deadline] kyber": the one in brackets is in force.
    const std::string all = schedulers_of(file);
    const std::size_t open = all.find('[');
    const std::size_t close = all.find(']');
    if (open == std::string::npos || close == std::string::npos) {
        // A disk of bios has none, and its file takes any word.
        if (scheduler != "none") {
            throw UnsupportedError("ioscheduler=" + scheduler, directory + " has no I/O schedulers",
                                   "a disk of requests, such as a device of mode mq; or ioscheduler=none");
        }
        return;
    }
    changes_.reserve(changes_.size() + 1);  // so that nothing fails once it is changed
    try {
        write_file(file, scheduler, 0);
    } catch (const SystemError& error) {
        if (error.code() != EINVAL) {
            throw;
        }
        std::string known = all;
        std::erase_if(known, [](char c) { return c == '[' || c == ']'; });
        throw InputError("ioscheduler=" + scheduler + " of " + directory, {}, 0,
                         "one that it has, " + known + ", or can load");
    }
    changes_.push_back({.file = file, .before = all.substr(open + 1, close - open - 1)});
}

void SchedulerChanges::undo() noexcept {
    for (; !changes_.empty(); changes_.pop_back()) {
        const Change& last = changes_.back();
        try {
            write_file(last.file, last.before, 0);
        } catch (const SystemError&) {
            continue;  // the device is gone, and its scheduler with it
        }
    }
}

void DiskWatch::add(const std::string& path) {
    const std::string name = disk_directory(path);
    if (name.empty()) {
        return;
    }
    const bool known = std::ranges::any_of(disks_, [&](const Disk& disk) { return disk.directory == name; });
    if (!known) {
        disks_.push_back({.directory = name, .at_begin = {}});
    }
}

void DiskWatch::begin() {
    began_ns_ = Clock::monotonic_ns();
    for (Disk& disk : disks_) {
        disk.at_begin = read_stat(disk.directory);
    }
}

std::vector<DiskStats> DiskWatch::end() const {
    std::vector<DiskStats> out;
    for (const Disk& disk : disks_) {
        DiskStats now = read_stat(disk.directory);
        const DiskStats& before = disk.at_begin;
        const auto since = [](std::uint64_t after, std::uint64_t first) { return after > first ? after - first : 0; };
        for (std::size_t i = 0; i < 2; ++i) {
            now.ios[i] = since(now.ios[i], before.ios[i]);
            now.merges[i] = since(now.merges[i], before.merges[i]);
            now.sectors[i] = since(now.sectors[i], before.sectors[i]);
            now.ticks_ms[i] = since(now.ticks_ms[i], before.ticks_ms[i]);
        }
        now.in_queue_ms = since(now.in_queue_ms, before.in_queue_ms);
        now.busy_ms = since(now.busy_ms, before.busy_ms);
        now.elapsed_ms = (Clock::monotonic_ns() - began_ns_) / 1'000'000;
        out.push_back(std::move(now));
    }
    return out;
}

}  // namespace sampleblk::workload
