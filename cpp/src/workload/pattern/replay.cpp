// SPDX-License-Identifier: MIT
#include "pattern/replay.hpp"

#include <fcntl.h>

#include <algorithm>

#include "sampleblk/error.hpp"

namespace sampleblk::workload {

namespace {

bool transfers(ReplayOperation operation) {
    return operation == ReplayOperation::read || operation == ReplayOperation::write ||
           operation == ReplayOperation::trim;
}

bool is_sync(ReplayOperation operation) {
    return operation == ReplayOperation::fsync || operation == ReplayOperation::fdatasync;
}

}  // namespace

void plan_replay(JobPlan& plan, const ReplayLog& log) {
    const JobOptions& options = plan.options;
    const bool redirected = !options.replay_redirect.empty();
    for (const std::string& path : redirected ? std::vector<std::string>{options.replay_redirect} : log.paths) {
        plan.files.emplace_back();
        // What is named by the user is the file; what was recorded is looked for in the directory, where one is given.
        plan.files.back().path = redirected && path.starts_with('/') ? path : below_directory(options, path);
    }
    bool reads = false;
    bool writes = false;
    bool trims = false;
    for (ReplayRecord record : log.records) {
        const unsigned kind = is_sync(record.operation)                    ? index_of(Direction::sync)
                              : record.operation == ReplayOperation::read  ? index_of(Direction::read)
                              : record.operation == ReplayOperation::write ? index_of(Direction::write)
                              : record.operation == ReplayOperation::trim  ? index_of(Direction::trim)
                                                                           : 32;
        if (kind < 32 && (options.replay_skip >> kind & 1) != 0) {
            continue;
        }
        record.file = redirected ? 0 : record.file;
        record.offset_bytes /= options.replay_scale;
        if (options.replay_align != 0) {
            record.offset_bytes -= record.offset_bytes % options.replay_align;
        }
        reads = reads || record.operation == ReplayOperation::read;
        writes = writes || record.operation == ReplayOperation::write;
        trims = trims || record.operation == ReplayOperation::trim;
        if (transfers(record.operation)) {
            FileTarget& file = plan.files[record.file];
            file.extent_bytes = std::max(file.extent_bytes, record.offset_bytes + record.length_bytes);
            plan.io_bytes += record.length_bytes;
        }
        plan.replay.push_back(record);
    }
    if (plan.replay.empty()) {
        throw InputError("job '" + options.name + "': nothing to replay", {}, 0, "a log with reads, writes or trims");
    }
    plan.options.reads = reads;
    plan.options.writes = writes;
    plan.options.trims = trims;
}

ReplaySource::ReplaySource(const JobPlan& plan, const Clock& clock)
    : plan_(plan), clock_(clock), stalls_(!plan.options.replay_no_stall) {}

void ReplaySource::begin(std::uint64_t now) noexcept {
    begin_ = now;
    next_ = 0;
}

std::uint64_t ReplaySource::longest() const noexcept {
    std::uint64_t longest = 0;
    for (const ReplayRecord& record : plan_.replay) {
        if (record.operation == ReplayOperation::read || record.operation == ReplayOperation::write) {
            longest = std::max(longest, record.length_bytes);
        }
    }
    return longest;
}

std::uint64_t ReplaySource::due_of(const ReplayRecord& record) const noexcept {
    // Of the recorded speed, as in fio: 200 halves the pauses.
    const Uint128 scaled = static_cast<Uint128>(record.time_ns) * 100 / plan_.options.replay_time_scale;
    return clock_.after(begin_, scaled > UINT64_MAX ? UINT64_MAX : static_cast<std::uint64_t>(scaled));
}

bool ReplaySource::needs_idle() const noexcept {
    if (next_ >= plan_.replay.size()) {
        return false;
    }
    const ReplayOperation operation = plan_.replay[next_].operation;
    return !transfers(operation) && !is_sync(operation);
}

std::uint64_t ReplaySource::waits_until(std::uint64_t now) const noexcept {
    if (!stalls_ || next_ >= plan_.replay.size()) {
        return 0;
    }
    const std::uint64_t due = due_of(plan_.replay[next_]);
    return due > now ? due : 0;
}

Next ReplaySource::next(Io& io, std::vector<FileState>& files, FileOpener& opener) {
    while (next_ < plan_.replay.size()) {
        const ReplayRecord& record = plan_.replay[next_];
        FileState& file = files[record.file];
        if (stalls_ && due_of(record) > clock_.ticks()) {
            // What was done on the way here takes no time; this one is not due yet.
            return Next::busy;
        }
        ++next_;
        if (record.operation == ReplayOperation::close) {
            if (file.is_open() && file.in_flight == 0) {
                opener.close(file);
            }
            continue;
        }
        if (!file.is_open()) {
            opener.open(file);
        }
        if (record.operation == ReplayOperation::open) {
            continue;
        }
        if (record.operation == ReplayOperation::fadvise) {
            (void)::posix_fadvise(file.fd, static_cast<off_t>(record.offset_bytes),
                                  static_cast<off_t>(record.length_bytes), record.advice);
            continue;
        }
        due_ = stalls_ ? due_of(record) : 0;
        io.file = &file;
        io.offset = record.offset_bytes;
        io.length = record.length_bytes;
        io.sync = record.operation == ReplayOperation::fsync       ? SyncKind::fsync
                  : record.operation == ReplayOperation::fdatasync ? SyncKind::fdatasync
                                                                   : SyncKind::none;
        io.direction = io.sync != SyncKind::none                    ? Direction::sync
                       : record.operation == ReplayOperation::read  ? Direction::read
                       : record.operation == ReplayOperation::write ? Direction::write
                                                                    : Direction::trim;
        return Next::io;
    }
    return Next::end;
}

}  // namespace sampleblk::workload
