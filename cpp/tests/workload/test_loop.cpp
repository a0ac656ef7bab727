// SPDX-License-Identifier: MIT
// The loop and the life of an I/O, on engines that answer by a script: what a kernel does seldom happens here each
// time.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "data/digest.hpp"
#include "engine/loop.hpp"
#include "run/layout.hpp"
#include "run/shared_memory.hpp"
#include "run/worker.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/workload/job_file.hpp"

namespace sampleblk::workload {
namespace {

// What the engines were asked for, and what they answer.
struct Script {
    // The result of an I/O that asks for `left` bytes at `offset`: bytes moved, or -errno.
    std::function<std::int64_t(const Io& io)> answer = [](const Io& io) {
        return static_cast<std::int64_t>(io.left());
    };
    std::function<int(std::size_t batch)> commit = [](std::size_t batch) { return static_cast<int>(batch); };
    std::function<int()> reap_error = [] { return 0; };
    bool reorders = false;
    std::size_t reap_most = SIZE_MAX;

    struct Asked {
        Direction direction;
        std::uint64_t offset;
        std::uint64_t length;
    };
    std::vector<Asked> asked;  // everything that an engine performed or took
    std::size_t most_in_flight = 0;
    std::size_t commits = 0;
    std::vector<std::byte> disk;                                  // what writes put and reads get, where there is one
    std::vector<std::pair<std::uint64_t, std::uint64_t>> flying;  // offset, end
    bool overlapped = false;                                      // two I/Os in flight ever met

    std::int64_t perform(const Io& io) {
        asked.push_back({io.direction, io.position(), io.left()});
        const std::int64_t result = answer(io);
        if (!disk.empty() && result > 0) {
            std::byte* at = disk.data() + io.position();
            if (io.direction == Direction::read) {
                std::memcpy(io.data(), at, static_cast<std::size_t>(result));
            } else {
                std::memcpy(at, io.data(), static_cast<std::size_t>(result));
            }
        }
        return result;
    }
};
Script* script = nullptr;

struct DirectEngine {
    Job& job;
    static ssize_t perform(const Io& io) {
        const std::int64_t result = script->perform(io);
        if (result < 0) {
            errno = static_cast<int>(-result);
            return -1;
        }
        return static_cast<ssize_t>(result);
    }
    static int sync(FileState& /*file*/, SyncKind /*kind*/) { return 0; }
    static void opened(FileState& /*file*/) {}
    static void closing(FileState& /*file*/) {}
};

class QueueEngine : public DirectEngine {
  public:
    explicit QueueEngine(Job& its_job) : DirectEngine{its_job} {}
    static constexpr bool issues_before_commit = false;
    static const char* name() { return "scripted"; }
    static bool inline_only(const Io& io) { return io.direction == Direction::trim; }

    bool queue(Io& io) {
        batch_.push_back(&io);
        return true;
    }
    int commit() {
        ++script->commits;
        const int taken = script->commit(batch_.size());
        for (int i = 0; i < taken; ++i) {
            const Io& io = *batch_.front();
            batch_.pop_front();
            for (const auto& [begin, end] : script->flying) {
                script->overlapped = script->overlapped || (io.position() < end && begin < io.offset + io.length);
            }
            script->flying.emplace_back(io.position(), io.offset + io.length);
            flight_.push_back(&io);
        }
        script->most_in_flight = std::max(script->most_in_flight, flight_.size());
        return taken;
    }
    template <typename F>
    int reap(std::uint32_t min, std::uint32_t max, F found) {
        if (const int error = script->reap_error(); error != 0) {
            return error;
        }
        if (flight_.size() < min) {
            ADD_FAILURE() << "waits for " << min << " I/Os of " << flight_.size() << " in flight: for ever";
            return -EDEADLK;
        }
        std::size_t count = std::min<std::size_t>({max, flight_.size(), std::max<std::size_t>(script->reap_most, min)});
        for (std::size_t i = 0; i < count; ++i) {
            const Io* io = script->reorders ? flight_.back() : flight_.front();
            script->reorders ? flight_.pop_back() : flight_.pop_front();
            std::erase(script->flying, std::pair{io->position(), io->offset + io->length});
            found(io->index, static_cast<std::int32_t>(script->perform(*io)));
        }
        return static_cast<int>(count);
    }

  private:
    std::deque<Io*> batch_;
    std::deque<const Io*> flight_;
};

// Runs a job in this thread, on a file that does not exist: no engine here touches it.
class LoopTest : public testing::TestWithParam<bool> {
  protected:
    void SetUp() override { script = &script_; }
    void TearDown() override { script = nullptr; }

    static bool queued() { return GetParam(); }

    const JobState& run(const std::string& keys, std::size_t files = 1) {
        const std::string text = "[j]\nioengine=io_uring\nfilename=/dev/null\ncreate_on_open=1\n" + keys;
        JobSet set = parse_job_text(text, "test");
        JobPlan plan;
        plan.options = set.jobs.at(0);
        plan.seed = 42;
        for (std::size_t i = 0; i < files; ++i) {
            FileTarget& file = plan.files.emplace_back();
            file.path = "/dev/null";
            file.type = FileType::regular;
            file.size_bytes = file.extent_bytes = plan.options.size.bytes / files;
        }
        plan.size_bytes = plan.options.size.bytes;
        plan.io_bytes = plan.options.io_size.bytes != 0 ? plan.options.io_size.bytes : plan.size_bytes;
        load_digest(plan.options.verify);
        return run(plan);
    }

    const JobState& run(JobPlan& plan) {
        plan.options.fadvise_hint = FadviseHint::none;
        plan.options.invalidate = false;
        plan_ = std::make_unique<JobPlan>(plan);
        shared_ = std::make_unique<SharedMemory>(std::vector<std::uint64_t>{0});
        JobState& state = shared_->state(0);
        tell_to_start(state);
        const EngineFactory engines = [](Job& job) -> std::unique_ptr<EngineInstance> {
            if (queued()) {
                return std::make_unique<EngineLoop<QueueEngine>>(job);
            }
            return std::make_unique<EngineLoop<DirectEngine>>(job);
        };
        const Clock clock;
        const JobControl control(shared_->state(0), shared_->event(), false);
        Worker(*plan_, shared_->job(0), shared_->log(0), control, clock, engines).run();
        EXPECT_EQ(phase_of(state), Phase::finished);
        return state;
    }

    JobState& state() { return shared_->state(0); }

    // How often each block of 4k was asked for.
    std::map<std::uint64_t, int> blocks(Direction direction) const {
        std::map<std::uint64_t, int> counts;
        for (const Script::Asked& one : script_.asked) {
            if (one.direction == direction) {
                ++counts[one.offset / 4096];
            }
        }
        return counts;
    }

    Script script_;
    std::unique_ptr<JobPlan> plan_;
    std::unique_ptr<SharedMemory> shared_;
};

// What counts has one depth, however often it was submitted, and what failed has none: shares add up to all.
std::uint64_t of_all_depths(const JobState& state) {
    return std::reduce(state.measured.depth_map.begin(), state.measured.depth_map.end());
}

INSTANTIATE_TEST_SUITE_P(Engines, LoopTest, testing::Bool(),
                         [](const auto& one) { return one.param ? "Queued" : "Direct"; });

TEST_P(LoopTest, EveryBlockIsReadOnce) {
    const JobState& state = run("rw=randread\nsize=256k\niodepth=8\n");
    EXPECT_EQ(state.error, 0);
    EXPECT_EQ(state.measured.data[0].ios, 64U);
    EXPECT_EQ(state.measured.data[0].bytes, 64U * 4096);
    EXPECT_EQ(state.measured.data[0].clat.count, 64U);
    EXPECT_EQ(blocks(Direction::read).size(), 64U);
    if (queued()) {
        EXPECT_EQ(script_.most_in_flight, 8U);
    }
}

// A transfer that moves a part of what it was asked for is continued where it broke off, and is one I/O all the same.
TEST_P(LoopTest, ShortTransfersAreContinued) {
    script_.answer = [](const Io& io) { return static_cast<std::int64_t>(std::min<std::size_t>(io.left(), 1000)); };
    const JobState& state = run("rw=write\nsize=64k\niodepth=4\n");
    EXPECT_EQ(state.error, 0);
    EXPECT_EQ(state.measured.data[1].ios, 16U);
    EXPECT_EQ(state.measured.data[1].bytes, 65536U);
    EXPECT_EQ(state.measured.data[1].short_ios, 16U * 4);
    EXPECT_EQ(of_all_depths(state), 16U);
    EXPECT_EQ(state.measured.data[1].clat.count, 16U);
    std::set<std::uint64_t> offsets;
    for (const Script::Asked& one : script_.asked) {
        EXPECT_TRUE(offsets.insert(one.offset).second) << one.offset << " was asked for twice";
    }
    EXPECT_TRUE(offsets.contains(4000) && offsets.contains(61440 + 3000));
}

TEST_P(LoopTest, InterruptedOnesAreAskedForAgain) {
    std::map<std::uint64_t, int> times;
    script_.answer = [&](const Io& io) -> std::int64_t {
        const int time = ++times[io.offset];
        return time == 1 ? -EINTR : time == 2 ? -EAGAIN : static_cast<std::int64_t>(io.left());
    };
    script_.reorders = true;
    const JobState& state = run("rw=randwrite\nsize=128k\niodepth=8\niodepth_batch=4\niodepth_batch_complete_min=4\n");
    EXPECT_EQ(state.error, 0);
    EXPECT_EQ(state.measured.data[1].ios, 32U);
    EXPECT_EQ(of_all_depths(state), 32U);
    for (const auto& [offset, count] : times) {
        EXPECT_EQ(count, 3) << offset;
    }
}

// With nowait=1 "try again" is the answer, not a reason to try again.
TEST_P(LoopTest, EagainIsAnErrorWhereNowaitAsksForIt) {
    script_.answer = [](const Io& /*io*/) { return -EAGAIN; };
    EXPECT_EQ(run("rw=read\nsize=64k\nnowait=1\n").error, EAGAIN);
}

TEST_P(LoopTest, AnErrorEndsTheJobAndNamesItsPlace) {
    script_.answer = [](const Io& io) { return io.offset == 5 * 4096 ? -EIO : static_cast<std::int64_t>(io.left()); };
    const JobState& state = run("rw=read\nsize=256k\niodepth=4\n");
    EXPECT_EQ(state.error, EIO);
    EXPECT_EQ(state.error_operation.view(), "read");
    EXPECT_EQ(state.error_detail.view(), "at offset 20480, 4096 bytes");
    EXPECT_LT(state.measured.data[0].ios, 16U);
    EXPECT_GE(state.measured.data[0].ios, 5U);
}

TEST_P(LoopTest, ContinueOnErrorCountsWhatFioCounts) {
    script_.answer = [](const Io& io) { return io.offset % 8192 == 0 ? -EIO : static_cast<std::int64_t>(io.left()); };
    const JobState& state = run("rw=randread\nsize=256k\niodepth=4\ncontinue_on_error=read\n");
    EXPECT_EQ(state.error, 0);
    EXPECT_EQ(state.measured.error_count, 32U);
    EXPECT_EQ(state.measured.first_error, std::uint64_t{EIO});
    EXPECT_EQ(state.measured.data[0].ios, 32U);
    EXPECT_EQ(of_all_depths(state), 32U);
    // EINVAL is not let pass (fio: EIO and EILSEQ), but counted.
    script_.answer = [](const Io& /*io*/) { return -EINVAL; };
    const JobState& ended = run("rw=randread\nsize=256k\ncontinue_on_error=read\n");
    EXPECT_EQ(ended.error, EINVAL);
    EXPECT_EQ(ended.measured.error_count, 1U);
    EXPECT_EQ(ended.measured.first_error, std::uint64_t{EINVAL});
}

TEST_P(LoopTest, AReadOfNothingIsAnError) {
    script_.answer = [](const Io& io) { return io.offset == 0 ? 0 : static_cast<std::int64_t>(io.left()); };
    const JobState& state = run("rw=read\nsize=64k\niodepth=4\n");
    EXPECT_EQ(state.error, EIO);
    EXPECT_EQ(state.error_operation.view(), "read nothing");
}

// One that still has I/Os in flight is closed when they end, or with openfiles=1 no other could ever be opened.
TEST_P(LoopTest, FilesThatEndWithIosInFlightMakeRoomForOthers) {
    for (const char* service : {"roundrobin", "sequential", "random"}) {
        for (const char* more : {"", "iodepth_low=4\n"}) {
            const JobState& state = run(
                "rw=randread\nsize=192k\nopenfiles=1\niodepth=4\nnrfiles=3\nfile_service_type=" + std::string(service) +
                    "\n" + more,
                3);
            EXPECT_EQ(state.error, 0) << service;
            EXPECT_EQ(state.measured.data[0].ios, 48U) << service;
        }
    }
}

// fill_device ends where the space does, with all that is in flight, and without an error.
TEST_P(LoopTest, FillDeviceEndsWhereTheSpaceDoes) {
    script_.answer = [](const Io& io) {
        return io.offset + io.length > 100'000 ? -ENOSPC : static_cast<std::int64_t>(io.left());
    };
    const JobState& state = run("rw=write\nsize=1m\niodepth=8\nfill_device=1\nloops=3\n");
    EXPECT_EQ(state.error, 0) << state.error_operation.view();
    EXPECT_EQ(state.measured.data[1].ios, 100'000U / 4096);
}

TEST_P(LoopTest, PartialWritesAtTheEndOfTheSpaceEndFillDeviceToo) {
    script_.answer = [](const Io& io) -> std::int64_t {
        const std::int64_t room = 100'000 - static_cast<std::int64_t>(io.position());
        return room <= 0 ? -ENOSPC : std::min<std::int64_t>(room, static_cast<std::int64_t>(io.left()));
    };
    const JobState& state = run("rw=write\nsize=1m\niodepth=8\nfill_device=1\n");
    EXPECT_EQ(state.error, 0) << state.error_operation.view();
}

// What was written is what is read back, however the engine cuts and orders it.
TEST_P(LoopTest, VerifyChecksWhatShortReadsGave) {
    script_.disk.resize(256 << 10);
    script_.answer = [](const Io& io) { return static_cast<std::int64_t>(std::min<std::size_t>(io.left(), 1500)); };
    script_.reorders = true;
    const JobState& good = run("rw=randwrite\nsize=256k\nverify=crc32c\niodepth=8\n");
    EXPECT_EQ(good.error, 0) << good.error_detail.view();
    EXPECT_EQ(good.measured.verified_blocks, 64U);
    EXPECT_EQ(good.measured.verify_errors, 0U);

    // One wrong byte in the second part of a read is found.
    bool writing = true;
    script_.answer = [&](const Io& io) {
        if (io.direction == Direction::read && writing) {
            writing = false;
            script_.disk[7 * 4096 + 3000] ^= std::byte{1};
        }
        return static_cast<std::int64_t>(std::min<std::size_t>(io.left(), 1500));
    };
    const JobState& bad = run("rw=randwrite\nsize=256k\nverify=crc32c\niodepth=8\n");
    EXPECT_EQ(bad.error, EILSEQ);
    EXPECT_EQ(bad.measured.verify_errors, 1U);
    EXPECT_EQ(bad.mismatches.entries[0].offset_bytes, 7U * 4096 + 3000);
}

TEST_P(LoopTest, ABlockToVerifyThatTheFileEndsInIsWrong) {
    script_.disk.resize(64 << 10);
    script_.answer = [](const Io& io) -> std::int64_t {
        if (io.direction == Direction::read && io.position() + io.left() == 65536) {
            return io.moved == 0 ? 1000 : 0;  // the file was cut off in the meantime
        }
        return static_cast<std::int64_t>(io.left());
    };
    const JobState& state = run("rw=write\nsize=64k\nverify=crc32c\niodepth=4\n");
    EXPECT_EQ(state.error, EILSEQ);
    EXPECT_EQ(state.measured.verified_blocks, 16U);
    ASSERT_EQ(state.mismatches.count, 1U);
    EXPECT_EQ(state.mismatches.entries[0].kind, VerifyMismatch::Kind::missing);
    EXPECT_EQ(state.mismatches.entries[0].offset_bytes, 61440U + 1000);
}

// While a job reads back it writes nothing, however long that takes.
TEST_P(LoopTest, ALeastRateIsNotOneOfTheReadingBack) {
    script_.disk.resize(std::size_t{32} << 10);
    script_.answer = [](const Io& io) {
        if (io.direction == Direction::read) {
            ::usleep(5'000);
        }
        return static_cast<std::int64_t>(io.left());
    };
    for (const char* least : {"rate_min=1k\n", "rate_iops_min=1\n"}) {
        const JobState& state = run(std::string("rw=write\nsize=32k\nverify=crc32c\nrate_cycle=10\nloops=2\n") + least);
        EXPECT_EQ(state.error, 0) << state.error_detail.view();
        EXPECT_EQ(state.measured.verified_blocks, 16U);
    }
}

// A write that failed, and was let pass, is not one to verify.
TEST_P(LoopTest, WhatCouldNotBeWrittenIsNotVerified) {
    script_.disk.resize(64 << 10);
    script_.answer = [](const Io& io) {
        return io.direction == Direction::write && io.offset == 8192 ? -EIO : static_cast<std::int64_t>(io.left());
    };
    const JobState& state = run("rw=write\nsize=64k\nverify=crc32c\ncontinue_on_error=write\niodepth=4\n");
    EXPECT_EQ(state.error, 0) << state.error_detail.view();
    EXPECT_EQ(state.measured.error_count, 1U);
    EXPECT_EQ(state.measured.verified_blocks, 15U);
}

// Of places that are written more than once the last write counts, whatever the order of completion.
TEST_P(LoopTest, VerifyKnowsTheLastOfManyWrites) {
    script_.disk.resize(64 << 10);
    script_.reorders = true;
    for (const char* keys : {"rw=randwrite\nnorandommap=1\nio_size=512k\n", "rw=write\nio_size=512k\n",
                             "rw=randwrite\nrandom_distribution=zipf:1.2\nio_size=512k\n",
                             "rw=randwrite\npercentage_random=50\nio_size=256k\n", "rw=randwrite:4\nio_size=256k\n",
                             "rw=randwrite\nbsrange=4k-16k\nnorandommap=1\nio_size=512k\n",
                             "rw=randrw\nnorandommap=1\nio_size=512k\n", "rw=write\nloops=3\n",
                             // The map starts over with each zone, and here the zones are the same place.
                             "rw=randwrite\nbsrange=4k-8k\nzonemode=strided\nzonesize=32k\nzonerange=16k\n"}) {
        for (const char* more : {"", "verify_backlog=8\n", "verify_backlog=16\nverify_backlog_batch=4\n"}) {
            const JobState& state = run(std::string(keys) + more + "size=64k\nverify=crc32c\niodepth=8\n");
            EXPECT_EQ(state.error, 0) << keys << more << state.error_operation.view() << state.error_detail.view();
            EXPECT_GT(state.measured.verified_blocks, 0U) << keys << more;
        }
    }
}

TEST_P(LoopTest, TrimwriteTrimsAndWritesEveryBlock) {
    for (const char* keys : {"rw=trimwrite\n", "rw=randtrimwrite\n"}) {
        script_.asked.clear();
        const JobState& state = run(std::string(keys) + "size=256k\niodepth=4\n");
        EXPECT_EQ(state.measured.data[1].ios, 64U) << keys;
        EXPECT_EQ(state.measured.data[2].ios, 64U) << keys;
        EXPECT_EQ(blocks(Direction::write).size(), 64U) << keys;
        // Each is trimmed before it is written.
        std::set<std::uint64_t> trimmed;
        for (const Script::Asked& one : script_.asked) {
            if (one.direction == Direction::trim) {
                trimmed.insert(one.offset);
            } else {
                EXPECT_TRUE(trimmed.contains(one.offset)) << keys << one.offset;
            }
        }
    }
}

// fio makes none either: one between a trim and its write would take the turn of another file.
TEST_P(LoopTest, TrimwriteMakesNoSyncs) {
    for (const char* sync : {"fsync=1\n", "fdatasync=2\n", "sync_file_range=write:1\n"}) {
        script_.asked.clear();
        const JobState& state = run(std::string("rw=randtrimwrite\nsize=64k\nnorandommap=1\niodepth=4\n") + sync);
        EXPECT_EQ(state.measured.data[1].ios, 16U) << sync;
        EXPECT_EQ(state.measured.data[2].ios, 16U) << sync;
        EXPECT_EQ(script_.asked.size(), 32U) << sync;
    }
}

TEST_P(LoopTest, TrimsOfMixedSizesAreEachWritten) {
    for (const char* keys : {"rw=trimwrite\n", "rw=randtrimwrite\n"}) {
        script_.asked.clear();
        const JobState& state = run(std::string(keys) + "size=256k\nbsrange=4k-16k\niodepth=4\n");
        EXPECT_EQ(state.measured.data[1].ios, state.measured.data[2].ios) << keys;
        EXPECT_EQ(state.measured.data[1].bytes, 256U << 10) << keys;
        EXPECT_EQ(state.measured.data[2].bytes, 256U << 10) << keys;
    }
}

// Rates and think time hold trims back too, which no engine queues.
TEST_P(LoopTest, TrimsArePaced) {
    const JobState& limited = run("rw=trim\nsize=80k\nrate_iops=200\niodepth=4\n");
    EXPECT_EQ(limited.measured.data[2].ios, 20U);
    EXPECT_GE(limited.measured.runtime_ns, 19U * 5'000'000);
    EXPECT_EQ(limited.measured.data[2].response.count, 20U);
    const JobState& thinking = run("rw=trim\nsize=40k\nthinktime=3000\niodepth=4\n");
    EXPECT_GE(thinking.measured.runtime_ns, 10U * 3'000'000);
}

TEST_P(LoopTest, TrimwriteIsVerified) {
    script_.disk.resize(64 << 10);
    const JobState& state = run("rw=randtrimwrite\nsize=64k\nverify=crc32c\niodepth=4\n");
    EXPECT_EQ(state.error, 0) << state.error_detail.view();
    EXPECT_EQ(state.measured.verified_blocks, 16U);
}

TEST_P(LoopTest, PollingForCompletionsEndsAndKeepsToItsRuntime) {
    const JobState& whole = run("rw=read\nsize=256k\niodepth=4\niodepth_batch_complete_min=0\n");
    EXPECT_EQ(whole.measured.data[0].ios, 64U);
    const JobState& timed =
        run("rw=read\nsize=256k\niodepth=4\niodepth_batch_complete_min=0\ntime_based\nruntime=50ms\n");
    EXPECT_GE(timed.measured.runtime_ns, 50'000'000U);
    EXPECT_LT(timed.measured.runtime_ns, 1'000'000'000U);
}

TEST_P(LoopTest, NumberIosEndsAPassAndLoopsMultiplyIt) {
    EXPECT_EQ(run("rw=read\nsize=256k\nnumber_ios=10\niodepth=4\n").measured.data[0].ios, 10U);
    EXPECT_EQ(run("rw=read\nsize=256k\nnumber_ios=10\nloops=3\niodepth=4\n").measured.data[0].ios, 30U);
    EXPECT_EQ(run("rw=trimwrite\nsize=256k\nnumber_ios=10\niodepth=4\n").measured.data[1].ios, 10U);
}

TEST_P(LoopTest, DurationsBeyondWhatTheClockCountsAreForEver) {
    const JobState& state =
        run("rw=read\nsize=64k\nruntime=9200000000\nlatency_window=9200000000\nbwavgtime=9200000000000\n");
    EXPECT_EQ(state.measured.data[0].ios, 16U);
    EXPECT_EQ(state.measured.data[0].bw_kib.count, 0U);
}

// --- engines with a queue

class QueueTest : public LoopTest {};
INSTANTIATE_TEST_SUITE_P(Engines, QueueTest, testing::Values(true), [](const auto& /*one*/) { return "Queued"; });

TEST_P(QueueTest, AKernelThatTakesLessIsAskedAgain) {
    script_.commit = [](std::size_t batch) { return static_cast<int>(std::min<std::size_t>(batch, 1)); };
    EXPECT_EQ(run("rw=read\nsize=256k\niodepth=8\niodepth_batch=8\n").measured.data[0].ios, 64U);
}

TEST_P(QueueTest, AKernelThatIsOutOfRoomGetsItsCompletionsTakenFirst) {
    for (const int refusal : {-EAGAIN, -EBUSY, -EINTR}) {
        int calls = 0;
        script_.commit = [&](std::size_t batch) { return ++calls % 3 == 0 ? refusal : static_cast<int>(batch); };
        EXPECT_EQ(run("rw=randread\nsize=256k\niodepth=8\niodepth_batch=2\n").measured.data[0].ios, 64U) << refusal;
    }
}

TEST_P(QueueTest, RetriesThatAreRefusedTwiceAreNotLost) {
    std::map<std::uint64_t, int> times;
    script_.answer = [&](const Io& io) -> std::int64_t {
        return ++times[io.offset] <= 2 ? -EAGAIN : static_cast<std::int64_t>(io.left());
    };
    int calls = 0;
    script_.commit = [&](std::size_t batch) { return ++calls % 2 == 0 ? -EAGAIN : static_cast<int>(batch); };
    script_.reap_most = 1;
    const JobState& state = run("rw=randread\nsize=128k\niodepth=16\niodepth_batch_complete_min=8\n");
    EXPECT_EQ(state.error, 0);
    EXPECT_EQ(state.measured.data[0].ios, 32U);
}

TEST_P(QueueTest, AnErrorOfTheEngineEndsTheJob) {
    script_.commit = [](std::size_t /*batch*/) { return -ENXIO; };
    const JobState& submission = run("rw=read\nsize=64k\niodepth=4\n");
    EXPECT_EQ(submission.error, ENXIO);
    EXPECT_EQ(submission.error_operation.view(), "scripted");
    EXPECT_EQ(submission.error_detail.view(), "submission");
    script_.commit = [](std::size_t batch) { return static_cast<int>(batch); };
    script_.reap_error = [] { return -EBADF; };
    const JobState& completion = run("rw=read\nsize=64k\niodepth=4\n");
    EXPECT_EQ(completion.error, EBADF);
    EXPECT_EQ(completion.error_detail.view(), "completion");
}

TEST_P(QueueTest, BatchesAndLowMarksAreKept) {
    const JobState& state =
        run("rw=read\nsize=256k\niodepth=8\niodepth_batch=4\niodepth_batch_complete_min=4\niodepth_low=4\n");
    EXPECT_EQ(state.measured.data[0].ios, 64U);
    EXPECT_EQ(script_.commits, 16U);
    EXPECT_EQ(state.measured.submits, 16U);
    EXPECT_EQ(state.measured.completes, 16U);
}

// serialize_overlap, and verify where it could not tell which of two writes in flight came last.
TEST_P(QueueTest, OverlapsAreSerializedWhereTheyWouldMatter) {
    const std::string keys = "rw=randwrite\nnorandommap=1\nsize=32k\nio_size=1m\niodepth=8\nbs=4k\n";
    (void)run(keys);
    EXPECT_TRUE(script_.overlapped) << "else this test shows nothing";
    script_.overlapped = false;
    (void)run(keys + "serialize_overlap=1\n");
    EXPECT_FALSE(script_.overlapped);
    (void)run(keys + "verify=crc32c\ndo_verify=0\n");
    EXPECT_FALSE(script_.overlapped);
}

TEST_P(QueueTest, AJobThatIsToldToStopDoesNotWaitForAKernelThatTakesNothing) {
    int calls = 0;
    script_.commit = [&](std::size_t batch) {
        if (++calls < 5) {
            return static_cast<int>(batch);
        }
        tell_to_stop(state());
        return -EAGAIN;
    };
    const JobState& state = run("rw=read\nsize=1m\niodepth=4\n");
    EXPECT_EQ(state.error, 0);
    EXPECT_EQ(state.measured.stopped_early, 1U);
    EXPECT_LT(state.measured.data[0].ios, 256U);
}

// A system call between the job's own ones would be counted as the job's by whoever traces it.
TEST(JobControl, TellsTheParentOnlyWhatItCannotSee) {
    const auto told = [](bool shares_process, Phase phase) {
        const SharedMemory shared(std::vector<std::uint64_t>{0});
        JobControl(shared.state(0), shared.event(), shares_process).set_phase(phase);
        EXPECT_EQ(phase_of(shared.state(0)), phase);
        std::uint64_t count = 0;
        return ::read(shared.event(), &count, sizeof(count)) > 0;
    };
    EXPECT_TRUE(told(false, Phase::ready));
    for (const Phase phase : {Phase::ramp, Phase::running, Phase::verifying}) {
        EXPECT_FALSE(told(false, phase));
        EXPECT_FALSE(told(true, phase));
    }
    EXPECT_FALSE(told(false, Phase::finished));  // its process ends
    EXPECT_TRUE(told(true, Phase::finished));
}

// A busy machine lets time pass between the moment that rates count from and the reading of the other clock.
TEST(Accounting, TheRuntimeBeginsWhereTheScheduleDoes) {
    JobPlan plan;
    plan.options = parse_job_text("[j]\nrw=read\nsize=4k\nfilename=/dev/null\n", "test").jobs.at(0);
    for (const Clock& clock : {Clock(), Clock::best()}) {
        const SharedMemory shared(std::vector<std::uint64_t>{0});
        Accounting accounting(plan, shared.job(0), shared.log(0), clock, false, false);
        const std::uint64_t before_ns = Clock::monotonic_ns();
        accounting.start(clock.ticks() - clock.ticks_for(10'000'000'000));
        const std::uint64_t since_ns = shared.state(0).measured_since_ns.load();
        EXPECT_NEAR(static_cast<double>(before_ns - since_ns), 10e9, 5e9);
        accounting.finish();
        EXPECT_GE(shared.state(0).measured.runtime_ns, 9'999'000'000U);
    }
}

}  // namespace
}  // namespace sampleblk::workload
