// SPDX-License-Identifier: MIT
// Data that can be told from other data: each block that is written says where it belongs, when it
// was written and what it must contain, so that a reader can name the first byte that is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "io.hpp"
#include "sampleblk/workload/files.hpp"
#include "sampleblk/workload/job_state.hpp"

namespace sampleblk::workload {

// Bytes of a header with its digest.
[[nodiscard]] std::size_t verify_header_size(Verify kind) noexcept;

class Verifier {
  public:
    Verifier(const JobPlan& plan, JobState& state);

    // Fills a write's buffer and remembers it.
    void fill(const Io& io);
    // The same without remembering, for a dry run.
    void note(const Io& io);

    // Checks a buffer that was read, and records what is wrong. False: verify_fatal ends the job.
    [[nodiscard]] bool check(const Io& io);

    // Remembered writes, in the order to check them. Later writes to the same place replace earlier
    // ones.
    void begin_checking();
    [[nodiscard]] bool next(Io& io, std::vector<FileState>& files);
    [[nodiscard]] std::size_t pending() const noexcept { return pieces_.size() - next_; }
    void forget() noexcept;

    [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }

  private:
    struct Piece {
        std::uint64_t offset;
        std::uint64_t sequence;
        std::uint32_t length;
        std::uint32_t file;
    };

    [[nodiscard]] std::uint64_t interval_of(const Io& io) const noexcept;
    void fill_block(std::span<std::byte> block, std::uint64_t offset, std::uint64_t seed, std::uint64_t sequence) const;
    [[nodiscard]] bool check_block(std::span<const std::byte> block, std::uint64_t offset,
                                   std::optional<std::uint64_t> sequence, const Io& io);
    void record(std::span<const std::byte> expected, std::span<const std::byte> found, std::uint64_t offset,
                const char* what, const Io& io);
    [[nodiscard]] bool replaced(const Piece& piece) const;

    const JobPlan& plan_;
    const JobOptions& options_;
    JobState& state_;
    bool has_header_;
    bool may_overlap_;
    bool remembers_;
    std::uint64_t sequence_ = 0;
    std::vector<Piece> pieces_;
    std::size_t next_ = 0;
    std::unordered_map<std::uint64_t, std::uint64_t> latest_;  // place -> sequence, where writes overlap
    std::vector<std::byte> expected_;
    std::vector<std::byte> unswapped_;
    std::uint32_t dumped_ = 0;
};

}  // namespace sampleblk::workload
