// SPDX-License-Identifier: MIT
// Data that can be told from other data: each block that is written says where it belongs, when it was written and what
// it must contain, so that a reader can name the first byte that is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "pattern/io.hpp"
#include "pattern/plan.hpp"
#include "sampleblk/workload/measured.hpp"

namespace sampleblk::workload {

// Bytes of a header with its digest.
[[nodiscard]] std::size_t verify_header_size(Verify kind) noexcept;

// Throws InputError where the job's blocks have no room for a header.
void check_verify_room(const JobOptions& options);

class Verifier {
  public:
    Verifier(const JobPlan& plan, Measured& measured, MismatchList& mismatches);

    // Fills a write's buffer and remembers it.
    void fill(Io& io);
    // The same without filling, for a dry run.
    void note(Io& io);
    // What lies there is no longer known: a write that failed, a trim.
    void forget(const Io& io);
    void forget_all() noexcept;
    // After the dry run of verify_only: all that its passes have left in the files is to be read back, in the order of
    // the offsets, whatever was taken in between.
    void recall();

    // Checks a buffer that was read, of which only the first `there` bytes are in the file, and records what is wrong.
    // False: verify_fatal ends the job.
    [[nodiscard]] bool check(const Io& io, std::uint64_t there);

    // Takes a remembered write to read back: where writes may overlap in the order of their offsets, else in that of
    // the writes, as fio does. False: there is none.
    [[nodiscard]] bool next(Io& io, std::vector<FileState>& files);
    // The same while writing goes on, as far as verify_backlog says that it is time. False: it is not, or there is
    // none.
    [[nodiscard]] bool next_of_backlog(Io& io, std::vector<FileState>& files);
    [[nodiscard]] bool backlog_is_due() const noexcept {
        return backlog_left_ == 0 && options_.verify_backlog != 0 && pending() >= options_.verify_backlog;
    }
    [[nodiscard]] std::size_t pending() const noexcept { return overlapping_ ? by_place_.size() : in_order_.size(); }

  private:
    struct Piece {
        std::uint32_t file;
        std::uint64_t offset;
        std::uint64_t length;
        std::uint64_t sequence;
    };
    using Place = std::pair<std::uint32_t, std::uint64_t>;  // file, offset

    static void erase_overlapped(std::map<Place, Piece>& pieces, const Io& io);
    [[nodiscard]] std::uint64_t interval_of(const Io& io) const noexcept;
    void fill_block(std::span<std::byte> block, std::uint64_t offset, std::uint64_t seed, std::uint64_t sequence) const;
    [[nodiscard]] bool check_block(std::span<const std::byte> block, std::uint64_t offset,
                                   std::optional<std::uint64_t> sequence, const Io& io);
    void record(std::span<const std::byte> expected, std::span<const std::byte> found, std::uint64_t offset,
                VerifyMismatch::Kind kind, const Io& io);
    // A block that the file ends before, or in.
    void record_missing(std::uint64_t offset, std::uint64_t length, std::uint64_t there, const Io& io);
    // Counts a mismatch; nullptr: more than are kept.
    [[nodiscard]] VerifyMismatch* add_mismatch(std::uint64_t block_offset, std::uint64_t block_length,
                                               VerifyMismatch::Kind kind, const Io& io);
    void dump(std::span<const std::byte> expected, std::span<const std::byte> found, std::uint64_t offset,
              const Io& io);

    const JobPlan& plan_;
    const JobOptions& options_;
    Measured& measured_;
    MismatchList& mismatches_;
    bool has_header_;
    bool overlapping_;
    bool remembers_;
    std::uint64_t sequence_ = 0;
    std::uint64_t backlog_left_ = 0;  // reads of verify_backlog that come next
    // What is to be read back: one of the two.
    std::deque<Piece> in_order_;
    std::map<Place, Piece> by_place_;
    std::map<Place, Piece> of_all_passes_;  // of verify_only
    std::vector<std::byte> expected_;
    std::vector<std::byte> unswapped_;
    std::uint32_t dumped_ = 0;
};

}  // namespace sampleblk::workload
