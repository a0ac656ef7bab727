// SPDX-License-Identifier: MIT
// perf.data, as tools/perf/Documentation/perf.data-file-format.txt describes it: files and pipes, plain or compressed,
// of any perf since 3.x, in this machine's byte order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sampleblk/linux_headers.hpp"
#include "sampleblk/mapping.hpp"
#include "sampleblk/trace/format.hpp"

namespace sampleblk::profile {

// Record types that perf itself adds to those of the kernel (tools/lib/perf/include/perf/event.h).
enum : std::uint8_t {
    kRecordHeaderAttr = 64,
    kRecordTracingData = 66,
    kRecordBuildId = 67,
    kRecordFinishedRound = 68,
    kRecordAuxtrace = 71,
    kRecordEventUpdate = 78,
    kRecordHeaderFeature = 80,
    kRecordCompressed = 81,
    kRecordFinishedInit = 82,
    kRecordCompressed2 = 83,
};

// Header features (tools/perf/util/header.h).
enum : std::uint16_t {
    kFeatureTracingData = 1,
    kFeatureBuildId = 2,
    kFeatureHostname = 3,
    kFeatureOsRelease = 4,
    kFeatureVersion = 5,
    kFeatureArch = 6,
    kFeatureCpus = 7,
    kFeatureCpuDescription = 8,
    kFeatureCommandLine = 11,
    kFeatureEventDescription = 12,
    kFeatureSampleTime = 21,
    kFeatureDirectory = 24,
    kFeatureLast = 256,
};

// What to do with a recording that is cut short or corrupt.
enum class OnDamage : std::uint8_t {
    strict,  // throw FormatError
    skip,    // keep what can be read, and count
};

struct Event {
    perf_event_attr attr{};
    std::vector<std::uint64_t> ids;
    std::string name;
};

// One record; `body` is what follows its header.
struct Record {
    std::uint64_t time_ns = 0;  // 0 for what perf made up before it began to record
    const std::byte* data = nullptr;
    [[nodiscard]] perf_event_header header() const noexcept;
    [[nodiscard]] std::span<const std::byte> body() const noexcept;
};

// The parts of a PERF_RECORD_SAMPLE; what its event did not ask for is zero or empty.
struct Sample {
    std::size_t event = 0;  // index into PerfFile::events()
    std::uint64_t ip = 0;
    std::int32_t pid = 0;
    std::int32_t tid = 0;
    std::uint64_t time_ns = 0;
    std::uint64_t address = 0;
    std::uint32_t cpu = 0;
    std::uint64_t period = 1;
    // The counters of its group (PERF_SAMPLE_READ): number and count each, unaligned. Empty without.
    std::span<const std::byte> counts;
    std::size_t count_size = 0;        // bytes from one to the next: u64 count, u64 id
    std::span<const std::byte> chain;  // u64 addresses, unaligned, innermost first, with PERF_CONTEXT_ marks
    std::span<const std::byte> raw;    // a trace point's record
    std::uint64_t user_abi = 0;        // PERF_SAMPLE_REGS_ABI_*
    std::span<const std::byte> user_registers;
    std::span<const std::byte> user_stack;  // the part that the kernel could copy
};

// The build id of a file that was mapped while recording.
struct BuildId {
    std::string path;
    std::string id;  // lower-case hex
};

// A number at any alignment.
template <typename T>
[[nodiscard]] T load(const std::byte* from) noexcept {
    T value;
    __builtin_memcpy(&value, from, sizeof(T));
    return value;
}

struct PerfContents;  // what was read of a recording

// A recording, opened. It never changes, so that any thread may read it; what it hands out points into it.
class PerfFile {
  public:
    // `path`: a file, or a directory as perf record --kcore and --threads make it: the records of its data.0, data.1 …
    // are read with those of its data.
    explicit PerfFile(const std::string& path, OnDamage damage = OnDamage::strict);
    // The same of bytes in memory; `path` is for messages.
    PerfFile(std::vector<std::byte> bytes, std::string path, OnDamage damage = OnDamage::strict);
    // One that was read by somebody else (from_trace.hpp).
    explicit PerfFile(std::unique_ptr<PerfContents> contents) noexcept;

    PerfFile(const PerfFile&) = delete;
    PerfFile& operator=(const PerfFile&) = delete;
    PerfFile(PerfFile&&) = delete;
    PerfFile& operator=(PerfFile&&) = delete;
    ~PerfFile();

    // Of a directory, its file with the header.
    [[nodiscard]] const std::string& path() const noexcept;
    [[nodiscard]] bool is_pipe() const noexcept;
    [[nodiscard]] bool is_compressed() const noexcept;
    [[nodiscard]] const std::vector<Event>& events() const noexcept;
    // All records in order of time, those made up before the recording first.
    [[nodiscard]] const std::vector<Record>& records() const noexcept;
    // "hostname", "os_release", "version", "arch", "command_line", …
    [[nodiscard]] const std::map<std::string, std::string>& header() const noexcept;
    [[nodiscard]] const std::vector<BuildId>& build_ids() const noexcept;
    // Formats of the recorded trace points, by event id.
    [[nodiscard]] const std::map<std::uint64_t, trace::EventFormat>& formats() const noexcept;
    // The kernel's symbols, where the recording itself carries them (the old tracing data does).
    [[nodiscard]] std::string_view kallsyms() const noexcept;
    // What could not be read and was skipped: "kind" -> count. Empty for a sound file.
    [[nodiscard]] const std::map<std::string, std::uint64_t>& damage() const noexcept;

    // The event that the kernel gave this id to.
    [[nodiscard]] std::optional<std::size_t> event_of_id(std::uint64_t id) const;
    // nullopt when the record is too short for what its event promises (strict: FormatError).
    [[nodiscard]] std::optional<Sample> sample(const Record& record) const;
    // Throws FormatError when somebody shortened the file since it was opened.
    void check_length() const;
    // Where it lies in the file; 0 for one that was decompressed.
    [[nodiscard]] std::uint64_t offset_of(const Record& record) const noexcept;

  private:
    void read();
    void read_parts();
    [[nodiscard]] std::optional<std::size_t> event_of(std::uint64_t id, const Record& record) const;

    MappedFile mapping_;
    std::vector<MappedFile> parts_;  // of a directory: data.0, data.1 …
    std::vector<std::byte> owned_;
    std::unique_ptr<PerfContents> contents_;
};

}  // namespace sampleblk::profile
