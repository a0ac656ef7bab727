// SPDX-License-Identifier: MIT
// What a job is, after its text was read: one plain struct, every field with its unit. The keys that
// fill it are in keys.hpp; the words are fio's (HOWTO, "Job parameters").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sampleblk/workload/replay_log.hpp"
#include "sampleblk/workload/values.hpp"

namespace sampleblk::workload {

enum class Direction : std::uint8_t { read, write, trim, sync };
inline constexpr std::size_t data_directions = 3;
inline constexpr std::array<Direction, data_directions> all_data_directions = {Direction::read, Direction::write,
                                                                               Direction::trim};

[[nodiscard]] constexpr std::size_t index_of(Direction direction) noexcept {
    return static_cast<std::size_t>(direction);
}

template <typename T>
using PerDirection = std::array<T, data_directions>;

enum class Engine : std::uint8_t {
    sync,
    psync,
    vsync,
    pvsync,
    pvsync2,
    mmap,
    libaio,
    io_uring,
    null,
    fadvise,
};

enum class Fallocate : std::uint8_t { none, native, posix, keep, truncate };
enum class FadviseHint : std::uint8_t { none, by_pattern, random, sequential };
enum class SyncMode : std::uint8_t { none, sync, dsync };
enum class Distribution : std::uint8_t { uniform, zipf, pareto, normal, zoned, zoned_abs };
enum class FileService : std::uint8_t { round_robin, sequential, random, zipf, pareto, normal };
enum class Sequencer : std::uint8_t { sequential, identical };
enum class RateProcess : std::uint8_t { linear, poisson };
enum class ThinkBlocks : std::uint8_t { complete, issue };
enum class Memory : std::uint8_t { malloc, mmap, mmap_huge, mmap_shared, shm, shm_huge };
enum class Verify : std::uint8_t {
    none,
    md5,
    crc64,
    crc32,
    crc32c,
    crc16,
    crc7,
    xxhash,
    sha1,
    sha256,
    sha512,
    sha3_224,
    sha3_256,
    sha3_384,
    sha3_512,
    pattern,
    pattern_hdr,
    header_only,
    null,
};
enum class Unified : std::uint8_t { none, mixed, both };
enum class ExitWhat : std::uint8_t { group, stonewall, all };
enum class ZoneMode : std::uint8_t { automatic, none, strided };
enum class CpuPolicy : std::uint8_t { shared, split };
enum class ClockSource : std::uint8_t { automatic, clock_gettime, tsc };
enum class SteadyMetric : std::uint8_t { none, iops, iops_slope, bw, bw_slope };

// Which errors do not end a job (continue_on_error), as bits.
inline constexpr std::uint8_t continue_on_read = 1;
inline constexpr std::uint8_t continue_on_write = 2;
inline constexpr std::uint8_t continue_on_verify = 4;

struct BlockSizeShare {
    std::uint64_t size_bytes = 0;
    std::uint32_t percent = 0;
};

struct ZoneShare {
    std::uint32_t access_percent = 0;
    // Percent of the file for `zoned`, bytes for `zoned_abs`.
    std::uint64_t size = 0;
};

// A part of a data pattern: literal bytes, or the block's offset (%o) written over them.
struct Pattern {
    std::string bytes;
    // Where %o stands, as byte offsets into `bytes`; each takes 8 bytes, little-endian.
    std::vector<std::size_t> offset_fields;
    [[nodiscard]] bool empty() const noexcept { return bytes.empty(); }
};

// In the order of the documentation; there are few of these, so their padding does not matter.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct JobOptions {
    // --- identity and reporting
    std::string name;
    std::string description;
    std::uint32_t numjobs = 1;
    std::uint32_t job_number = 0;     // counts all jobs of a file from 0
    std::uint32_t subjob_number = 0;  // counts the numjobs copies of one section from 0
    std::uint32_t group_id = 0;
    bool group_reporting = false;
    bool new_group = false;
    Unified unified_rw_reporting = Unified::none;
    KbBase kb_base = KbBase::binary;
    std::uint32_t unit_base = 8;  // 8: bytes, 1: bits
    std::uint32_t significant_figures = 4;
    bool stats = true;
    bool disk_util = true;
    bool slat_percentiles = false;
    bool clat_percentiles = true;
    bool lat_percentiles = false;
    std::vector<double> percentile_list = {1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99};
    bool disable_lat = false;
    bool disable_clat = false;
    bool disable_slat = false;
    bool disable_bw = false;

    // --- pattern
    bool reads = true;
    bool writes = false;
    bool trims = false;
    bool random = false;
    bool trim_then_write = false;       // trimwrite, randtrimwrite
    std::int64_t sequential_add = 0;    // bytes skipped after each sequential I/O, may be negative
    std::uint32_t sequence_length = 1;  // I/Os before a new random offset
    Sequencer sequencer = Sequencer::sequential;
    PerDirection<std::uint64_t> bs = {4096, 4096, 4096};
    PerDirection<std::uint64_t> min_bs = {4096, 4096, 4096};
    PerDirection<std::uint64_t> max_bs = {4096, 4096, 4096};
    PerDirection<std::uint64_t> align = {0, 0, 0};  // blockalign; 0: the block size
    PerDirection<std::vector<BlockSizeShare>> bssplit;
    bool bs_unaligned = false;
    bool bs_is_seq_rand = false;
    std::uint32_t rwmix_read = 50;
    PerDirection<std::uint32_t> percentage_random = {100, 100, 100};
    Distribution distribution = Distribution::uniform;
    double zipf_theta = 1.1;
    double pareto_h = 0.2;
    double normal_deviation = 0;  // percent of the range
    double random_center = -1;    // fraction of the range; negative: hashed all over it
    PerDirection<std::vector<ZoneShare>> zones;
    bool norandommap = false;
    bool softrandommap = false;
    std::uint64_t randseed = 0;
    bool randseed_given = false;
    bool randrepeat = true;
    ZoneMode zonemode = ZoneMode::automatic;
    std::uint64_t zone_size_bytes = 0;
    std::uint64_t zone_range_bytes = 0;
    std::uint64_t zone_skip_bytes = 0;

    // --- how much
    SizeOrPercent size;
    SizeOrPercent io_size;
    Range filesize;  // 0: not given
    SizeOrPercent offset;
    SizeOrPercent offset_increment;
    std::uint64_t offset_align = 0;
    std::uint64_t number_ios = 0;
    std::uint64_t loops = 1;
    bool fill_device = false;
    bool file_append = false;
    bool time_based = false;
    std::uint64_t runtime_ns = 0;
    std::uint64_t ramp_time_ns = 0;
    std::uint64_t startdelay_ns = 0;
    std::uint64_t startdelay_upper_ns = 0;  // a range: drawn between the two

    // --- files
    std::string filename;
    std::string directory;
    std::string filename_format;
    std::string opendir;
    std::uint32_t nrfiles = 1;
    std::uint32_t openfiles = 0;  // 0: all
    FileService file_service = FileService::round_robin;
    std::uint32_t file_service_count = 1;  // I/Os on a file before the next
    double file_service_parameter = 0;     // zipf theta, pareto h, normal deviation
    Fallocate fallocate = Fallocate::native;
    FadviseHint fadvise_hint = FadviseHint::by_pattern;
    bool invalidate = true;
    bool pre_read = false;
    bool create_fsync = true;
    bool create_on_open = false;
    bool create_only = false;
    bool allow_file_create = true;
    bool allow_mounted_write = false;
    bool overwrite = false;
    bool unlink = false;
    bool unlink_each_loop = false;
    std::uint64_t write_hint = 0;  // RWH_WRITE_LIFE_*; 0: none is given

    // --- durability
    bool direct = false;
    SyncMode sync = SyncMode::none;
    std::uint64_t fsync_every = 0;      // writes
    std::uint64_t fdatasync_every = 0;  // writes
    std::uint64_t sync_file_range_every = 0;
    std::uint32_t sync_file_range_flags = 0;
    bool end_fsync = false;
    bool fsync_on_close = false;

    // --- engine
    Engine engine = Engine::psync;
    std::uint32_t iodepth = 1;
    std::uint32_t iodepth_batch = 1;
    std::uint32_t iodepth_batch_complete_min = 1;
    std::uint32_t iodepth_batch_complete_max = 0;  // 0: as iodepth_batch_complete_min
    std::uint32_t iodepth_low = 0;                 // 0: iodepth
    bool serialize_overlap = false;
    bool hipri = false;
    std::uint32_t hipri_percentage = 100;
    bool fixedbufs = false;
    bool registerfiles = false;
    bool sqthread_poll = false;
    std::int32_t sqthread_poll_cpu = -1;
    bool nonvectored = false;
    bool nonvectored_given = false;
    bool nowait = false;
    std::uint32_t force_async = 0;  // io_uring: every how many I/Os
    bool userspace_reap = false;
    std::vector<int> advice;         // engine fadvise: POSIX_FADV_*, one after another
    bool advice_whole_file = false;  // engine fadvise: offset 0, length 0
    Memory memory = Memory::malloc;
    std::string memory_file;
    std::uint64_t memory_align = 0;  // 0: the page
    std::uint64_t hugepage_size = 0;
    ClockSource clock = ClockSource::automatic;

    // --- buffers
    bool zero_buffers = false;
    bool refill_buffers = false;
    bool refill_buffers_given = false;
    bool scramble_buffers = true;
    bool scramble_buffers_given = false;
    Pattern buffer_pattern;
    std::uint32_t compress_percentage = 0;
    std::uint64_t compress_chunk_bytes = 512;
    std::uint32_t dedupe_percentage = 0;

    // --- verify
    Verify verify = Verify::none;
    bool verify_given = false;
    bool do_verify = true;
    bool verify_only = false;
    std::uint64_t verify_interval_bytes = 0;  // 0: the block
    std::uint64_t verify_offset_bytes = 0;
    Pattern verify_pattern;
    bool verify_header_seed = true;     // whether headers must have been written with this job's seed
    bool verify_write_sequence = true;  // and in this order
    bool verify_fatal = false;
    bool verify_dump = false;
    std::uint64_t verify_backlog = 0;
    std::uint64_t verify_backlog_batch = 0;

    // --- pacing
    std::uint64_t thinktime_ns = 0;
    std::uint64_t thinktime_spin_ns = 0;
    std::uint64_t thinktime_blocks = 1;
    bool thinktime_blocks_given = false;
    ThinkBlocks thinktime_blocks_type = ThinkBlocks::complete;
    std::uint64_t thinktime_iotime_ns = 0;
    PerDirection<std::uint64_t> rate_bps = {0, 0, 0};
    PerDirection<std::uint64_t> rate_min_bps = {0, 0, 0};
    PerDirection<std::uint64_t> rate_iops = {0, 0, 0};
    PerDirection<std::uint64_t> rate_iops_min = {0, 0, 0};
    RateProcess rate_process = RateProcess::linear;
    std::uint64_t rate_cycle_ns = 1'000'000'000;
    bool rate_ignore_thinktime = false;
    PerDirection<std::uint64_t> max_latency_ns = {0, 0, 0};
    std::uint64_t latency_target_ns = 0;
    std::uint64_t latency_window_ns = 0;
    double latency_percentile = 100;
    bool latency_run = false;

    // --- logs
    std::string write_bw_log;
    std::string write_lat_log;
    std::string write_iops_log;
    std::string write_hist_log;
    bool per_job_logs = true;
    std::uint64_t log_avg_ns = 0;
    std::uint64_t log_hist_ns = 0;
    std::uint32_t log_hist_coarseness = 0;
    bool log_max_value = false;
    bool log_offset = false;
    bool log_unix_epoch = false;
    std::uint64_t bwavgtime_ns = 500'000'000;
    std::uint64_t iopsavgtime_ns = 500'000'000;
    std::uint64_t io_log_entries = 0;  // ours: rows of the per-I/O log kept in memory

    // --- steady state
    SteadyMetric steadystate = SteadyMetric::none;
    double steadystate_limit = 0;
    bool steadystate_percent = false;
    std::uint64_t steadystate_duration_ns = 0;
    std::uint64_t steadystate_ramp_ns = 0;

    // --- scheduling
    bool stonewall = false;
    std::string wait_for;
    bool exitall = false;
    bool exitall_on_error = false;
    ExitWhat exit_what = ExitWhat::group;
    bool thread = false;
    std::vector<int> cpus_allowed;
    CpuPolicy cpus_policy = CpuPolicy::shared;
    std::int32_t nice = 0;
    std::int32_t prio = 0;
    std::int32_t prio_class = 0;
    bool prio_given = false;
    std::uint64_t lockmem_bytes = 0;
    std::int64_t uid = -1;
    std::int64_t gid = -1;
    std::string cgroup;
    std::uint32_t cgroup_weight = 0;
    bool cgroup_nodelete = false;
    std::string ioscheduler;
    std::string exec_prerun;
    std::string exec_postrun;
    std::uint8_t continue_on_error = 0;
    PerDirection<std::vector<int>> ignore_error;  // read, write, verify: errno values

    // --- replay
    std::string read_iolog;
    bool replay_no_stall = false;
    std::string replay_redirect;
    std::uint64_t replay_scale = 1;
    std::uint64_t replay_align = 0;
    std::uint32_t replay_time_scale = 100;    // percent of the recorded speed
    std::uint32_t replay_skip = 0;            // bits of Direction
    std::shared_ptr<const ReplayLog> replay;  // a recording that is not a file

    // The keys as they were written, for the JSON's "job options".
    std::vector<std::pair<std::string, std::string>> given;
    std::size_t globals = 0;  // how many of the set's, from the first on, stand above the job

    [[nodiscard]] bool mixes_reads_and_writes() const noexcept { return reads && writes; }
    // Or only behind them, to verify what was written.
    [[nodiscard]] bool reads_in_passes() const noexcept { return reads || verify_backlog != 0; }
    [[nodiscard]] bool has_files() const noexcept { return engine != Engine::null; }
    // Whether its I/O changes the files; of a job with verify_only what it would have written is checked.
    [[nodiscard]] bool changes_files() const noexcept { return (writes || trims) && !verify_only; }
    [[nodiscard]] bool only_pretends() const noexcept { return (writes || trims) && verify_only; }
    // Whether the files are evidence of an earlier run, which a job that only checks it takes as they are.
    [[nodiscard]] bool only_checks() const noexcept {
        return !changes_files() && (verify_only || (verify != Verify::none && verify != Verify::null));
    }
    [[nodiscard]] bool uses(std::size_t direction) const noexcept {
        return direction == 0 ? reads : direction == 1 ? writes : trims;
    }
    // Whose block sizes an I/O of a direction has.
    [[nodiscard]] std::size_t size_index(std::size_t direction, bool is_random) const noexcept {
        return bs_is_seq_rand ? index_of(is_random ? Direction::write : Direction::read) : direction;
    }
    // Of the directions that are used.
    [[nodiscard]] std::uint64_t least_block() const noexcept {
        std::uint64_t least = UINT64_MAX;
        for (std::size_t i = 0; i < data_directions; ++i) {
            least = uses(i) && min_bs[i] < least ? min_bs[i] : least;
        }
        return least;
    }
};

// Whether the files that are done are drawn too: they begin again, within the same pass.
[[nodiscard]] constexpr bool is_skewed(FileService service) noexcept {
    return service == FileService::zipf || service == FileService::pareto || service == FileService::normal;
}

// Whether an engine completes each I/O in the call that starts it.
[[nodiscard]] constexpr bool is_synchronous(Engine engine) noexcept {
    return engine != Engine::libaio && engine != Engine::io_uring;
}

}  // namespace sampleblk::workload
