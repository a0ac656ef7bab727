// SPDX-License-Identifier: MIT
// The loop of the engines that complete an I/O in the call that starts it. An engine is a type with
//   ssize_t transfer(Io& io)   the system call: bytes moved, or -1 with errno
// so that the loop is compiled once for each and calls nothing through a pointer.
#pragma once

#include <cerrno>
#include <cstdint>

#include "worker.hpp"

namespace sampleblk::workload {

// A short transfer is continued where it broke off. Returns false when the pass is over.
template <typename E>
bool finish_short(Worker& worker, E& engine, Io& io, ssize_t moved) {
    Io rest = io;
    for (;;) {
        if (moved < 0) {
            if (errno == EINTR && !worker.stopping()) {
                moved = engine.transfer(rest);
                continue;
            }
            if (errno == EINTR) {
                return false;
            }
            return worker.survives(io, errno,
                                   io.direction == Direction::read    ? "read"
                                   : io.direction == Direction::write ? "write"
                                                                      : "trim");
        }
        if (moved == 0) {
            return worker.survives(io, EIO, "read nothing");
        }
        ++worker.state().data[index_of(io.direction)].short_ios;
        rest.offset += static_cast<std::uint64_t>(moved);
        rest.length -= static_cast<std::uint64_t>(moved);
        rest.buffer += moved;
        if (rest.length == 0 || rest.offset >= rest.file->target->size_bytes) {
            io.length -= rest.length;
            return true;
        }
        moved = engine.transfer(rest);
        if (moved == static_cast<ssize_t>(rest.length)) {
            return true;
        }
    }
}

template <typename E>
void sync_loop(Worker& worker, E& engine) {
    const Clock& clock = worker.clock();
    Generator& generator = worker.generator();
    const bool scrambles = worker.options().scramble_buffers && worker.options().writes;
    const bool time_based = worker.options().time_based;
    std::uint64_t now = clock.ticks();
    Io io;
    io.buffer = worker.buffer_of(0);
    while (worker.wants_more() || time_based) {
        if (worker.stopping()) [[unlikely]] {
            return;
        }
        if (now >= worker.next_event()) [[unlikely]] {
            if (!worker.on_time(now)) {
                return;
            }
        }
        if (generator.next(io) != Next::io) [[unlikely]] {
            return;
        }
        if (io.sync != SyncKind::none) [[unlikely]] {
            const std::uint64_t issue = clock.ticks();
            const int result = worker.sync_file(*io.file, io.sync);
            now = clock.ticks();
            if (result != 0 && !worker.survives(io, errno, "fsync")) {
                return;
            }
            io.file->first_written = UINT64_MAX;
            io.file->last_written = 0;
            worker.account_sync(issue, now);
            continue;
        }
        worker.count_issue(io);
        if (io.direction == Direction::write && scrambles) {
            scramble({io.buffer, static_cast<std::size_t>(io.length)}, io.offset, now);
        }
        io.issue_ticks = clock.ticks();
        const ssize_t moved = engine.transfer(io);
        now = clock.ticks();
        if (moved != static_cast<ssize_t>(io.length)) [[unlikely]] {
            const bool goes_on = finish_short(worker, engine, io, moved);
            now = clock.ticks();
            if (!goes_on) {
                return;
            }
            if (moved < 0) {
                continue;
            }
        }
        worker.account(io, now);
    }
}

}  // namespace sampleblk::workload
