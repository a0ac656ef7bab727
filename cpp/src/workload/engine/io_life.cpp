// SPDX-License-Identifier: MIT
#include "engine/io_life.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

namespace sampleblk::workload {

namespace {

const char* operation_of(const Io& io) {
    if (io.is_sync()) {
        return "fsync";
    }
    return io.direction == Direction::read ? "read" : io.direction == Direction::write ? "write" : "trim";
}

// Whether a part of a direct read was asked for from where the file ends, which no block of the device does.
bool is_behind_the_end(const Io& io) {
    struct stat status{};
    return io.moved != 0 && io.file->target->type == FileType::regular && ::fstat(io.file->fd, &status) == 0 &&
           io.position() >= static_cast<std::uint64_t>(status.st_size);
}

}  // namespace

IoLife::IoLife(Job& job) noexcept
    : job_(job),
      scrambles_(job.options.scramble_buffers && job.options.writes),
      checks_reads_(job.verifier && job.options.reads && !job.options.writes) {}

Next IoLife::choose(Io& io) {
    io.verify_read = false;
    if (job_.replay) {
        return job_.replay->next(io, job_.files.all(), job_.files);
    }
    if (job_.verifier && job_.verifier->next_of_backlog(io, job_.files.all())) {
        return read_back(io);
    }
    return job_.generator.next(io);
}

Next IoLife::choose_to_verify(Io& io) {
    if (!job_.verifier->next(io, job_.files.all())) {
        io.verify_read = false;
        return Next::end;
    }
    return read_back(io);
}

Next IoLife::read_back(const Io& io) {
    if (!io.file->is_open()) {
        job_.files.open(*io.file);
    }
    return Next::io;
}

bool IoLife::needs_idle() noexcept {
    return (job_.pacer && job_.pacer->needs_idle()) || (job_.verifier && job_.verifier->backlog_is_due()) ||
           (job_.replay && job_.replay->needs_idle());
}

std::uint64_t IoLife::waits_until() {
    const std::uint64_t now = job_.clock.ticks();
    if (job_.replay) {
        const std::uint64_t pause = job_.pacer ? job_.pacer->pauses_until(now) : 0;
        return pause != 0 ? pause : job_.replay->waits_until(now);
    }
    return job_.pacer ? job_.pacer->waits_until(now, job_.generator.sync_is_due()) : 0;
}

bool IoLife::wait_until(std::uint64_t tick) {
    return job_.timetable.sleep_until(tick, job_.pacer ? job_.pacer->spin_until() : 0);
}

void IoLife::prepare(Io& io) {
    if (io.verify_read) {
        return;
    }
    io.due_ticks = job_.pacer ? job_.pacer->begin_io(io) : 0;
    if (job_.replay) {
        io.due_ticks = job_.replay->due();
    }
    if (io.direction == Direction::trim && job_.verifier) {
        job_.verifier->forget(io);
    }
    if (io.direction != Direction::write) {
        return;
    }
    const std::span<std::byte> buffer(io.buffer, static_cast<std::size_t>(io.length));
    if (job_.verifier) {
        job_.verifier->fill(io);
    } else if (job_.refills) {
        job_.filler.fill(buffer, io.offset);
    } else if (scrambles_) {
        scramble(buffer, io.offset, job_.clock.ticks());
    }
}

void IoLife::finish_more(const Io& io, std::uint64_t now, std::uint64_t there) {
    if (job_.pacer) {
        job_.pacer->end_io();
    }
    if (io.direction == Direction::write) {
        io.file->first_written = std::min(io.file->first_written, io.offset);
        io.file->last_written = std::max(io.file->last_written, io.offset + io.length);
    }
    check_latency(io, now);
    if (is_checked(io) && !job_.verifier->check(io, there)) {
        job_.control.finish();
        over_ = true;
    }
}

void IoLife::check_latency(const Io& io, std::uint64_t now) {
    const std::uint64_t latency = job_.clock.ns(now - io.start_ticks);
    const std::uint64_t most = job_.options.max_latency_ns[index_of(io.direction)];
    if (most != 0 && latency > most) {
        job_.control.fail({"max_latency", io.file->target->path, ETIMEDOUT,
                           std::to_string(latency) + " ns at offset " + std::to_string(io.offset)});
        over_ = true;
    }
    if (job_.options.latency_target_ns != 0 && !io.verify_read && job_.accounting.measuring() &&
        !job_.pacer->meets_target(latency)) {
        job_.control.fail({"latency_target", io.file->target->path, ETIMEDOUT, "not met even one I/O at a time"});
        over_ = true;
    }
}

Fate IoLife::complete_otherwise(Io& io, std::int64_t result, std::uint64_t now) {
    if (result == -EINTR || (result == -EAGAIN && !job_.options.nowait)) {
        return job_.control.stopping() ? Fate::ended : Fate::again;
    }
    if (result == -EINVAL && is_checked(io) && is_behind_the_end(io)) {
        result = 0;
    }
    if (result < 0) {
        fail(io, static_cast<int>(-result), operation_of(io));
        return Fate::ended;
    }
    if (io.is_sync()) {
        io.file->first_written = UINT64_MAX;
        io.file->last_written = 0;
        job_.accounting.add_sync(io.issue_ticks, now);
        return Fate::ended;
    }
    if (result == 0 && !is_checked(io)) {
        fail(io, EIO, io.direction == Direction::read ? "read nothing" : "wrote nothing");
        return Fate::ended;
    }
    if (result != 0) {
        job_.accounting.add_short(io);
        io.moved += static_cast<std::uint64_t>(result);
        if (io.position() < io.file->target->size_bytes) {
            return Fate::again;
        }
    }
    // The end of the file.
    const std::uint64_t asked = std::exchange(io.length, io.moved);
    if (is_checked(io)) {
        job_.accounting.add(io, now);
        io.length = asked;
        finish_more(io, now, io.moved);
    } else {
        finish(io, now);
    }
    return Fate::ended;
}

void IoLife::fail(const Io& io, int code, const char* operation) {
    if (job_.verifier && io.direction == Direction::write) {
        job_.verifier->forget(io);  // who knows what is there now
    }
    if (job_.options.fill_device && (code == ENOSPC || code == EDQUOT)) {
        job_.budget.exhaust();  // what fill_device was asked to reach
        return;
    }
    const std::uint8_t kind = io.verify_read                    ? continue_on_verify
                              : io.direction == Direction::read ? continue_on_read
                                                                : continue_on_write;
    if ((job_.options.continue_on_error & kind) != 0) {
        job_.measured.count_error(code);
        // fio's errors that may be continued on, unless ignore_error names others.
        if (code == EIO || code == EILSEQ) {
            return;
        }
    }
    const std::string where =
        "at offset " + std::to_string(io.position()) + ", " + std::to_string(io.left()) + " bytes";
    job_.control.fail({operation, io.file->target->path, code, io.is_sync() ? std::string() : where});
    over_ = true;
}

void IoLife::abandon(const JobError& error) noexcept {
    job_.control.fail(error);
    over_ = true;
}

}  // namespace sampleblk::workload
