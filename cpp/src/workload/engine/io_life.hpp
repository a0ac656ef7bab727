// SPDX-License-Identifier: MIT
// The life of an I/O: chosen, held back, begun, issued (by the engine), completed. Every completion, whatever engine it
// came from, in the call or later, whole, short, interrupted or failed, goes through complete().
#pragma once

#include <cstdint>

#include "engine/job.hpp"

namespace sampleblk::workload {

enum class Fate : std::uint8_t {
    ended,
    again,  // what is left of it is to be issued once more; it stays in flight
};

class IoLife {
  public:
    explicit IoLife(Job& job) noexcept;

    // --- chosen
    [[nodiscard]] Next choose(Io& io);
    [[nodiscard]] Next choose_to_verify(Io& io);

    // --- held back: think time, limited rates, the pauses of a replay
    // Whether nothing may be in flight before the next one.
    [[nodiscard]] bool needs_idle() noexcept;
    // When the next one may begin: 0 for now, else a tick to wait for and then ask again.
    [[nodiscard]] std::uint64_t waits_until();
    // False when the job was told to stop, or its time was up, in the meantime.
    [[nodiscard]] bool wait_until(std::uint64_t tick);
    [[nodiscard]] std::uint32_t depth_limit() const noexcept {
        return job_.pacer ? job_.pacer->depth() : job_.options.iodepth;
    }

    // --- begun: counted, and its buffer prepared
    void begin(Io& io, std::uint64_t now) {
        io.moved = 0;
        io.issue_ticks = 0;
        io.level = 0;
        if (io.is_sync()) {
            job_.generator.count_sync();  // now, or until it completes each next one would be a sync too
            return;
        }
        job_.budget.count(io);
        if (!io.verify_read) {
            job_.generator.count_issue(io);
        }
        if (job_.extras) [[unlikely]] {
            io.start_ticks = job_.clock.ticks();
            prepare(io);
        } else if (scrambles_ && io.direction == Direction::write) {
            scramble({io.buffer, static_cast<std::size_t>(io.length)}, io.offset, now);
        }
    }

    // --- completed at `now` with as many bytes, or -errno
    [[nodiscard]] Fate complete(Io& io, std::int64_t result, std::uint64_t now) {
        if (result == static_cast<std::int64_t>(io.left()) && !io.is_sync()) [[likely]] {
            finish(io, now);
            return Fate::ended;
        }
        return complete_otherwise(io, result, now);
    }

    // Whether an I/O ended the pass: by an error, a latency, a block that is wrong.
    [[nodiscard]] bool over() const noexcept { return over_; }
    void begin_pass() noexcept { over_ = false; }
    // The engine itself failed; nothing more will complete.
    void abandon(const JobError& error) noexcept;

  private:
    void finish(const Io& io, std::uint64_t now) {
        job_.accounting.add(io, now);
        if (job_.extras) [[unlikely]] {
            finish_more(io, now, io.length);
        }
    }
    void prepare(Io& io);
    // `there`: how much of it the file has.
    void finish_more(const Io& io, std::uint64_t now, std::uint64_t there);
    [[nodiscard]] bool is_checked(const Io& io) const noexcept {
        return io.verify_read || (checks_reads_ && io.direction == Direction::read);
    }
    void check_latency(const Io& io, std::uint64_t now);
    [[nodiscard]] Fate complete_otherwise(Io& io, std::int64_t result, std::uint64_t now);
    void fail(const Io& io, int code, const char* operation);
    [[nodiscard]] Next read_back(const Io& io);

    Job& job_;
    bool scrambles_;
    bool checks_reads_;
    bool over_ = false;
};

}  // namespace sampleblk::workload
