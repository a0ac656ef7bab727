// SPDX-License-Identifier: MIT
#include "worker.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <exception>

#include "futex.hpp"
#include "job_fixups.hpp"
#include "process_settings.hpp"
#include "replay.hpp"
#include "sampleblk/error.hpp"

namespace sampleblk::workload {

namespace {

std::uint64_t saturating_product(std::uint64_t a, std::uint64_t b) {
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

}  // namespace

Worker::Worker(const JobPlan& plan, JobShared& shared, std::span<IoLogEntry> io_log, std::atomic<std::uint32_t>& event,
               const Clock& clock)
    : plan_(plan),
      options_(plan.options),
      shared_(shared),
      state_(shared.state),
      io_log_(io_log),
      event_(event),
      clock_(clock) {}

void Worker::set_phase(Phase phase) noexcept {
    state_.phase.store(static_cast<std::uint32_t>(phase), std::memory_order_release);
    event_.fetch_add(1, std::memory_order_release);
    futex_wake(event_);
}

void Worker::fail(const JobError& error) noexcept {
    failed_ = true;
    if (state_.error == 0) {
        state_.error = error.code != 0 ? error.code : EIO;
        state_.error_operation.set(error.operation);
        state_.error_path.set(error.path);
        state_.error_detail.set(error.detail);
    }
}

bool Worker::survives(const Io& io, int code, const char* operation) {
    const std::uint8_t kind = io.verify_read                    ? continue_on_verify
                              : io.direction == Direction::read ? continue_on_read
                                                                : continue_on_write;
    if (options_.fill_device && (code == ENOSPC || code == EDQUOT)) {
        total_limit_ios_ = total_issued_ios_;  // what fill_device was asked to reach
        return true;
    }
    if (code != ENOSPC && code != EDQUOT && (options_.continue_on_error & kind) != 0) {
        ++state_.error_count;
        return true;
    }
    fail({operation, io.file->target->path, code,
          "at offset " + std::to_string(io.offset) + ", " + std::to_string(io.length) + " bytes"});
    return false;
}

void Worker::account_sync(FileState& file, std::uint64_t issue, std::uint64_t end) noexcept {
    file.first_written = UINT64_MAX;
    file.last_written = 0;
    generator_->count_sync();
    if (measuring_) {
        ++state_.sync_ios;
        if (record_clat_) {
            state_.sync_latency.add(clock_.ns(end - issue));
        }
    }
}

void Worker::account_more(const Io& io, std::uint64_t end) noexcept {
    DirectionStats& stats = state_.data[index_of(io.direction)];
    const std::uint64_t clat = clock_.ns(end - io.issue_ticks);
    const std::uint64_t lat = (features_ & separate_lat) != 0 ? clock_.ns(end - io.start_ticks) : clat;
    const std::uint64_t slat = lat > clat ? lat - clat : 0;
    if ((features_ & separate_lat) != 0) {
        if (!options_.disable_lat) {
            stats.lat.add(lat);
        }
        if (!options_.disable_slat && !is_synchronous(options_.engine)) {
            stats.slat.add(slat);
        }
    }
    if ((features_ & response_time) != 0 && io.due_ticks != 0) {
        stats.response.add(clock_.ns(end - std::min(io.due_ticks, end)));
    }
    if ((features_ & log_lines) != 0) {
        try {
            logs_->add(io, clock_.ns(end - began_ticks_), slat, clat, lat);
        } catch (const std::bad_alloc&) {
            ++state_.io_log_lost;
        }
    }
    if ((features_ & log_entries) != 0) {
        const std::uint64_t used = state_.io_log_used.load(std::memory_order_relaxed);
        if (used < io_log_.size()) {
            io_log_[used] = {.issue_ns = clock_.ns(io.issue_ticks - std::min(began_ticks_, io.issue_ticks)),
                             .latency_ns = clat,
                             .offset_bytes = io.offset,
                             .length_bytes = static_cast<std::uint32_t>(io.length),
                             .file = io.file->number,
                             .depth = io.depth,
                             .direction = static_cast<std::uint8_t>(io.direction)};
            state_.io_log_used.store(used + 1, std::memory_order_release);
        } else {
            ++state_.io_log_lost;
        }
    }
    if ((features_ & track_writes) != 0 && io.direction == Direction::write) {
        io.file->first_written = std::min(io.file->first_written, io.offset);
        io.file->last_written = std::max(io.file->last_written, io.offset + io.length);
    }
}

bool Worker::wants_quiet() const noexcept {
    return (pacer_ && pacer_->wants_quiet()) ||
           (options_.verify_backlog != 0 && backlog_left_ == 0 && verifier_ &&
            verifier_->pending() >= options_.verify_backlog) ||
           (replay_ && replay_->wants_quiet());
}

std::uint64_t Worker::turn_begins() {
    if (replay_) {
        return replay_->turn_begins(clock_.ticks());
    }
    return pacer_ ? pacer_->turn_begins(clock_.ticks(), generator_->sync_is_due()) : 0;
}

Next Worker::next(Io& io) {
    io.verify_read = false;
    if (replay_) {
        return replay_->next(io, files_, *this);
    }
    if (options_.verify_backlog != 0 && verifier_) {
        if (backlog_left_ == 0 && verifier_->pending() >= options_.verify_backlog) {
            backlog_left_ = options_.verify_backlog_batch != 0 ? options_.verify_backlog_batch : verifier_->pending();
        }
        if (backlog_left_ != 0) {
            --backlog_left_;
            if (verifier_->next(io, files_)) {
                if (!io.file->is_open()) {
                    open(*io.file);
                }
                return Next::io;
            }
            backlog_left_ = 0;
        }
    }
    return generator_->next(io);
}

void Worker::prepare(Io& io) {
    io.due_ticks = pacer_ ? pacer_->begins(io) : replay_ ? replay_->due() : 0;
    if (io.direction != Direction::write || io.sync != SyncKind::none) {
        return;
    }
    const std::span<std::byte> buffer(io.buffer, static_cast<std::size_t>(io.length));
    if (verifier_) {
        verifier_->fill(io);
    } else if (refills_) {
        filler_->fill(buffer, io.offset);
    } else if (options_.scramble_buffers) {
        scramble(buffer, io.offset, clock_.ticks());
    }
}

bool Worker::after(const Io& io, std::uint64_t end) {
    if (pacer_) {
        pacer_->completed(io);
    }
    if ((features_ & watch_latency) != 0) {
        const std::uint64_t lat = clock_.ns(end - io.start_ticks);
        const std::uint64_t most = options_.max_latency_ns[index_of(io.direction)];
        if (most != 0 && lat > most) {
            fail({"max_latency", io.file->target->path, ETIMEDOUT,
                  std::to_string(lat) + " ns at offset " + std::to_string(io.offset)});
            return false;
        }
        if (options_.latency_target_ns != 0 && measuring_ && !pacer_->meets_target(lat)) {
            fail({"latency_target", io.file->target->path, ETIMEDOUT, "not met even one I/O at a time"});
            return false;
        }
    }
    if (checks_reads_ && io.direction == Direction::read && !verifier_->check(io)) {
        done_ = true;
        return false;
    }
    return true;
}

Next Worker::next_to_verify(Io& io) {
    if (!verifier_->next(io, files_)) {
        return Next::end;
    }
    if (!io.file->is_open()) {
        open(*io.file);
    }
    return Next::io;
}

bool Worker::check_read(const Io& io, std::uint64_t end) {
    account(io, end);
    if (!verifier_->check(io)) {
        done_ = true;
        return false;
    }
    return true;
}

void Worker::set_up_files() {
    files_.resize(plan_.files.size());
    for (std::size_t i = 0; i < files_.size(); ++i) {
        files_[i].target = &plan_.files[i];
        files_[i].number = static_cast<std::uint32_t>(i);
        files_[i].begin = plan_.files[i].offset_bytes;
    }
    if (!options_.read_iolog.empty() || !plan_.replay.empty()) {
        replay_ = std::make_unique<ReplaySource>(plan_, clock_);
    }
    generator_ = std::make_unique<Generator>(plan_, files_, *this);
    filler_ = std::make_unique<BufferFiller>(options_, plan_.seed);
    std::uint64_t longest = replay_ ? replay_->longest() : 0;
    for (std::size_t i = 0; i < data_directions; ++i) {
        longest = std::max(longest, options_.max_bs[i]);
    }
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    buffer_stride_ = (static_cast<std::size_t>(longest) + page - 1) / page * page;
    buffers_ = BufferMemory(options_, buffer_stride_ * options_.iodepth);
    if (options_.writes) {
        for (std::uint32_t i = 0; i < options_.iodepth; ++i) {
            filler_->fill({buffer_of(i), static_cast<std::size_t>(longest)}, 0);
        }
    }
}

void Worker::set_up_features() {
    total_limit_bytes_ =
        options_.time_based || replay_ ? UINT64_MAX : saturating_product(plan_.io_bytes, options_.loops);
    total_limit_ios_ = options_.number_ios == 0 ? UINT64_MAX : saturating_product(options_.number_ios, options_.loops);
    record_clat_ = !options_.disable_clat && options_.stats;
    if (options_.verify != Verify::none) {
        verifier_ = std::make_unique<Verifier>(plan_, state_);
        checks_reads_ = options_.reads && !options_.writes;
    }
    const bool watches = options_.max_latency_ns != PerDirection<std::uint64_t>{} || options_.latency_target_ns != 0;
    if (options_.thinktime_ns != 0 || options_.rate_bps != PerDirection<std::uint64_t>{} ||
        options_.latency_target_ns != 0) {
        pacer_ = std::make_unique<Pacer>(plan_, clock_, *generator_);
    }
    const bool log_files = !options_.write_bw_log.empty() || !options_.write_lat_log.empty() ||
                           !options_.write_iops_log.empty() || !options_.write_hist_log.empty();
    if (log_files) {
        logs_ = std::make_unique<Logs>(plan_, state_);
    }
    refills_ =
        options_.refill_buffers || options_.dedupe_percentage != 0 || !options_.buffer_pattern.offset_fields.empty();
    extras_ = verifier_ || pacer_ || replay_ || refills_ || watches;
    const auto when = [](bool wanted, Feature feature) { return wanted ? std::uint32_t{feature} : 0U; };
    features_ = when(!is_synchronous(options_.engine) || extras_, separate_lat) |
                when(replay_ || (pacer_ && pacer_->limits_rate()), response_time) | when(log_files, log_lines) |
                when(!io_log_.empty(), log_entries) | when(watches, watch_latency) |
                when(options_.sync_file_range_every != 0, track_writes);
}

void Worker::set_up() {
    state_.pid = static_cast<std::int32_t>(::getpid());
    state_.thread_id = static_cast<std::int32_t>(::syscall(SYS_gettid));
    apply_process_settings(options_);
    set_up_files();
    set_up_features();
    engine_ = make_engine(*this);
}

bool Worker::wait_for_start() {
    set_phase(Phase::ready);
    while (state_.go.load(std::memory_order_acquire) == 0) {
        if (stopping()) {
            return false;
        }
        futex_wait(state_.go, 0, UINT64_MAX);
    }
    return !stopping();
}

bool Worker::another_pass(std::uint64_t& loops_left) const noexcept {
    if (failed_ || done_ || stopping() || state_.runtime_reached != 0) {
        return false;
    }
    if (options_.time_based) {
        return true;
    }
    if (loops_left != 0) {
        --loops_left;
        return true;
    }
    if (total_issued_ios_ >= total_limit_ios_ || replay_) {
        return false;
    }
    // io_size above size: more passes over the same files.
    const std::uint64_t largest = *std::ranges::max_element(options_.max_bs);
    return plan_.io_bytes > plan_.size_bytes && total_issued_bytes_ < total_limit_bytes_ &&
           total_limit_bytes_ - total_issued_bytes_ >= largest;
}

// What a write pass would do, noted for verify without doing it.
void Worker::dry_run() {
    Io io;
    while (wants_more() && generator_->next(io) == Next::io) {
        if (io.sync != SyncKind::none) {
            generator_->count_sync();
            continue;
        }
        count_issue(io);
        if (io.direction == Direction::write) {
            verifier_->note(io);
        }
    }
}

void Worker::run_pass() {
    pass_issued_bytes_ = 0;
    // As in fio, a pass of a synchronous engine ends when its files have no more to give, not at a
    // count of bytes: only so are the files closed where fio closes them.
    const bool counts = !is_synchronous(options_.engine) && !options_.time_based && !replay_;
    pass_limit_bytes_ = counts ? plan_.size_bytes : UINT64_MAX;
    if (options_.writes && options_.random && options_.norandommap) {
        pass_limit_bytes_ = std::max(pass_limit_bytes_, plan_.io_bytes);
    }
    if (options_.trim_then_write) {
        pass_limit_bytes_ = saturating_product(pass_limit_bytes_, 2);  // every byte is trimmed and written
    }
    generator_->begin_pass();
    if (replay_) {
        replay_->begin(clock_.ticks());
    }
    if (options_.verify_only && options_.writes) {
        dry_run();
    } else {
        engine_->pass(*this);
        if (!failed_ && !done_ && !stopping() && wants_quiet()) {
            (void)sleep_until(turn_begins());  // as in fio, the last block is thought about too
        }
    }
    if (!failed_ && !stopping()) {
        final_syncs();
    }
}

void Worker::run_verify() {
    if (!verifier_ || !options_.do_verify || failed_ || stopping() || verifier_->pending() == 0) {
        return;
    }
    close_all();
    set_phase(Phase::verifying);
    verifier_->begin_checking();
    // Reading back takes as long as it takes: a runtime limits the writing.
    const std::uint64_t deadline = std::exchange(deadline_, UINT64_MAX);
    plan_events();
    const std::uint64_t begin = clock_.ticks();
    engine_->verify_pass(*this);
    verify_spent_ns_ += clock_.ns(clock_.ticks() - begin);
    deadline_ = deadline;
    plan_events();
    verifier_->forget();
    set_phase(Phase::running);
}

void Worker::run_passes() {
    std::uint64_t loops_left = options_.loops;
    bool first = true;
    PerDirection<std::uint64_t> spent{};
    while (another_pass(loops_left)) {
        if (!first) {
            close_all();
            if (options_.unlink_each_loop) {
                unlink_all();
            }
        }
        first = false;
        const std::uint64_t issued_before = total_issued_ios_;
        const std::uint64_t begin = std::max(clock_.ticks(), began_ticks_);
        run_pass();
        const std::uint64_t end = clock_.ticks();
        for (std::size_t d = 0; d < data_directions; ++d) {
            spent[d] += clock_.ns(end - std::max(begin, began_ticks_));
            if (state_.data[d].bytes != 0) {
                state_.data[d].runtime_ns = spent[d];
            }
        }
        run_verify();
        // A job that only writes spends its read time verifying.
        if (verify_spent_ns_ != 0) {
            state_.data[0].runtime_ns = (options_.reads ? spent[0] : 0) + verify_spent_ns_;
        }
        bump(state_.loop, 1);
        if (total_issued_ios_ == issued_before) {
            break;  // a pass that finds nothing to do would go on for ever
        }
    }
    if (options_.unlink) {
        unlink_all();
    }
    close_all();
    if (state_.verify_errors != 0 && (options_.continue_on_error & continue_on_verify) == 0) {
        const VerifyMismatch& one = state_.mismatches[0];
        fail({"verify", std::string(one.path.view()), EILSEQ,
              std::to_string(state_.verify_errors) + " blocks differ, the first at offset " +
                  std::to_string(one.offset_bytes) + " (" + std::string(one.what.view()) + ")"});
    }
}

void Worker::work() {
    const CgroupMembership cgroup(options_);
    if (options_.pre_read) {
        pre_read();
    }
    if (!options_.exec_prerun.empty()) {
        run_command(options_, options_.exec_prerun, "prerun");
    }
    const std::uint64_t now = clock_.ticks();
    state_.started_ns.store(Clock::monotonic_ns(), std::memory_order_relaxed);
    set_phase(options_.ramp_time_ns != 0 ? Phase::ramp : Phase::running);
    start_measuring(now);
    if (pacer_) {
        pacer_->begin(now);
        plan_events();
    }
    if (options_.ramp_time_ns != 0) {
        measuring_ = false;
        deadline_ = next_bw_sample_ = next_iops_sample_ = next_series_ = next_heat_ = next_log_ = UINT64_MAX;
        next_rate_check_ = next_steady_ = UINT64_MAX;
        ramp_end_ = now + clock_.ticks_for(options_.ramp_time_ns);
        plan_events();
    }
    run_passes();
    finish();
    if (logs_) {
        logs_->write(clock_.ns(clock_.ticks() - began_ticks_));
    }
    if (!options_.exec_postrun.empty()) {
        run_command(options_, options_.exec_postrun, "postrun");
    }
}

void Worker::run() noexcept {
    try {
        set_up();
        if (wait_for_start()) {
            work();
        }
    } catch (const SystemError& error) {
        fail({error.operation(), error.path(), error.code(), {}});
        finish();
    } catch (const std::exception& error) {
        fail({"job", options_.name, EINVAL, error.what()});
        finish();
    }
    set_phase(Phase::finished);
}

}  // namespace sampleblk::workload
