// SPDX-License-Identifier: MIT
// The loop of the engines that have many I/Os in flight. An engine is a type with
//   bool queue(Io& io)                     takes an I/O into the batch; false: commit first, or wait
//   int commit()                           submits the batch: I/Os taken by the kernel, or -errno
//   template <F> int reap(min, max, F f)   waits for `min`, calls f(slot, result) for up to `max`;
//                                          how many, or -errno
//   bool inline_only(const Io& io)         cannot be queued: done by the loop when none is in flight
//   bool issues_before_commit              commit() does the I/O, so the clock is read before it
// so that the loop is compiled once for each and calls nothing through a pointer.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "engines.hpp"
#include "worker.hpp"

namespace sampleblk::workload {

template <typename E>
class AsyncLoop {
  public:
    AsyncLoop(Worker& worker, E& engine) : worker_(worker), engine_(engine), depth_(worker.options().iodepth) {
        slots_.resize(depth_);
        queued_.reserve(depth_);
        free_.reserve(depth_);
        for (std::uint32_t i = depth_; i-- > 0;) {
            slots_[i].index = i;
            free_.push_back(i);
        }
    }

    // `next(io)` chooses the I/Os: the generator's, or those to verify.
    template <typename Choose>
    void run(Choose choose, bool verifying) {
        const JobOptions& options = worker_.options();
        const Clock& clock = worker_.clock();
        const std::uint32_t batch = options.iodepth_batch;
        const std::uint32_t low = options.iodepth_low;
        const std::uint32_t min_complete = options.iodepth_batch_complete_min;
        const bool polls = options.iodepth_batch_complete_max == 0;
        const std::uint32_t max_complete = polls ? depth_ : options.iodepth_batch_complete_max;
        const bool scrambles = options.scramble_buffers && options.writes && !verifying;
        const bool time_based = options.time_based;
        const bool extras = worker_.has_extras();
        bool ended = false;
        over_ = false;
        now_ = clock.ticks();
        while (!over_) {
            if (worker_.stopping()) [[unlikely]] {
                break;
            }
            if (now_ >= worker_.next_event()) [[unlikely]] {
                if (!worker_.on_time(now_)) {
                    break;
                }
            }
            if (!verifying && !worker_.wants_more() && !time_based) {
                ended = true;
            }
            bool full = free_.empty() || (extras && depth_ - free_.size() >= worker_.depth_limit());
            if (!full && !ended) {
                const Next next = start_one(choose, scrambles, extras, verifying, batch);
                ended = ended || next == Next::end;
                full = next == Next::busy || free_.empty();
            }
            if (ended) {
                break;
            }
            if (full || polls) {
                if (!queued_.empty() && !polls) {
                    commit();  // before waiting, whatever the batch
                }
                if (free_.size() == depth_) {
                    continue;  // nothing is in flight at all: the next file, or the next record, may be ready
                }
                do {
                    if (!reap(polls ? 0 : std::max<std::uint32_t>(1, min_complete), max_complete)) {
                        return;
                    }
                } while (full && depth_ - free_.size() > low);
            }
        }
        drain();
    }

    // Submits what is queued and waits for all that is in flight.
    void drain() {
        while (!queued_.empty()) {
            if (!commit()) {
                break;
            }
        }
        while (free_.size() < depth_) {
            if (!reap(static_cast<std::uint32_t>(depth_ - free_.size()), depth_)) {
                return;
            }
        }
    }

  private:
    template <typename Choose>
    Next start_one(Choose& choose, bool scrambles, bool extras, bool verifying, std::uint32_t batch) {
        if (extras && !verifying && !wait_for_turn()) {
            return Next::end;
        }
        // After the wait, which may have freed other slots.
        const std::uint32_t index = free_.back();
        Io& io = slots_[index];
        const Next next = choose(io);
        if (next != Next::io) {
            return next;
        }
        if (engine_.inline_only(io)) {
            drain();
            return run_inline(io);
        }
        free_.pop_back();
        io.buffer = worker_.buffer_of(index);
        ++io.file->in_flight;
        if (io.sync != SyncKind::none) {
            worker_.generator().count_sync();  // now, or every turn until it completes would sync again
        } else if (!io.verify_read) {
            worker_.count_issue(io);
        }
        io.depth = static_cast<std::uint16_t>(depth_ - free_.size());
        io.start_ticks = worker_.clock().ticks();
        if (extras && !io.verify_read) {
            worker_.prepare(io);
        } else if (scrambles && io.direction == Direction::write) {
            scramble({io.buffer, static_cast<std::size_t>(io.length)}, io.offset, now_);
        }
        while (!engine_.queue(io)) {
            if (queued_.empty() ? !reap(1, depth_) : !commit()) {
                return Next::end;
            }
        }
        queued_.push_back(index);
        if (queued_.size() >= batch) {
            (void)commit();
        }
        return Next::io;
    }

    // Think time and limited rates; what is in flight ends before the job sleeps.
    bool wait_for_turn() {
        if (worker_.wants_quiet()) {
            drain();
        }
        for (std::uint64_t until = worker_.turn_begins(); until != 0; until = worker_.turn_begins()) {
            drain();
            if (!worker_.sleep_until(until)) {
                return false;
            }
            now_ = worker_.clock().ticks();
        }
        return true;
    }

    // A sync, or a trim, on an engine that has no asynchronous form of it.
    Next run_inline(Io& io) {
        const Clock& clock = worker_.clock();
        io.start_ticks = io.issue_ticks = clock.ticks();
        io.depth = 1;
        const bool is_sync = io.sync != SyncKind::none;
        if (!is_sync) {
            worker_.count_issue(io);
        }
        const ssize_t result = is_sync ? worker_.sync_file(*io.file, io.sync) : trim_range(io);
        now_ = clock.ticks();
        if (result < 0) {
            return worker_.survives(io, errno, is_sync ? "fsync" : "trim") ? Next::io : Next::end;
        }
        worker_.count_submit(1, 1);
        worker_.count_complete(1);
        if (is_sync) {
            worker_.account_sync(*io.file, io.issue_ticks, now_);
        } else {
            worker_.account(io, now_);
        }
        return Next::io;
    }

    // False when nothing could be submitted and the pass is over.
    bool commit() {
        const std::uint64_t before = E::issues_before_commit ? worker_.clock().ticks() : 0;
        const int taken = engine_.commit();
        if (taken < 0) {
            if (taken == -EINTR) {
                return !worker_.stopping();
            }
            if (taken == -EAGAIN || taken == -EBUSY) {
                // The kernel wants completions taken first.
                return reap(free_.size() + queued_.size() < depth_ ? 1 : 0, depth_);
            }
            worker_.fail({engine_.name(), {}, -taken, "submission"});
            abandon();
            return false;
        }
        const std::uint64_t issued = E::issues_before_commit ? before : worker_.clock().ticks();
        const auto count = static_cast<std::size_t>(taken);
        for (std::size_t i = 0; i < count; ++i) {
            slots_[queued_[i]].issue_ticks = issued;
        }
        worker_.count_submit(static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(depth_ - free_.size()));
        queued_.erase(queued_.begin(), queued_.begin() + static_cast<std::ptrdiff_t>(count));
        return true;
    }

    bool reap(std::uint32_t min, std::uint32_t max) {
        reaped_.clear();
        const int got =
            engine_.reap(min, max, [&](std::uint32_t slot, std::int32_t result) { reaped_.push_back({slot, result}); });
        if (got < 0) {
            if (got == -EINTR) {
                // A nudge: waiting for what is in flight goes on, it will not be long.
                return true;
            }
            worker_.fail({engine_.name(), {}, -got, "completion"});
            abandon();
            return false;
        }
        if (reaped_.empty()) {
            return true;
        }
        now_ = worker_.clock().ticks();
        worker_.count_complete(static_cast<std::uint32_t>(reaped_.size()));
        for (const Completion& completion : reaped_) {
            complete(completion.slot, completion.result);
        }
        return true;
    }

    void complete(std::uint32_t slot, std::int32_t result) {
        Io& io = slots_[slot];
        if (io.sync != SyncKind::none) {
            if (result < 0 && !worker_.survives(io, -result, "fsync")) {
                over_ = true;
            } else {
                worker_.account_sync(*io.file, io.issue_ticks, now_);
            }
        } else if (result == static_cast<std::int32_t>(io.length)) [[likely]] {
            if (io.verify_read) {
                over_ = !worker_.check_read(io, now_) || over_;
            } else {
                worker_.account(io, now_);
                if (worker_.has_extras() && !worker_.after(io, now_)) {
                    over_ = true;
                }
            }
        } else if (result == -EINTR || result == -EAGAIN) {
            retry(io);
            return;
        } else if (result < 0) {
            over_ = !worker_.survives(io, -result, "I/O") || over_;
        } else if (result == 0) {
            over_ = !worker_.survives(io, EIO, "read nothing") || over_;
        } else if (!finish_short(io, result)) {
            return;
        }
        --io.file->in_flight;
        free_.push_back(slot);
    }

    // Queues the same I/O, or what is left of it, once more. It stays in flight.
    void retry(Io& io) {
        while (!engine_.queue(io)) {
            if (!commit()) {
                break;
            }
        }
        queued_.push_back(io.index);
        (void)commit();
    }

    // A short transfer is finished by calls of its own, as it is rare. True when it has ended.
    bool finish_short(Io& io, std::int32_t moved) {
        ++worker_.state().data[index_of(io.direction)].short_ios;
        auto done = static_cast<std::uint64_t>(moved);
        while (done < io.length && io.offset + done < io.file->target->size_bytes) {
            const auto left = static_cast<std::size_t>(io.length - done);
            const auto at = static_cast<off_t>(io.offset + done);
            const ssize_t more = io.direction == Direction::read ? ::pread(io.file->fd, io.buffer + done, left, at)
                                                                 : ::pwrite(io.file->fd, io.buffer + done, left, at);
            if (more <= 0) {
                over_ = !worker_.survives(io, more < 0 ? errno : EIO, "I/O") || over_;
                return true;
            }
            done += static_cast<std::uint64_t>(more);
        }
        now_ = worker_.clock().ticks();
        io.length = done;
        worker_.account(io, now_);
        return true;
    }

    // After an error of the engine itself nothing more will complete.
    void abandon() {
        over_ = true;
        queued_.clear();
        free_.clear();
        for (std::uint32_t i = depth_; i-- > 0;) {
            if (slots_[i].file != nullptr) {
                slots_[i].file->in_flight = 0;
            }
            free_.push_back(i);
        }
    }

    struct Completion {
        std::uint32_t slot;
        std::int32_t result;
    };

    Worker& worker_;
    E& engine_;
    std::uint32_t depth_;
    std::uint64_t now_ = 0;
    bool over_ = false;
    std::vector<Io> slots_;
    std::vector<std::uint32_t> free_;
    std::vector<std::uint32_t> queued_;
    std::vector<Completion> reaped_;
};

// The instance that a worker holds.
template <typename E>
class AsyncInstance : public EngineInstance {
  public:
    template <typename... Arguments>
    explicit AsyncInstance(Worker& worker, Arguments&&... arguments)
        : engine_(worker, std::forward<Arguments>(arguments)...), loop_(worker, engine_) {}

    void pass(Worker& worker) override {
        loop_.run([&worker](Io& io) { return worker.has_extras() ? worker.next(io) : worker.generator().next(io); },
                  false);
    }
    void verify_pass(Worker& worker) override {
        loop_.run([&worker](Io& io) { return worker.next_to_verify(io); }, true);
    }
    void opened(FileState& file) override { engine_.opened(file); }
    void closing(FileState& file) override { engine_.closing(file); }

  private:
    E engine_;
    AsyncLoop<E> loop_;
};

}  // namespace sampleblk::workload
