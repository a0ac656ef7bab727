// SPDX-License-Identifier: MIT
#include <fcntl.h>

#include <algorithm>
#include <array>

#include "key_setters.hpp"
#include "key_tables.hpp"

namespace sampleblk::workload {

namespace {

using namespace setters;

constexpr std::array<Word<Engine>, 10> engines = {{{"sync", Engine::sync},
                                                   {"psync", Engine::psync},
                                                   {"vsync", Engine::vsync},
                                                   {"pvsync", Engine::pvsync},
                                                   {"pvsync2", Engine::pvsync2},
                                                   {"mmap", Engine::mmap},
                                                   {"libaio", Engine::libaio},
                                                   {"io_uring", Engine::io_uring},
                                                   {"null", Engine::null},
                                                   {"fadvise", Engine::fadvise}}};
constexpr std::array<Word<int>, 6> advice_words = {{{"normal", POSIX_FADV_NORMAL},
                                                    {"sequential", POSIX_FADV_SEQUENTIAL},
                                                    {"random", POSIX_FADV_RANDOM},
                                                    {"willneed", POSIX_FADV_WILLNEED},
                                                    {"dontneed", POSIX_FADV_DONTNEED},
                                                    {"noreuse", POSIX_FADV_NOREUSE}}};
constexpr std::array<Word<Memory>, 6> memory_words = {{{"malloc", Memory::malloc},
                                                       {"shm", Memory::shm},
                                                       {"shmhuge", Memory::shm_huge},
                                                       {"mmap", Memory::mmap},
                                                       {"mmaphuge", Memory::mmap_huge},
                                                       {"mmapshared", Memory::mmap_shared}}};
constexpr std::array<Word<ClockSource>, 3> clock_words = {{{"clock_gettime", ClockSource::clock_gettime},
                                                           {"gettimeofday", ClockSource::clock_gettime},
                                                           {"cpu", ClockSource::tsc}}};

// What fio 3.33 has besides, so that the error can tell a missing engine from a misspelt one.
constexpr std::array<std::string_view, 49> other_engines = {"posixaio",
                                                            "solarisaio",
                                                            "windowsaio",
                                                            "splice",
                                                            "sg",
                                                            "libzbc",
                                                            "net",
                                                            "netsplice",
                                                            "cpuio",
                                                            "rdma",
                                                            "falloc",
                                                            "ftruncate",
                                                            "e4defrag",
                                                            "rados",
                                                            "rbd",
                                                            "http",
                                                            "gfapi",
                                                            "gfapi_async",
                                                            "libhdfs",
                                                            "mtd",
                                                            "filecreate",
                                                            "filestat",
                                                            "filedelete",
                                                            "libpmem",
                                                            "pmemblk",
                                                            "dev-dax",
                                                            "ime_psync",
                                                            "ime_psyncv",
                                                            "ime_aio",
                                                            "libiscsi",
                                                            "nbd",
                                                            "libcufile",
                                                            "dfs",
                                                            "nfs",
                                                            "exec",
                                                            "xnvme",
                                                            "libblkio",
                                                            "io_uring_cmd",
                                                            "guasi",
                                                            "binject",
                                                            "mmap-dax",
                                                            "librpma_apm_client",
                                                            "librpma_apm_server",
                                                            "librpma_gpspm_client",
                                                            "librpma_gpspm_server",
                                                            "cpp_null",
                                                            "external",
                                                            "syslet-rw",
                                                            "fusion-aw-sync"};

void set_engine(JobOptions& options, std::string_view text) {
    const std::string_view name = trim(text);
    if (name.starts_with("external:") || std::ranges::find(other_engines, name) != other_engines.end()) {
        std::string expected;
        for (const Word<Engine>& entry : engines) {
            expected += (expected.empty() ? "" : ", ") + std::string(entry.word);
        }
        throw InputError("fio's engine '" + std::string(name) + "' is not supported, and no other does the same", {}, 0,
                         expected);
    }
    options.engine = pick(engines, name);
}

// "mmap", or "mmaphuge:/dev/hugepages/file".
void set_memory(JobOptions& options, std::string_view text) {
    const std::size_t colon = text.find(':');
    options.memory = pick(memory_words, text.substr(0, colon));
    options.memory_file = colon == std::string_view::npos ? std::string() : std::string(trim(text.substr(colon + 1)));
}

void set_advice(JobOptions& options, std::string_view text) {
    options.advice.clear();
    for (const std::string_view word : split(text, ',')) {
        options.advice.push_back(pick(advice_words, word));
    }
}

void set_nonvectored(JobOptions& options, std::string_view text) {
    options.nonvectored = parse_bool(text);
    options.nonvectored_given = true;
}

constexpr Key table[] = {
    {"ioengine", "engine", "str", "psync", Effect::result, Support::full, "how I/O reaches the kernel", set_engine},
    {"iodepth", "", "int", "1", Effect::result, Support::full, "I/Os in flight",
     number<&JobOptions::iodepth, 1, 32768>},
    {"iodepth_batch", "iodepth_batch_submit", "int", "1", Effect::result, Support::full, "I/Os submitted at a time",
     number<&JobOptions::iodepth_batch, 1, 32768>},
    {"iodepth_batch_complete_min", "iodepth_batch_complete", "int", "1", Effect::result, Support::full,
     "completions to wait for", number<&JobOptions::iodepth_batch_complete_min, 0, 32768>},
    {"iodepth_batch_complete_max", "", "int", "iodepth_batch_complete_min", Effect::result, Support::full,
     "completions taken at a time", number<&JobOptions::iodepth_batch_complete_max, 0, 32768>},
    {"iodepth_low", "", "int", "iodepth", Effect::result, Support::full, "depth to drain to before refilling",
     number<&JobOptions::iodepth_low, 0, 32768>},
    {"serialize_overlap", "", "bool", "0", Effect::result, Support::full, "I/Os in flight do not overlap",
     flag<&JobOptions::serialize_overlap>},
    {"io_submit_mode", "", "inline", "inline", Effect::result, Support::full,
     "submission by the job itself; offload to threads is not there",
     [](JobOptions& /*options*/, std::string_view text) {
         constexpr std::array<Word<int>, 1> modes = {{{"inline", 0}}};
         (void)pick(modes, text);
     }},
    {"hipri", "", "bool", "0", Effect::result, Support::full, "polled completion", flag<&JobOptions::hipri>},
    {"hipri_percentage", "", "percent", "100", Effect::result, Support::full, "I/Os that hipri is for",
     number<&JobOptions::hipri_percentage, 0, 100>},
    {"fixedbufs", "", "bool", "0", Effect::result, Support::full, "io_uring: registered buffers",
     flag<&JobOptions::fixedbufs>},
    {"registerfiles", "", "bool", "0", Effect::result, Support::full, "io_uring: registered files",
     flag<&JobOptions::registerfiles>},
    {"sqthread_poll", "", "bool", "0", Effect::result, Support::full, "io_uring: a kernel thread submits",
     flag<&JobOptions::sqthread_poll>},
    {"sqthread_poll_cpu", "", "int", "", Effect::result, Support::full, "io_uring: its CPU",
     signed_number<&JobOptions::sqthread_poll_cpu, 0, 1023>},
    {"nonvectored", "", "bool", "1 where the kernel has it", Effect::result, Support::full,
     "io_uring: read and write instead of readv and writev", set_nonvectored},
    {"nowait", "", "bool", "0", Effect::result, Support::full, "RWF_NOWAIT", flag<&JobOptions::nowait>},
    {"force_async", "", "int", "0", Effect::result, Support::full, "io_uring: every how many I/Os go to a worker",
     number<&JobOptions::force_async, 0, UINT32_MAX>},
    {"userspace_reap", "", "bool", "0", Effect::result, Support::full, "libaio: read completions from the ring",
     flag<&JobOptions::userspace_reap>},
    {"uncached", "", "bool", "0", Effect::result, Support::refused,
     "RWF_UNCACHED is not in any released kernel of 3.33", nullptr},
    {"cmdprio_percentage", "", "percent", "0", Effect::result, Support::refused, "no priorities for single I/Os",
     nullptr},
    {"cmdprio_class", "", "int", "", Effect::result, Support::refused, "no priorities for single I/Os", nullptr},
    {"cmdprio", "", "int", "", Effect::result, Support::refused, "no priorities for single I/Os", nullptr},
    {"cmdprio_bssplit", "", "str", "", Effect::result, Support::refused, "no priorities for single I/Os", nullptr},
    {"cmd_type", "", "str", "", Effect::result, Support::refused, "no passthrough commands", nullptr},
    {"advice", "", "normal|sequential|random|willneed|dontneed|noreuse[,…]", "dontneed", Effect::result, Support::full,
     "engine fadvise: the advice given for each range, in turn", set_advice},
    {"advice_whole_file", "", "bool", "0", Effect::result, Support::full,
     "engine fadvise: each advice is for offset 0, length 0", flag<&JobOptions::advice_whole_file>},
    {"mem", "iomem", "malloc|shm|shmhuge|mmap|mmaphuge|mmapshared[:file]", "malloc", Effect::result, Support::full,
     "memory of the I/O buffers", set_memory},
    {"iomem_align", "mem_align", "size", "page", Effect::result, Support::full, "alignment of the I/O buffers",
     number<&JobOptions::memory_align, 0, (std::uint64_t{1} << 30)>},
    {"hugepage-size", "", "size", "the system's", Effect::result, Support::full, "size of a huge page",
     number<&JobOptions::hugepage_size>},
    {"thp", "", "bool", "0", Effect::result, Support::refused, "engine mmap does not ask for huge pages", nullptr},
    {"clocksource", "", "clock_gettime|gettimeofday|cpu", "", Effect::report, Support::full,
     "what latencies are measured by; the TSC where it can be trusted", choice<&JobOptions::clock, clock_words>},
    {"gtod_cpu", "", "int", "", Effect::report, Support::accepted, "no thread is needed to tell the time", nullptr},
    {"numa_cpu_nodes", "", "str", "", Effect::result, Support::refused, "use cpus_allowed", nullptr},
    {"numa_mem_policy", "", "str", "", Effect::result, Support::refused, "no memory policies", nullptr},
};

}  // namespace

std::span<const Key> engine_keys() {
    return table;
}

}  // namespace sampleblk::workload
