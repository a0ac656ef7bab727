// SPDX-License-Identifier: MIT
#include <fcntl.h>

#include "language/key_tables.hpp"
#include "language/setters.hpp"

namespace sampleblk::workload {

namespace {

using namespace setters;

// Ours, in the order of Engine, and fio's others.
constexpr char engine_words[] =
    "sync psync vsync pvsync pvsync2 mmap libaio io_uring null fadvise !posixaio !solarisaio !windowsaio !splice !sg "
    "!libzbc !net !netsplice !cpuio !rdma !falloc !ftruncate !e4defrag !rados !rbd !http !gfapi !gfapi_async !libhdfs "
    "!mtd !filecreate !filestat !filedelete !dircreate !dirstat !dirdelete !libpmem !pmemblk !dev-dax !ime_psync "
    "!ime_psyncv !ime_aio !libiscsi !nbd !libcufile !libhipfile !dfs !nfs !exec !xnvme !libblkio !io_uring_cmd !guasi "
    "!binject !mmap-dax !librpma_apm !librpma_gpspm !librpma_apm_client !librpma_apm_server !librpma_gpspm_client "
    "!librpma_gpspm_server !cpp_null !external !syslet-rw !fusion-aw-sync";
constexpr char submit_words[] = "inline !offload";

void set_engine(JobOptions& options, std::string_view text) {
    // "external:/path/to/engine.so"
    options.engine = static_cast<Engine>(pick(engine_words, text.substr(0, text.find(':'))));
}

void set_clock(JobOptions& options, std::string_view text) {
    options.clock = pick("clock_gettime|gettimeofday cpu", text) == 0 ? ClockSource::clock_gettime : ClockSource::tsc;
}

// "mmap", or "mmaphuge:/dev/hugepages/file".
void set_memory(JobOptions& options, std::string_view text) {
    const std::size_t colon = text.find(':');
    options.memory =
        static_cast<Memory>(pick("malloc mmap mmaphuge mmapshared shm shmhuge !cudamalloc", text.substr(0, colon)));
    options.memory_file = colon == std::string_view::npos ? std::string() : std::string(trim(text.substr(colon + 1)));
}

void set_advice(JobOptions& options, std::string_view text) {
    constexpr int advice[] = {POSIX_FADV_NORMAL,   POSIX_FADV_SEQUENTIAL, POSIX_FADV_RANDOM,
                              POSIX_FADV_WILLNEED, POSIX_FADV_DONTNEED,   POSIX_FADV_NOREUSE};
    options.advice.clear();
    for (const std::string_view word : split(text, ',')) {
        options.advice.push_back(advice[pick("normal sequential random willneed dontneed noreuse", word)]);
    }
}

void set_nonvectored(JobOptions& options, std::string_view text) {
    options.nonvectored = parse_bool(text);
    options.nonvectored_given = true;
}

constexpr Key table[] = {
    key("ioengine engine", "str", "psync", "how I/O reaches the kernel", set_engine),
    key("iodepth", "int", "1", "I/Os in flight", number<&JobOptions::iodepth, 1, 32768>),
    key("iodepth_batch iodepth_batch_submit", "int", "1", "I/Os submitted at a time",
        number<&JobOptions::iodepth_batch, 1, 32768>),
    key("iodepth_batch_complete_min iodepth_batch_complete", "int", "1", "completions to wait for",
        number<&JobOptions::iodepth_batch_complete_min, 0, 32768>),
    key("iodepth_batch_complete_max", "int", "iodepth_batch_complete_min", "completions taken at a time",
        number<&JobOptions::iodepth_batch_complete_max, 0, 32768>),
    key("iodepth_low", "int", "iodepth", "depth to drain to before refilling",
        number<&JobOptions::iodepth_low, 0, 32768>),
    key("serialize_overlap", "bool", "0", "I/Os in flight do not overlap", flag<&JobOptions::serialize_overlap>),
    key("io_submit_mode", "inline", "inline", "submission by the job itself; offload to threads is not supported",
        only<submit_words>),
    key("hipri", "bool", "0", "polled completion", flag<&JobOptions::hipri>),
    key("hipri_percentage", "percent", "100", "I/Os that hipri is for", number<&JobOptions::hipri_percentage, 0, 100>),
    key("fixedbufs", "bool", "0", "io_uring: registered buffers", flag<&JobOptions::fixedbufs>),
    key("registerfiles", "bool", "0", "io_uring: registered files", flag<&JobOptions::registerfiles>),
    key("sqthread_poll", "bool", "0", "io_uring: a kernel thread submits", flag<&JobOptions::sqthread_poll>),
    key("sqthread_poll_cpu", "int", "", "io_uring: its CPU", signed_number<&JobOptions::sqthread_poll_cpu, 0, 1023>),
    key("nonvectored", "bool", "1 where the kernel has it", "io_uring: read and write instead of readv and writev",
        set_nonvectored),
    key("nowait", "bool", "0", "RWF_NOWAIT", flag<&JobOptions::nowait>),
    key("force_async", "int", "0", "io_uring: every how many I/Os go to a worker",
        number<&JobOptions::force_async, 0, UINT32_MAX>),
    key("userspace_reap", "bool", "0", "libaio: read completions from the ring", flag<&JobOptions::userspace_reap>),
    key("advice", "normal|sequential|random|willneed|dontneed|noreuse[,…]", "dontneed",
        "engine fadvise: the advice given for the ranges, one after another", set_advice),
    key("advice_whole_file", "bool", "0", "engine fadvise: each advice is for offset 0, length 0",
        flag<&JobOptions::advice_whole_file>),
    key("mem iomem", "malloc|shm|shmhuge|mmap|mmaphuge|mmapshared[:file]", "malloc", "memory of the I/O buffers",
        set_memory),
    key("iomem_align mem_align", "size", "page", "alignment of the I/O buffers",
        number<&JobOptions::memory_align, 0, (std::uint64_t{1} << 30)>),
    key("hugepage-size", "size", "the system's", "size of a huge page", number<&JobOptions::hugepage_size>),
    report_key("clocksource", "clock_gettime|gettimeofday|cpu", "",
               "what latencies are measured by; the TSC where it can be trusted", set_clock),
};

}  // namespace

std::string_view engine_name(Engine engine) {
    return word_of(engine_words, static_cast<std::size_t>(engine));
}

std::span<const Key> engine_keys() {
    return table;
}

}  // namespace sampleblk::workload
