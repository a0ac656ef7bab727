// SPDX-License-Identifier: MIT
// The loop of all engines. It is compiled once for each, so that it calls nothing through a pointer. An engine is a
// type with
//   ssize_t perform(const Io& io)          what is left of a data I/O, in the call: bytes, or -1 with errno
//   int sync(FileState& file, SyncKind k)  0, or -1 with errno
//   void opened(FileState&), closing(FileState&)
// and, if it lets go of all files in another way than of each,
//   void closing_all()
// and, if it has many I/Os in flight,
//   bool queue(Io& io)                     takes what is left of an I/O into the batch; false: commit first
//   int commit()                           submits the batch: how many I/Os were taken, or -errno
//   template <F> int reap(min, max, F f)   waits for `min`, calls f(slot, result) for up to `max`; how many, or -errno
//   bool inline_only(const Io& io)         is not queued but performed, once all that is queued was submitted
//   static bool issues_before_commit       commit() does the I/O, so the clock is read before it
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "engine/io_life.hpp"
#include "engine/job.hpp"

namespace sampleblk::workload {

template <typename E>
class Loop {
  public:
    static constexpr bool queues = requires(E& engine, Io& io) { engine.queue(io); };

    Loop(Job& job, IoLife& life, E& engine)
        : job_(job), life_(life), engine_(engine), depth_(queues ? job.options.iodepth : 1), slots_(depth_) {
        const JobOptions& options = job.options;
        serializes_ = options.serialize_overlap || (job.verifier && job.plan.writes_may_overlap());
        polls_ = options.iodepth_batch_complete_max == 0;
        max_complete_ = polls_ ? depth_ : options.iodepth_batch_complete_max;
        free_.reserve(depth_);
        for (std::uint32_t i = depth_; i-- > 0;) {
            slots_[i].index = i;
            slots_[i].buffer = job.buffer_of(i);
            free_.push_back(i);
        }
    }

    // `choose(io)` picks the I/Os: those of a pass, or those to verify.
    template <typename Choose>
    void run(Choose choose, bool verifying) {
        const bool waits = job_.extras && !verifying;
        verifying_ = verifying;
        life_.begin_pass();
        abandoned_ = false;
        now_ = job_.clock.ticks();
        while (!life_.over() && !job_.control.stopping()) {
            if (now_ >= job_.timetable.next_event()) [[unlikely]] {
                if (!job_.timetable.on_time(now_)) {
                    break;
                }
            }
            if (!verifying && !job_.budget.wants_more()) {
                break;
            }
            Next next = Next::busy;
            if (!is_full()) {
                if (waits && !wait_for_turn()) [[unlikely]] {
                    break;
                }
                next = start_one(choose);
                if (next == Next::end) {
                    break;
                }
            }
            if constexpr (queues) {
                make_room(next == Next::busy);
            }
        }
        drain();
    }

  private:
    [[nodiscard]] std::uint32_t in_flight() const noexcept { return depth_ - static_cast<std::uint32_t>(free_.size()); }
    [[nodiscard]] bool is_full() const noexcept {
        if constexpr (queues) {
            return free_.empty() || (job_.extras && in_flight() >= life_.depth_limit());
        } else {
            return false;
        }
    }

    // Think time, limited rates, the pauses of a replay; what is in flight ends before the job sleeps.
    bool wait_for_turn() {
        if (life_.needs_idle()) {
            drain();
        }
        for (std::uint64_t until = life_.waits_until(); until != 0; until = life_.waits_until()) {
            drain();
            if (!life_.wait_until(until)) {
                return false;
            }
            now_ = job_.clock.ticks();
        }
        return true;
    }

    template <typename Choose>
    Next start_one(Choose& choose) {
        Io& io = slots_[queues ? free_.back() : 0];
        const Next next = choose(io);
        if (next != Next::io) [[unlikely]] {
            return next;
        }
        life_.begin(io, now_);
        if constexpr (queues) {
            if (!engine_.inline_only(io)) {
                enqueue(io);
                return Next::io;
            }
            if (!queued_.empty()) {
                make_room(true);
            }
        }
        perform(io);
        return Next::io;
    }

    // The whole I/O within the call.
    void perform(Io& io) {
        if constexpr (queues) {
            io.depth = 1;
        }
        for (;;) {
            const std::uint64_t issue = job_.clock.ticks();
            io.issue_ticks = io.issue_ticks == 0 ? issue : io.issue_ticks;
            const std::int64_t moved = io.is_sync() ? engine_.sync(*io.file, io.sync) : engine_.perform(io);
            const std::int64_t result = moved < 0 ? -errno : moved;
            now_ = job_.clock.ticks();
            if (life_.complete(io, result, now_) == Fate::ended) [[likely]] {
                break;
            }
        }
        if constexpr (queues) {
            job_.accounting.add_submit(1);
            job_.accounting.add_complete(1);
        }
    }

    // --- engines with a queue

    void enqueue(Io& io) {
        free_.pop_back();
        ++io.file->in_flight;
        if (serializes_) {
            while (overlaps_in_flight(io) && submit() && reap(1, max_complete_)) {
            }
        }
        io.depth = static_cast<std::uint16_t>(std::min<std::uint32_t>(in_flight(), UINT16_MAX));
        if (!job_.extras) {
            io.start_ticks = job_.clock.ticks();
        }
        (void)queue(io);
        if (queued_.size() >= job_.options.iodepth_batch) {
            (void)commit();
        }
    }

    [[nodiscard]] bool overlaps_in_flight(const Io& io) const noexcept {
        return std::ranges::any_of(slots_, [&](const Io& other) {
            return other.index != io.index && other.file != nullptr && is_in_flight_[other.index] &&
                   (io.changes_data() || other.changes_data()) && io.overlaps(other);
        });
    }

    bool queue(Io& io) {
        is_in_flight_[io.index] = true;
        while (!engine_.queue(io)) {
            if (queued_.empty() ? !reap(1, max_complete_) : !commit()) {
                return false;
            }
        }
        queued_.push_back(io.index);
        return true;
    }

    // Waits for completions where there is no room for another I/O; `busy` says that none can be chosen until one ends.
    // As fio does it: all that is queued is submitted first, and a full queue is drained to iodepth_low.
    void make_room(bool busy) {
        const bool full = is_full() || (busy && in_flight() != 0);
        if (!full && !polls_) {
            return;
        }
        const std::uint32_t min = std::max<std::uint32_t>(1, job_.options.iodepth_batch_complete_min);
        do {
            if (!submit() || in_flight() == 0) {
                return;
            }
            (void)reap(min, max_complete_);
        } while (full && in_flight() > job_.options.iodepth_low && !abandoned_ && !job_.control.stopping());
    }

    // Waits for all that is in flight, after submitting what is queued.
    void drain() {
        if constexpr (queues) {
            while (submit() && in_flight() != 0 && reap(in_flight(), depth_)) {
            }
        }
    }

    // All of it, what has to be issued again included. False when the engine failed.
    bool submit() {
        while (!again_.empty() || !queued_.empty()) {
            if (again_.empty()) {
                if (!commit()) {
                    return false;
                }
                continue;
            }
            Io& io = slots_[again_.back()];
            again_.pop_back();
            if (!queue(io)) {
                return false;
            }
        }
        return !abandoned_;
    }

    // False when the engine failed. What the kernel did not take stays queued.
    bool commit() {
        const std::uint64_t before = E::issues_before_commit ? job_.clock.ticks() : 0;
        const int taken = engine_.commit();
        if (taken < 0) {
            if (taken == -EINTR) {
                return !job_.control.stopping() || give_up_queued();
            }
            if (taken != -EAGAIN && taken != -EBUSY) {
                abandon(-taken, "submission");
                return false;
            }
            if (in_flight() > queued_.size() + again_.size()) {
                return reap(1, depth_);  // the kernel wants completions taken first
            }
            job_.control.sleep(1000);
            return !job_.control.stopping() || give_up_queued();
        }
        const std::uint64_t issued = E::issues_before_commit ? before : job_.clock.ticks();
        const auto count = static_cast<std::size_t>(taken);
        const auto level = static_cast<std::uint8_t>(depth_level(in_flight()));
        for (std::size_t i = 0; i < count; ++i) {
            Io& io = slots_[queued_[i]];
            if (io.issue_ticks == 0) {
                io.issue_ticks = issued;
                io.level = level;
            }
        }
        job_.accounting.add_submit(static_cast<std::uint32_t>(count));
        queued_.erase(queued_.begin(), queued_.begin() + static_cast<std::ptrdiff_t>(count));
        return true;
    }

    bool reap(std::uint32_t min, std::uint32_t max) {
        reaped_.clear();
        const int got = engine_.reap(std::min(min, in_flight()), max, [&](std::uint32_t slot, std::int32_t result) {
            reaped_.emplace_back(slot, result);
        });
        if (got < 0 && got != -EINTR) {
            abandon(-got, "completion");
            return false;
        }
        if (reaped_.empty()) {
            now_ = job_.clock.ticks();
            return true;
        }
        now_ = job_.clock.ticks();
        job_.accounting.add_complete(static_cast<std::uint32_t>(reaped_.size()));
        for (const auto& [slot, result] : reaped_) {
            Io& io = slots_[slot];
            if (life_.complete(io, result, now_) == Fate::again) [[unlikely]] {
                again_.push_back(slot);
            } else {
                release(io);
            }
        }
        return true;
    }

    void release(Io& io) {
        is_in_flight_[io.index] = false;
        free_.push_back(io.index);
        // The generator closes a file that has no more to give, but not while I/Os to it are in flight; and `openfiles`
        // may keep it from opening another one until then.
        if (--io.file->in_flight == 0 && io.file->done && !verifying_) [[unlikely]] {
            job_.files.close(*io.file);
        }
    }

    // A job that is to stop does not wait for a kernel that takes nothing.
    bool give_up_queued() {
        for (const std::uint32_t slot : queued_) {
            release(slots_[slot]);
        }
        queued_.clear();
        return true;
    }

    // After an error of the engine itself nothing more will complete.
    void abandon(int code, const char* what) {
        life_.abandon({E::name(), {}, code, what});
        abandoned_ = true;
        queued_.clear();
        again_.clear();
        free_.clear();
        for (std::uint32_t i = depth_; i-- > 0;) {
            if (slots_[i].file != nullptr) {
                slots_[i].file->in_flight = 0;
            }
            is_in_flight_[i] = false;
            free_.push_back(i);
        }
    }

    Job& job_;
    IoLife& life_;
    E& engine_;
    std::uint32_t depth_;
    std::uint32_t max_complete_ = 1;
    bool polls_ = false;
    bool serializes_ = false;
    bool abandoned_ = false;
    bool verifying_ = false;
    std::uint64_t now_ = 0;
    std::vector<Io> slots_;
    std::vector<bool> is_in_flight_ = std::vector<bool>(slots_.size());
    std::vector<std::uint32_t> free_;
    std::vector<std::uint32_t> queued_;  // in the engine's batch, in order
    std::vector<std::uint32_t> again_;   // to be queued once more
    std::vector<std::pair<std::uint32_t, std::int32_t>> reaped_;
};

// What a job holds of its engine.
template <typename E>
class EngineLoop final : public EngineInstance {
  public:
    explicit EngineLoop(Job& job) : job_(job), engine_{job}, life_(job), loop_(job, life_, engine_) {}

    void pass() override {
        if (job_.extras) {
            loop_.run([this](Io& io) { return life_.choose(io); }, false);
        } else {
            loop_.run([this](Io& io) { return job_.generator.next(io); }, false);
        }
        // As in fio, the last block is thought about too.
        if (!job_.control.ending() && life_.needs_idle()) {
            (void)life_.wait_until(life_.waits_until());
        }
    }
    void verify_pass() override {
        loop_.run([this](Io& io) { return life_.choose_to_verify(io); }, true);
    }
    void opened(FileState& file) override { engine_.opened(file); }
    void closing(FileState& file) override { engine_.closing(file); }
    void closing_all() override {
        if constexpr (requires { engine_.closing_all(); }) {
            engine_.closing_all();
        }
    }

  private:
    Job& job_;
    E engine_;
    IoLife life_;
    Loop<E> loop_;
};

}  // namespace sampleblk::workload
