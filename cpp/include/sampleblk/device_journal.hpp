// SPDX-License-Identifier: MIT
// The driver's journal as a table, and as a log that dm-log-writes' tools replay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sampleblk/device.hpp"
#include "sampleblk/table.hpp"

namespace sampleblk {

// Makes each entry of a copy of a mapped journal's beginning completed or not: what completed while it was copied may
// be half in it, such as a flush that seems to have gone well as its SAMPLEBLK_JOURNAL_FAILED came behind the copy.
void copy_completions(std::span<std::byte> copy, const std::byte* mapping);

// A copy of a journal's entries and their data, taken at one moment.
class DeviceJournal {
  public:
    // Copies the journal of a device. Throws SystemError, ENOENT when it has none.
    DeviceJournal(const DeviceControl& control, std::uint32_t index);

    // The same from bytes, as they are in the mapping. Throws FormatError naming `source`.
    explicit DeviceJournal(std::vector<std::byte> bytes, const std::string& source = "journal");

    [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
    // Operations that found no room.
    [[nodiscard]] std::uint64_t overflow() const noexcept { return overflow_; }

    // The device's logical block; 0 where the journal is of a driver that did not say.
    [[nodiscard]] std::uint32_t block_bytes() const noexcept { return block_bytes_; }

    // A run of sectors that an entry changed; no data: zeros.
    struct Chunk {
        std::uint64_t sector;
        std::uint64_t sectors;
        std::span<const std::byte> data;
    };

    // The entry number `i`, in the order of execution; it lies in this object.
    [[nodiscard]] const sampleblk_journal_entry& entry(std::size_t i) const { return at(entries_.at(i)); }
    // What it left on the disk; nothing for a flush or a mark.
    [[nodiscard]] std::vector<Chunk> chunks(std::size_t i) const;
    // The text of a mark.
    [[nodiscard]] std::string text(std::size_t i) const;

    // Writes the bytes, as the mapping has them, to a file. Throws SystemError.
    void save(const std::string& path) const;

    // Columns sequence, type, fua, failed, atomic, epoch, sector, sectors, submit_ns, complete_ns (0: not completed),
    // submit_order, complete_order, volatile_id, mark; metadata overflow and epoch (the open one).
    [[nodiscard]] Table table() const;

    // What the device holds of [sector, sector + sectors) after `sequence`, from the redo data alone: the latest entry
    // that covers a sector wins, and what no entry covers is zero. `sectors` * 512 bytes.
    [[nodiscard]] std::vector<std::byte> replay(std::uint64_t sequence, std::uint64_t sector,
                                                std::uint64_t sectors) const;

    // Writes the journal in the on-disk format of dm-log-writes
    // (Documentation/admin-guide/device-mapper/log-writes.rst): a superblock, then for each entry a sector that
    // describes it and its data, in the order that it has: by completion; a write without FUA only when a flush that
    // was submitted after its completion completes, and before that. What no flush covers comes last, and of that what
    // had not completed. `sector_bytes` is the log's, a power of two from 512 to 65536, 0: the device's logical block;
    // entries must be multiples of it. Returns the entries written.
    [[nodiscard]] std::uint64_t export_log_writes(const std::string& path, std::uint32_t sector_bytes = 0) const;

  private:
    void parse(const std::string& source);
    [[nodiscard]] std::vector<std::size_t> log_writes_order() const;
    // The same order, but for what lies below another one: a replay, which dm-log-writes' own order would have leave
    // the lower one where it became durable later, ends with the upper one.
    [[nodiscard]] std::vector<std::size_t> with_lower_ones_first(const std::vector<std::size_t>& log) const;
    [[nodiscard]] const sampleblk_journal_entry& at(std::size_t offset) const;
    [[nodiscard]] std::span<const std::byte> redo(const sampleblk_journal_entry& entry) const;

    std::vector<std::byte> bytes_;
    std::vector<std::size_t> entries_;
    std::uint64_t overflow_ = 0;
    std::uint64_t epoch_ = 0;
    std::uint32_t block_bytes_ = 0;
};

}  // namespace sampleblk
