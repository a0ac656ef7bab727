// SPDX-License-Identifier: MIT
// Recorded operations to be done again: from fio's iologs, from blktrace's files, from tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sampleblk/table.hpp"

namespace sampleblk::workload {

enum class ReplayOperation : std::uint8_t { read, write, trim, fsync, fdatasync, open, close, fadvise };

struct ReplayRecord {
    std::uint64_t time_ns = 0;  // since the first record
    std::uint64_t offset_bytes = 0;
    std::uint64_t length_bytes = 0;
    std::uint32_t file = 0;  // into ReplayLog::paths
    ReplayOperation operation = ReplayOperation::read;
    std::int16_t advice = 0;  // POSIX_FADV_*, for fadvise
};

struct ReplayLog {
    std::vector<std::string> paths;
    std::vector<ReplayRecord> records;
    // Rows that could not be used, by reason; nothing is dropped silently.
    std::vector<std::pair<std::string, std::uint64_t>> skipped;

    [[nodiscard]] bool empty() const noexcept { return records.empty(); }
    void skip(std::string_view reason, std::uint64_t times = 1);
};

// fio's iolog, version 2 or 3, or blktrace's binary file, told apart by their first bytes. Throws
// SystemError, FormatError.
[[nodiscard]] ReplayLog read_replay_log(const std::string& path);
[[nodiscard]] ReplayLog parse_iolog(std::string_view text, const std::string& path);
[[nodiscard]] ReplayLog parse_blktrace(std::span<const std::byte> bytes, const std::string& path);

// A table of block requests: columns `time`, `rwbs`, `sector`, `bytes` or `nr_sector`, and `dev` if
// there are several devices.
[[nodiscard]] ReplayLog replay_of_requests(const Table& table);

// A table of system calls: columns `time`, `pid`, `syscall`, `fd`, `count`, `ret`, and where they
// apply `offset`, `path`, `advice`. Calls without an offset get it from the position of their file,
// followed from its open on.
[[nodiscard]] ReplayLog replay_of_syscalls(const Table& table);

}  // namespace sampleblk::workload
