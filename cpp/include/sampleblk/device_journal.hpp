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

    // Columns sequence, type, fua, failed, epoch, sector, sectors, submit_ns, complete_ns (0: not completed), mark.
    [[nodiscard]] Table table() const;

    // What the device holds of [sector, sector + sectors) after `sequence`, from the redo data alone: the latest entry
    // that covers a sector wins, and what no entry covers is zero. `sectors` * 512 bytes.
    [[nodiscard]] std::vector<std::byte> replay(std::uint64_t sequence, std::uint64_t sector,
                                                std::uint64_t sectors) const;

    // Writes the journal in the on-disk format of dm-log-writes
    // (Documentation/admin-guide/device-mapper/log-writes.rst): a superblock, then for each entry a sector that
    // describes it and its data. `sector_bytes` is the log's, 512 or 4096; entries must be multiples of it. Returns the
    // entries written.
    [[nodiscard]] std::uint64_t export_log_writes(const std::string& path, std::uint32_t sector_bytes = 512) const;

  private:
    void parse(const std::string& source);
    [[nodiscard]] const sampleblk_journal_entry& at(std::size_t offset) const;
    [[nodiscard]] std::span<const std::byte> redo(const sampleblk_journal_entry& entry) const;

    std::vector<std::byte> bytes_;
    std::vector<std::size_t> entries_;
    std::uint64_t overflow_ = 0;
};

}  // namespace sampleblk
