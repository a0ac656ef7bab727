// SPDX-License-Identifier: MIT
// A job as it runs, in its own process or thread: files, time, accounts. The loops that move the
// data (loop_sync.hpp, loop_async.hpp) are built on it, one instance an engine.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engines.hpp"
#include "generator.hpp"
#include "logs.hpp"
#include "pacing.hpp"
#include "sampleblk/workload/buffers.hpp"
#include "sampleblk/workload/clock.hpp"
#include "sampleblk/workload/files.hpp"
#include "sampleblk/workload/job_state.hpp"
#include "steady_state.hpp"
#include "verify.hpp"

namespace sampleblk::workload {

class ReplaySource;

struct JobError {
    std::string operation;
    std::string path;
    int code = 0;
    std::string detail;
};

class Worker final : public FileOpener {
  public:
    // `shared` is the job's part of the shared memory, `io_log` the room for its per-I/O log; `event`
    // is woken when its phase changes.
    Worker(const JobPlan& plan, JobShared& shared, std::span<IoLogEntry> io_log, std::atomic<std::uint32_t>& event,
           const Clock& clock);
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker() override;

    // Sets up, waits for the word to start, runs, and leaves the results in the state. What fails is
    // recorded there; nothing is thrown.
    void run() noexcept;

    void open(FileState& file) override;
    void close(FileState& file) override;
    void invalidate(FileState& file) override;

    // --- for the loops
    [[nodiscard]] bool stopping() const noexcept { return state_.stop.load(std::memory_order_relaxed) != 0; }
    [[nodiscard]] const JobOptions& options() const noexcept { return options_; }
    [[nodiscard]] const JobPlan& plan() const noexcept { return plan_; }
    [[nodiscard]] JobState& state() noexcept { return state_; }
    [[nodiscard]] const Clock& clock() const noexcept { return clock_; }
    [[nodiscard]] Generator& generator() noexcept { return *generator_; }
    [[nodiscard]] std::vector<FileState>& files() noexcept { return files_; }
    [[nodiscard]] std::byte* buffer_of(std::uint32_t index) const noexcept {
        return buffers_.data() + std::size_t{index} * buffer_stride_;
    }
    [[nodiscard]] std::size_t buffer_stride() const noexcept { return buffer_stride_; }

    // Whether this pass has I/O left to start.
    [[nodiscard]] bool wants_more() const noexcept {
        return pass_issued_bytes_ < pass_limit_bytes_ && total_issued_bytes_ < total_limit_bytes_ &&
               total_issued_ios_ < total_limit_ios_;
    }
    void count_issue(const Io& io) noexcept {
        pass_issued_bytes_ += io.length;
        total_issued_bytes_ += io.length;
        ++total_issued_ios_;
        generator_->count_issue(io);
    }

    // When the loop must call on_time() next, in ticks.
    [[nodiscard]] std::uint64_t next_event() const noexcept { return next_event_; }
    // Deadlines, the end of the ramp, samples. False ends the job.
    [[nodiscard]] bool on_time(std::uint64_t now);

    // Books a data I/O that completed at `end`.
    void account(const Io& io, std::uint64_t end) noexcept {
        bump(state_.done_bytes, io.length);
        bump(state_.done_ios, 1);
        if (!measuring_) [[unlikely]] {
            return;
        }
        DirectionStats& stats = state_.data[index_of(io.direction)];
        ++stats.ios;
        stats.bytes += io.length;
        if (record_clat_) {
            stats.clat.add(clock_.ns(end - io.issue_ticks));
        }
        if (features_ != 0) [[unlikely]] {
            account_more(io, end);
        }
    }
    void account_sync(FileState& file, std::uint64_t issue, std::uint64_t end) noexcept;

    // --- what only some jobs want: pacing, verify, contents, replay. `has_extras` is one test a loop.
    [[nodiscard]] bool has_extras() const noexcept { return extras_; }
    // Whether turn_begins() wants nothing in flight first.
    [[nodiscard]] bool wants_quiet() const noexcept;
    // When the next I/O may begin: 0 for now, else a tick to wait for and then ask again.
    [[nodiscard]] std::uint64_t turn_begins();
    // False when the job was told to stop, or its time was up, in the meantime.
    [[nodiscard]] bool sleep_until(std::uint64_t tick);
    [[nodiscard]] Next next(Io& io);
    void prepare(Io& io);
    // After an I/O was booked. False ends the pass.
    [[nodiscard]] bool after(const Io& io, std::uint64_t end);
    [[nodiscard]] std::uint32_t depth_limit() const noexcept { return pacer_ ? pacer_->depth() : options_.iodepth; }

    // Verify's reads.
    [[nodiscard]] Next next_to_verify(Io& io);
    [[nodiscard]] bool check_read(const Io& io, std::uint64_t end);

    void count_submit(std::uint32_t count, std::uint32_t depth) noexcept {
        ++state_.submit_map[batch_level(count)];
        ++state_.submits;
        state_.depth_map[depth_level(depth)] += count;
    }
    void count_complete(std::uint32_t count) noexcept {
        ++state_.complete_map[batch_level(count)];
        ++state_.completes;
    }

    // An I/O failed with `code`. True: continue_on_error lets the job go on.
    [[nodiscard]] bool survives(const Io& io, int code, const char* operation);
    void fail(const JobError& error) noexcept;
    [[nodiscard]] bool failed() const noexcept { return failed_; }

    // fsync, fdatasync or sync_file_range on a file, without bookkeeping; -1 with errno.
    [[nodiscard]] int sync_file(FileState& file, SyncKind kind) const noexcept;

  private:
    enum Feature : std::uint8_t {
        separate_lat = 1,    // an I/O begins before it is issued
        response_time = 2,   // its rate is limited
        log_lines = 4,       // write_*_log
        log_entries = 8,     // io_log_entries
        watch_latency = 16,  // max_latency, latency_target
        track_writes = 32,   // sync_file_range
    };

    static void bump(std::atomic<std::uint64_t>& counter, std::uint64_t by) noexcept {
        counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
    }
    void set_phase(Phase phase) noexcept;
    void set_up();
    void set_up_files();
    void set_up_features();
    [[nodiscard]] bool wait_for_start();
    void work();
    void pre_read();
    void run_passes();
    [[nodiscard]] bool another_pass(std::uint64_t& loops_left) const noexcept;
    void run_pass();
    void run_verify();
    void dry_run();
    void final_syncs();
    void close_all();
    void unlink_all();
    void account_more(const Io& io, std::uint64_t end) noexcept;
    void start_measuring(std::uint64_t now);
    // What was measured while latency_target looked for a depth is not the job's result.
    void forget_measurements() noexcept;
    void plan_events() noexcept;
    void take_rate_samples(std::uint64_t now) noexcept;
    void take_series(std::uint64_t now) noexcept;
    void take_heat(std::uint64_t now) noexcept;
    [[nodiscard]] bool keeps_rates(std::uint64_t now);
    [[nodiscard]] bool is_steady(std::uint64_t now);
    void finish() noexcept;

    const JobPlan& plan_;
    const JobOptions& options_;
    JobShared& shared_;
    JobState& state_;
    std::span<IoLogEntry> io_log_;
    std::atomic<std::uint32_t>& event_;
    const Clock& clock_;

    std::vector<FileState> files_;
    std::unique_ptr<Generator> generator_;
    std::unique_ptr<BufferFiller> filler_;
    std::unique_ptr<Verifier> verifier_;
    std::unique_ptr<Pacer> pacer_;
    std::unique_ptr<Logs> logs_;
    std::unique_ptr<SteadyState> steady_;
    std::unique_ptr<ReplaySource> replay_;
    BufferMemory buffers_;
    std::size_t buffer_stride_ = 0;
    std::unique_ptr<EngineInstance> engine_;  // last: it may hold on to all the others

    bool measuring_ = true;
    bool record_clat_ = true;
    bool extras_ = false;
    bool refills_ = false;
    bool checks_reads_ = false;
    bool failed_ = false;
    bool done_ = false;  // a criterion of its own ended the job
    std::uint32_t features_ = 0;
    std::uint64_t backlog_left_ = 0;

    std::uint64_t pass_issued_bytes_ = 0;
    std::uint64_t pass_limit_bytes_ = 0;
    std::uint64_t total_issued_bytes_ = 0;
    std::uint64_t total_limit_bytes_ = 0;
    std::uint64_t total_issued_ios_ = 0;
    std::uint64_t total_limit_ios_ = 0;

    // Ticks; UINT64_MAX: never.
    std::uint64_t next_event_ = UINT64_MAX;
    std::uint64_t deadline_ = UINT64_MAX;
    std::uint64_t ramp_end_ = UINT64_MAX;
    std::uint64_t next_bw_sample_ = UINT64_MAX;
    std::uint64_t next_iops_sample_ = UINT64_MAX;
    std::uint64_t next_series_ = UINT64_MAX;
    std::uint64_t next_heat_ = UINT64_MAX;
    std::uint64_t next_log_ = UINT64_MAX;
    std::uint64_t next_rate_check_ = UINT64_MAX;
    std::uint64_t next_steady_ = UINT64_MAX;
    std::uint64_t last_bw_sample_ = 0;
    std::uint64_t last_iops_sample_ = 0;
    std::uint64_t last_rate_check_ = 0;
    std::uint64_t last_steady_ = 0;
    PerDirection<std::uint64_t> sampled_bytes_{};
    PerDirection<std::uint64_t> sampled_ios_{};
    PerDirection<std::uint64_t> checked_bytes_{};
    PerDirection<std::uint64_t> checked_ios_{};
    std::uint64_t steady_bytes_ = 0;
    std::uint64_t steady_ios_ = 0;
    SeriesPoint series_before_;
    PerDirection<std::vector<std::uint64_t>> heat_before_;

    std::uint64_t verify_spent_ns_ = 0;
    std::uint64_t began_ticks_ = 0;
    ClockMark began_;
    struct rusage usage_at_start_{};
};

}  // namespace sampleblk::workload
