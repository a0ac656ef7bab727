// SPDX-License-Identifier: MIT
#include "run/worker.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <span>
#include <string>
#include <utility>

#include "run/process_settings.hpp"
#include "sampleblk/error.hpp"

namespace sampleblk::workload {

Worker::Worker(const JobPlan& plan, JobShared& shared, std::span<IoLogEntry> io_log, const JobControl& control,
               const Clock& clock, EngineFactory engines)
    : plan_(plan),
      options_(plan.options),
      shared_(shared),
      io_log_(io_log),
      clock_(clock),
      engines_(std::move(engines)),
      control_(control) {}

void Worker::run() noexcept {
    try {
        shared_.state.pid = static_cast<std::int32_t>(::getpid());
        shared_.state.thread_id = static_cast<std::int32_t>(::syscall(SYS_gettid));
        apply_process_settings(options_);
        job_ = std::make_unique<Job>(plan_, shared_, io_log_, control_, clock_);
        engine_ = engines_(*job_);
        job_->files.attach(engine_.get(), &job_->generator);
        if (control_.wait_for_start()) {
            work();
        }
    } catch (const SystemError& error) {
        control_.fail({error.operation(), error.path(), error.code(), error.detail()});
    } catch (const std::exception& error) {
        control_.fail({"job", options_.name, EINVAL, error.what()});
    }
    if (job_) {
        job_->accounting.finish();
    }
    shared_.state.measured.stopped_early = control_.stopping() ? 1 : 0;
    control_.set_phase(Phase::finished);
}

void Worker::work() {
    const CgroupMembership cgroup(options_);
    if (options_.pre_read) {
        job_->files.pre_read();
    }
    if (!options_.exec_prerun.empty()) {
        run_command(options_, options_.exec_prerun, "prerun");
    }
    shared_.state.started_ns.store(Clock::monotonic_ns(), std::memory_order_relaxed);
    job_->timetable.begin(clock_.ticks());
    run_passes();
    job_->accounting.finish();
    job_->accounting.write_logs();
    if (!options_.exec_postrun.empty()) {
        run_command(options_, options_.exec_postrun, "postrun");
    }
}

void Worker::run_passes() {
    Measured& measured = job_->measured;
    std::uint64_t loops_left = options_.loops;
    const bool dry = options_.only_pretends();
    const auto verify = [&] {
        run_verify();
        // A job that only writes spends its read time verifying.
        if (verify_spent_ns_ != 0) {
            measured.data[0].runtime_ns = (options_.reads ? spent_ns_[0] : 0) + verify_spent_ns_;
        }
        shared_.state.verify_since_ns.store(0, std::memory_order_relaxed);
    };
    for (bool first = true;; first = false) {
        if (control_.ending() || job_->timetable.deadline_passed() || job_->budget.exhausted()) {
            break;
        }
        const std::uint64_t done = dry ? dry_bytes_ : shared_.state.done_bytes.load(std::memory_order_relaxed);
        if (loops_left != 0) {
            --loops_left;
        } else if (!options_.time_based && !job_->budget.wants_another_pass(done)) {
            break;
        }
        if (!first) {
            job_->files.close_all();
            if (options_.unlink_each_loop) {
                job_->files.unlink_made();
            }
        }
        const std::uint64_t issued_before = job_->budget.issued_ios();
        // Rates and runtime count from one moment.
        const std::uint64_t begin = first ? job_->accounting.began() : clock_.ticks();
        shared_.state.pass_since_ns.store(Clock::monotonic_ns(), std::memory_order_relaxed);
        run_pass();
        const std::uint64_t spent = measured_since(begin);
        for (std::size_t d = 0; d < data_directions; ++d) {
            spent_ns_[d] += spent;
            if (measured.data[d].bytes != 0 && (d != index_of(Direction::read) || options_.reads_in_passes())) {
                measured.data[d].runtime_ns = spent_ns_[d];
            }
        }
        shared_.state.pass_since_ns.store(0, std::memory_order_relaxed);
        if (!dry) {
            verify();
        }
        if (job_->budget.issued_ios() == issued_before) {
            break;  // a pass that finds nothing to do would go on for ever
        }
    }
    if (dry && job_->verifier) {
        // What one pass wrote the next one may have written over: only what all of them left can be checked.
        job_->verifier->recall();
        verify();
    }
    if (options_.unlink) {
        job_->files.unlink_made();
    }
    job_->files.close_all();
    report_mismatches();
}

std::uint64_t Worker::measured_since(std::uint64_t begin) {
    const Accounting& accounting = job_->accounting;
    if (std::exchange(measured_from_, accounting.began()) != accounting.began()) {
        spent_ns_ = {};
        verify_spent_ns_ = 0;
    }
    const std::uint64_t now = clock_.ticks();
    return accounting.measuring() ? clock_.ns(now - std::max(begin, measured_from_)) : 0;
}

void Worker::run_pass() {
    job_->budget.begin_pass();
    job_->generator.begin_pass();
    if (job_->replay) {
        job_->replay->begin(clock_.ticks());
    }
    if (options_.only_pretends()) {
        dry_run();
    } else {
        engine_->pass();
    }
    if (!control_.failed() && !control_.stopping()) {
        final_syncs();
    }
}

// What a write pass would do, noted for verify without doing it.
void Worker::dry_run() {
    Io io;
    std::vector<FileState>& files = job_->files.all();
    if (job_->replay) {
        for (const ReplayRecord& record : plan_.replay) {
            io.file = &files[record.file];
            io.offset = record.offset_bytes;
            io.length = record.length_bytes;
            if (record.operation == ReplayOperation::write && job_->verifier) {
                job_->verifier->note(io);
            } else if (record.operation == ReplayOperation::trim && job_->verifier) {
                job_->verifier->forget(io);
            }
        }
        return;
    }
    // What was read back, between the writes or behind them, counted too: by it the passes ended where they did.
    const auto count = [&] {
        job_->budget.count(io);
        dry_bytes_ += io.length;
    };
    while (job_->budget.wants_more() && !control_.stopping()) {
        if (job_->verifier && job_->verifier->next_of_backlog(io, files)) {
            count();
            io.verify_read = false;
            continue;
        }
        const Next next = job_->generator.next(io);
        if (next == Next::end) {
            break;
        }
        if (next == Next::busy) {
            continue;  // as many files as openfiles allows are open; the next one drawn may be among them
        }
        if (io.is_sync()) {
            job_->generator.count_sync();
            continue;
        }
        count();
        job_->generator.count_issue(io);
        if (io.direction == Direction::write && job_->verifier) {
            job_->verifier->note(io);
        } else if (io.direction == Direction::trim && job_->verifier) {
            job_->verifier->forget(io);
        }
    }
    while (job_->verifier && options_.do_verify && job_->verifier->next(io, files)) {
        count();
    }
}

void Worker::run_verify() {
    Verifier* verifier = job_->verifier.get();
    if (verifier == nullptr || !options_.do_verify || control_.failed() || control_.stopping() ||
        verifier->pending() == 0) {
        return;
    }
    job_->files.close_all();
    control_.set_phase(Phase::verifying);
    job_->timetable.suspend_limits(true);
    const std::uint64_t begin = clock_.ticks();
    shared_.state.verify_since_ns.store(Clock::monotonic_ns(), std::memory_order_relaxed);
    engine_->verify_pass();
    const std::uint64_t spent = measured_since(begin);
    verify_spent_ns_ += spent;
    job_->timetable.suspend_limits(false);
    verifier->forget_all();
    control_.set_phase(Phase::running);
}

void Worker::final_syncs() {
    if (!(options_.end_fsync || options_.fsync_on_close) || !job_->generator.needs_sync()) {
        return;
    }
    for (FileState& file : job_->files.all()) {
        const bool opened_here = !file.is_open();
        if (opened_here) {
            job_->files.open(file);
        }
        if (job_->files.sync(file, SyncKind::fsync) != 0) {
            control_.fail({"fsync", file.target->path, errno, {}});
        }
        job_->generator.count_sync();
        if (opened_here) {
            job_->files.close(file);
        }
    }
}

void Worker::report_mismatches() {
    const std::uint64_t errors = job_->measured.verify_errors;
    if (errors == 0 || (options_.continue_on_error & continue_on_verify) != 0) {
        return;
    }
    const MismatchList& kept = shared_.state.mismatches;
    // With several I/Os in flight what was found first may lie behind what was found later.
    const VerifyMismatch& one = *std::ranges::min_element(
        std::span(kept.entries).first(kept.count), {},
        [](const VerifyMismatch& mismatch) { return std::pair(mismatch.file, mismatch.offset_bytes); });
    control_.fail({"verify", plan_.files[one.file].path, EILSEQ,
                   std::to_string(errors) + " blocks differ, the first at offset " + std::to_string(one.offset_bytes) +
                       " (" + one.what() + ")"});
}

}  // namespace sampleblk::workload
