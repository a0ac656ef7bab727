// SPDX-License-Identifier: MIT
// A job as it runs, in its own process or thread: files, time, accounts. The loops that move the
// data (loop_sync.hpp, loop_async.hpp) are built on it, one instance an engine.
#pragma once

#include <sys/resource.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "generator.hpp"
#include "sampleblk/workload/buffers.hpp"
#include "sampleblk/workload/clock.hpp"
#include "sampleblk/workload/files.hpp"
#include "sampleblk/workload/job_state.hpp"

namespace sampleblk::workload {

// A pass ended by more than having done its work: the job is over.
struct JobError {
    std::string operation;
    std::string path;
    int code = 0;
    std::string detail;
};

class Worker final : public FileOpener {
  public:
    // `state` is the job's part of the shared memory; `event` is woken when its phase changes.
    Worker(const JobPlan& plan, JobState& state, std::atomic<std::uint32_t>& event, const Clock& clock);
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker() override;

    // Sets up, waits for the word to start, runs, and leaves the results in the state. What fails is
    // recorded there; nothing is thrown.
    void run() noexcept;

    // --- for the loops
    void open(FileState& file) override;
    void close(FileState& file) override;
    void invalidate(FileState& file) override;

    [[nodiscard]] bool stopping() const noexcept { return state_.stop.load(std::memory_order_relaxed) != 0; }
    [[nodiscard]] const JobOptions& options() const noexcept { return options_; }
    [[nodiscard]] const JobPlan& plan() const noexcept { return plan_; }
    [[nodiscard]] JobState& state() noexcept { return state_; }
    [[nodiscard]] const Clock& clock() const noexcept { return clock_; }
    [[nodiscard]] Generator& generator() noexcept { return *generator_; }
    [[nodiscard]] std::vector<FileState>& files() noexcept { return files_; }
    [[nodiscard]] BufferFiller& filler() noexcept { return *filler_; }
    [[nodiscard]] std::byte* buffer_of(std::uint32_t index) const noexcept {
        return buffers_.data() + std::size_t{index} * buffer_stride_;
    }
    [[nodiscard]] std::size_t buffer_stride() const noexcept { return buffer_stride_; }
    [[nodiscard]] const BufferMemory& buffers() const noexcept { return buffers_; }

    // Whether this pass has I/O left to start.
    [[nodiscard]] bool wants_more() const noexcept {
        return (pass_issued_bytes_ < pass_limit_bytes_ && total_issued_bytes_ < total_limit_bytes_ &&
                total_issued_ios_ < total_limit_ios_);
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
        const std::size_t d = index_of(io.direction);
        bump(state_.done_bytes, io.length);
        bump(state_.done_ios, 1);
        if (!measuring_) [[unlikely]] {
            return;
        }
        DirectionStats& stats = state_.data[d];
        ++stats.ios;
        stats.bytes += io.length;
        if (record_clat_) {
            stats.clat.add(clock_.ns(end - io.issue_ticks));
        }
        if (features_ != 0) [[unlikely]] {
            account_more(io, end);
        }
    }
    void account_sync(std::uint64_t issue, std::uint64_t end) noexcept;

    // What an I/O needs before it starts, beyond a scramble: pacing, contents, verify headers.
    [[nodiscard]] bool has_extras() const noexcept { return extras_; }

    // An I/O failed with `code`. True: continue_on_error lets the job go on.
    [[nodiscard]] bool survives(const Io& io, int code, const char* operation);
    void fail(JobError error) noexcept;
    [[nodiscard]] bool failed() const noexcept { return failed_; }

    // fsync, fdatasync or sync_file_range on a file, without bookkeeping; returns -1 with errno.
    [[nodiscard]] int sync_file(FileState& file, SyncKind kind) const noexcept;

  private:
    enum Feature : std::uint32_t { separate_lat = 1, other_features = 2 };

    static void bump(std::atomic<std::uint64_t>& counter, std::uint64_t by) noexcept {
        counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
    }
    void set_phase(Phase phase) noexcept;
    void set_up();
    [[nodiscard]] bool wait_for_start();
    void run_passes();
    [[nodiscard]] bool another_pass(std::uint64_t& loops_left) const noexcept;
    void run_pass();
    void final_syncs();
    void close_all();
    void account_more(const Io& io, std::uint64_t end) noexcept;
    void take_rate_samples(std::uint64_t now) noexcept;
    void plan_events() noexcept;
    void start_measuring(std::uint64_t now) noexcept;
    void finish() noexcept;

    const JobPlan& plan_;
    const JobOptions& options_;
    JobState& state_;
    std::atomic<std::uint32_t>& event_;
    const Clock& clock_;

    std::vector<FileState> files_;
    std::unique_ptr<Generator> generator_;
    std::unique_ptr<BufferFiller> filler_;
    BufferMemory buffers_;
    std::size_t buffer_stride_ = 0;

    bool measuring_ = true;
    bool record_clat_ = true;
    bool extras_ = false;
    bool failed_ = false;
    std::uint32_t features_ = 0;

    std::uint64_t pass_issued_bytes_ = 0;
    std::uint64_t pass_limit_bytes_ = 0;
    std::uint64_t total_issued_bytes_ = 0;
    std::uint64_t total_limit_bytes_ = 0;
    std::uint64_t total_issued_ios_ = 0;
    std::uint64_t total_limit_ios_ = 0;

    std::uint64_t next_event_ = UINT64_MAX;
    std::uint64_t deadline_ = UINT64_MAX;
    std::uint64_t ramp_end_ = UINT64_MAX;
    std::uint64_t next_bw_sample_ = UINT64_MAX;
    std::uint64_t next_iops_sample_ = UINT64_MAX;
    std::uint64_t last_bw_sample_ = 0;
    std::uint64_t last_iops_sample_ = 0;
    PerDirection<std::uint64_t> sampled_bytes_{};
    PerDirection<std::uint64_t> sampled_ios_{};

    std::uint64_t began_ticks_ = 0;
    ClockMark began_;
    struct rusage usage_at_start_{};
};

}  // namespace sampleblk::workload
