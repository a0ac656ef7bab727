// SPDX-License-Identifier: MIT
// The loop of the engines that complete an I/O in the call that starts it. An engine is a type with
//   ssize_t transfer(Io& io)               the system call: bytes moved, or -1 with errno
//   int sync(FileState& file, SyncKind k)  -1 with errno
// so that the loop is compiled once for each and calls nothing through a pointer.
#pragma once

#include <cerrno>
#include <cstdint>
#include <utility>

#include "engines.hpp"
#include "worker.hpp"

namespace sampleblk::workload {

template <typename E>
class SyncLoop {
  public:
    SyncLoop(Worker& worker, E& engine) : worker_(worker), engine_(engine) {}

    // `choose(io)` picks the I/Os: the generator's, or those to verify.
    template <typename Choose>
    void run(Choose choose, bool verifying) {
        const Clock& clock = worker_.clock();
        const bool scrambles = worker_.options().scramble_buffers && worker_.options().writes && !verifying;
        const bool time_based = worker_.options().time_based;
        const bool extras = worker_.has_extras();
        std::uint64_t now = clock.ticks();
        Io io;
        io.buffer = worker_.buffer_of(0);
        while (verifying || worker_.wants_more() || time_based) {
            if (worker_.stopping()) [[unlikely]] {
                return;
            }
            if (now >= worker_.next_event()) [[unlikely]] {
                if (!worker_.on_time(now)) {
                    return;
                }
            }
            if (extras && !verifying && !wait_for_turn()) [[unlikely]] {
                return;
            }
            if (const Next next = choose(io); next != Next::io) [[unlikely]] {
                if (next == Next::busy) {
                    continue;
                }
                return;
            }
            if (io.sync != SyncKind::none) [[unlikely]] {
                const std::uint64_t issue = clock.ticks();
                const int result = engine_.sync(*io.file, io.sync);
                now = clock.ticks();
                if (result != 0 && !worker_.survives(io, errno, "fsync")) {
                    return;
                }
                worker_.account_sync(*io.file, issue, now);
                continue;
            }
            if (!io.verify_read) {
                worker_.count_issue(io);
            }
            if (extras) [[unlikely]] {
                io.start_ticks = clock.ticks();
                if (!io.verify_read) {
                    worker_.prepare(io);
                }
            } else if (scrambles && io.direction == Direction::write) {
                scramble({io.buffer, static_cast<std::size_t>(io.length)}, io.offset, now);
            }
            io.issue_ticks = clock.ticks();
            const ssize_t moved = engine_.transfer(io);
            now = clock.ticks();
            if (moved != static_cast<ssize_t>(io.length)) [[unlikely]] {
                const bool goes_on = finish_short(io, moved);
                now = clock.ticks();
                if (!goes_on) {
                    return;
                }
                if (moved < 0) {
                    continue;
                }
            }
            if (io.verify_read) [[unlikely]] {
                if (!worker_.check_read(io, now)) {
                    return;
                }
                continue;
            }
            worker_.account(io, now);
            if (extras && !worker_.after(io, now)) [[unlikely]] {
                return;
            }
        }
    }

  private:
    // Think time and limited rates.
    bool wait_for_turn() {
        for (std::uint64_t until = worker_.turn_begins(); until != 0; until = worker_.turn_begins()) {
            if (!worker_.sleep_until(until)) {
                return false;
            }
        }
        return true;
    }

    // A short transfer is continued where it broke off. False: the pass is over.
    bool finish_short(Io& io, ssize_t moved) {
        const char* name = io.direction == Direction::read    ? "read"
                           : io.direction == Direction::write ? "write"
                                                              : "trim";
        Io rest = io;
        for (;;) {
            if (moved < 0 && errno == EINTR) {
                if (worker_.stopping()) {
                    return false;
                }
                moved = engine_.transfer(rest);
                if (moved == static_cast<ssize_t>(rest.length)) {
                    return true;
                }
                continue;
            }
            if (moved < 0) {
                return worker_.survives(io, errno, name);
            }
            if (moved == 0) {
                return worker_.survives(io, EIO, "read nothing");
            }
            ++worker_.state().data[index_of(io.direction)].short_ios;
            rest.offset += static_cast<std::uint64_t>(moved);
            rest.length -= static_cast<std::uint64_t>(moved);
            rest.buffer += moved;
            if (rest.offset >= rest.file->target->size_bytes) {
                io.length -= rest.length;
                return true;
            }
            moved = engine_.transfer(rest);
            if (moved == static_cast<ssize_t>(rest.length)) {
                return true;
            }
        }
    }

    Worker& worker_;
    E& engine_;
};

// The instance that a worker holds.
template <typename E>
class SyncInstance : public EngineInstance {
  public:
    template <typename... Arguments>
    explicit SyncInstance(Worker& worker, Arguments&&... arguments)
        : engine_{worker, std::forward<Arguments>(arguments)...}, loop_(worker, engine_) {}

    void pass(Worker& worker) override {
        if (worker.has_extras()) {
            loop_.run([&worker](Io& io) { return worker.next(io); }, false);
        } else {
            loop_.run([&worker](Io& io) { return worker.generator().next(io); }, false);
        }
    }
    void verify_pass(Worker& worker) override {
        loop_.run([&worker](Io& io) { return worker.next_to_verify(io); }, true);
    }
    void opened(FileState& file) override { engine_.opened(file); }
    void closing(FileState& file) override { engine_.closing(file); }

  private:
    E engine_;
    SyncLoop<E> loop_;
};

}  // namespace sampleblk::workload
