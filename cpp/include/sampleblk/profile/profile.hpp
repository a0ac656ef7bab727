// SPDX-License-Identifier: MIT
// A perf.data as a profile: samples in columns, each with the stack that it was taken on, names resolved. Stacks are
// paths of one trie, so a million samples cost little more than their distinct stacks.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sampleblk/profile/perf_file.hpp"
#include "sampleblk/table.hpp"

namespace sampleblk::profile {

// `inlined`: a function of user code that has no frame of its own; it lies in the next one outwards.
enum class FrameKind : std::uint8_t { unknown, user, kernel, module, note, inlined };

// Where symbols are looked for, in this order.
struct SymbolSources {
    std::string kallsyms;                    // a file; empty: beside the recording, in the caches, the running kernel's
    std::vector<std::string> build_id_dirs;  // as perf keeps them, with .build-id/ below; before any path
    std::string root;                        // put before recorded paths (perf's --symfs)
    bool use_paths = true;                   // files where they were when recording, if their build id is the same
    bool use_running_kernel = true;          // /proc/kallsyms, if the recording is of this boot
    bool inlines = true;                     // frames for what DWARF says was inlined, too
};

struct Frame {
    std::int32_t name = 0;    // code in Profile::names(): the function, "[libc.so.6]" or "[unknown]"
    std::int32_t module = 0;  // code in Profile::names(): "[kernel.kallsyms]", "[ext4]", "/usr/bin/fio"
    FrameKind kind = FrameKind::unknown;
    bool resolved = false;
    std::uint64_t key = 0;  // the function's start in its module, or the address where there is no name
};

// One step of a stack. Node 0 is the root and has no frame; a parent's number is smaller than its children's.
struct StackNode {
    std::uint32_t parent = 0;
    std::uint32_t frame = 0;
};

// Which samples of a profile.
struct SampleSelection {
    std::optional<std::string> event;  // name; none: the first event that is no trace point or dummy, else the first
    std::vector<std::int32_t> pids;    // empty: all
    bool children = false;             // processes that those forked, too
    std::optional<std::string> comm;
    std::vector<std::uint32_t> cpus;
    std::uint64_t from = 0;  // ns of the recording's clock
    std::uint64_t to = std::numeric_limits<std::uint64_t>::max();
    bool idle = true;  // samples of the idle task (pid 0), too
};

class Profile {
  public:
    // Resolves everything at once. `file` is kept: trace points' records are read from it later.
    Profile(std::shared_ptr<const PerfFile> file, const SymbolSources& sources);

    [[nodiscard]] const PerfFile& file() const noexcept { return *file_; }
    [[nodiscard]] std::size_t size() const noexcept { return time_ns_.size(); }
    [[nodiscard]] const std::vector<Frame>& frames() const noexcept { return frames_; }
    [[nodiscard]] const std::vector<StackNode>& stacks() const noexcept { return stacks_; }
    [[nodiscard]] const StringPool& names() const noexcept { return *names_; }

    // Of each sample, in order of time.
    [[nodiscard]] const std::vector<std::uint64_t>& times() const noexcept { return time_ns_; }
    [[nodiscard]] const std::vector<std::uint64_t>& periods() const noexcept { return period_; }
    [[nodiscard]] const std::vector<std::uint32_t>& leaves() const noexcept { return leaf_; }
    [[nodiscard]] const std::vector<std::int32_t>& comms() const noexcept { return comm_; }
    [[nodiscard]] const std::vector<std::int32_t>& pids() const noexcept { return pid_; }
    [[nodiscard]] const std::vector<std::int32_t>& tids() const noexcept { return tid_; }
    [[nodiscard]] const std::vector<std::uint32_t>& cpus() const noexcept { return cpu_; }
    [[nodiscard]] const std::vector<std::uint16_t>& events() const noexcept { return event_; }
    // A trace point's record; empty for other samples.
    [[nodiscard]] std::span<const std::byte> raw(std::size_t sample) const {
        return raw_.empty() ? std::span<const std::byte>{} : raw_[sample];
    }

    // When records were lost, at the latest, in order.
    [[nodiscard]] const std::vector<std::uint64_t>& gaps() const noexcept { return gaps_; }

    // The event that a selection means. Throws InputError for a name that no event of the file has, or several.
    [[nodiscard]] std::size_t event_number(const std::optional<std::string>& name) const;
    // Numbers of the selected samples.
    [[nodiscard]] std::vector<std::uint32_t> select(const SampleSelection& selection) const;
    // `pids` and, when asked for, what they forked while recording.
    [[nodiscard]] std::vector<std::int32_t> with_children(std::vector<std::int32_t> pids, bool children) const;

    // What was lost or not resolved: lost_records, lost_samples, throttled, unresolved_*, symbols, damage_*.
    [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }
    // Files whose symbols were used: recorded path -> (build id, path here).
    [[nodiscard]] const std::map<std::string, std::pair<std::string, std::string>>& symbol_files() const noexcept {
        return symbol_files_;
    }

    // time, cpu, pid, tid, comm, event, period, frame (the innermost function), module.
    [[nodiscard]] Table table(const SampleSelection& selection) const;
    // The functions of a sample's stack, outermost first; of a row of table({}).
    [[nodiscard]] std::vector<std::string> stack(std::size_t sample) const;

  private:
    friend class ProfileBuilder;

    std::shared_ptr<const PerfFile> file_;
    std::shared_ptr<StringPool> names_ = std::make_shared<StringPool>();
    std::vector<Frame> frames_;
    std::vector<StackNode> stacks_;
    std::vector<std::uint64_t> time_ns_;
    std::vector<std::uint64_t> period_;
    std::vector<std::uint32_t> leaf_;
    std::vector<std::int32_t> comm_;
    std::vector<std::int32_t> pid_;
    std::vector<std::int32_t> tid_;
    std::vector<std::uint32_t> cpu_;
    std::vector<std::uint16_t> event_;
    std::vector<std::span<const std::byte>> raw_;
    std::vector<std::uint64_t> gaps_;
    std::vector<std::uint32_t> default_samples_;  // what a selection of nothing takes
    std::map<std::int32_t, std::int32_t> parents_;
    std::map<std::string, std::string> metadata_;
    std::map<std::string, std::pair<std::string, std::string>> symbol_files_;
};

// The vDSO that the kernel gave this process, an ELF file; empty where it gave none.
[[nodiscard]] std::span<const std::byte> own_vdso() noexcept;

// perf report's table, in order of the share with children: children [%], self [%], samples, comm, module, space (k or
// .), symbol, and the two shares' periods. `space` and the sums follow perf's rules (hist.c, --children).
[[nodiscard]] Table report_table(const Profile& profile, const SampleSelection& selection);

}  // namespace sampleblk::profile
