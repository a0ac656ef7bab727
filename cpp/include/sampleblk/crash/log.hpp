// SPDX-License-Identifier: MIT
// What was written to a disk, in the terms of what a crash may leave of it (docs/explanation/crash-states.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sampleblk/table.hpp"

namespace sampleblk::crash {

// Sectors are of 512 bytes, as the block layer counts.
inline constexpr std::size_t sector_bytes = 512;

// A run of sectors that a write put on the disk; no data: zeros.
struct Piece {
    std::uint64_t sector = 0;
    std::uint64_t sectors = 0;
    const std::byte* data = nullptr;
};

// One write, discard or write-zeroes.
struct Write {
    std::uint64_t sequence = 0;  // the log's own number of it
    std::uint64_t submit = 0;    // numbers of one count of all submissions and completions
    std::uint64_t complete = 0;  // 0: never
    // From when on no crash may lose it: the completion of the first successful flush that was submitted after its own
    // completion, or that completion itself for FUA. `never` where there is none.
    std::uint64_t durable_at = 0;
    bool fua = false;
    bool atomic = false;  // there whole or not at all
    bool failed = false;  // reported as failed, and yet something may have changed
    bool zeroes = false;  // a discard or write-zeroes
    std::vector<Piece> pieces;

    [[nodiscard]] std::uint64_t sectors() const noexcept {
        std::uint64_t found = 0;
        for (const Piece& piece : pieces) {
            found += piece.sectors;
        }
        return found;
    }
};

struct Mark {
    std::uint64_t sequence = 0;
    std::uint64_t order = 0;
    std::string text;
};

// A flush that succeeded, with the numbers of a Write.
struct Flush {
    std::uint64_t submit = 0;
    std::uint64_t complete = 0;
};

// How much of the promises is believed; what is not shows what a disk that breaks them would leave.
struct Promises {
    bool flush = true;
    bool fua = true;
};

// A log of writes, in the order in which they were executed. Immutable: any thread may read.
class Log {
  public:
    static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

    // Reads a file: a log of dm-log-writes (Documentation/admin-guide/device-mapper/log-writes.rst), or the bytes of a
    // journal of our driver, as its mapping has them. A log of dm-log-writes has completions only: each write counts as
    // submitted just before it was logged. Throws FormatError where the file is not sound, InputError for a journal
    // that overflowed or has a power cut in it, SystemError.
    [[nodiscard]] static Log read(const std::string& path, Promises promises = {});

    // "dm-log-writes" or "journal".
    [[nodiscard]] const std::string& format() const noexcept { return format_; }
    [[nodiscard]] const std::vector<Write>& writes() const noexcept { return writes_; }
    // In the order in which they were set.
    [[nodiscard]] const std::vector<Mark>& marks() const noexcept { return marks_; }
    // By submission; also where flushes are not believed.
    [[nodiscard]] const std::vector<Flush>& flushes() const noexcept { return flushes_; }
    // One past the last sector that is written.
    [[nodiscard]] std::uint64_t end_sector() const noexcept { return end_sector_; }
    // The disk's logical block, which it writes whole or not at all; 0 where the log does not know it: a journal of an
    // older driver.
    [[nodiscard]] std::uint32_t block_bytes() const noexcept { return block_bytes_; }
    // The bytes of the file that the log takes, from its begin: a device that was written to has more.
    [[nodiscard]] std::uint64_t file_bytes() const noexcept { return file_bytes_; }
    // Indices into writes(), by submission.
    [[nodiscard]] const std::vector<std::uint32_t>& by_submission() const noexcept { return by_submission_; }

    // Whether a crash after so many submissions, from 1, may lose a write: it is one of them, and not durable by then.
    [[nodiscard]] bool may_lose(std::uint32_t write, std::size_t submitted) const;

    // The last moment, in the log's count, at which all writes but so many of the first submissions may still be lost.
    [[nodiscard]] std::uint64_t rest_lost_until(std::size_t submitted) const { return rest_lost_until_[submitted]; }

    // Columns sequence, type, sector, sectors, fua, atomic, failed, submit_order, complete_order, durable_order (0: not
    // within the log); a row for each write.
    [[nodiscard]] Table table() const;

  private:
    friend class LogReader;

    Log() = default;
    void finish(Promises promises);

    std::string format_;
    std::shared_ptr<const void> owner_;  // of the data that the pieces point to
    std::vector<Write> writes_;
    std::vector<Mark> marks_;
    std::vector<Flush> flushes_;
    std::vector<std::uint32_t> by_submission_;
    std::vector<std::uint32_t> place_;  // of each write in it
    std::vector<std::uint64_t> rest_lost_until_;
    std::uint64_t end_sector_ = 0;
    std::uint64_t file_bytes_ = 0;
    std::uint32_t block_bytes_ = 0;
};

}  // namespace sampleblk::crash
