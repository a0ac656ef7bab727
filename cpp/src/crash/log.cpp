// SPDX-License-Identifier: MIT
#include "sampleblk/crash/log.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <ranges>
#include <string_view>
#include <utility>

#include "sampleblk/device_journal.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/log_writes.hpp"

namespace sampleblk::crash {

namespace {

constexpr std::uint64_t flags_known =
    log_writes::flush | log_writes::fua | log_writes::discard | log_writes::mark | log_writes::metadata;

// No disk has more; what is beyond would wrap.
constexpr std::uint64_t last_sector = (std::uint64_t{1} << 54) - 1;

constexpr std::size_t entries_between_checks = 4096;
constexpr std::size_t bytes_at_once = std::size_t{1} << 20U;

}  // namespace

class LogReader {
  public:
    LogReader(std::string path, Promises promises) : path_(std::move(path)), promises_(promises) {}

    Log read() {
        auto owned = std::make_shared<std::vector<std::byte>>(read_bytes());
        std::uint64_t magic = 0;
        std::memcpy(&magic, owned->data(), std::min(sizeof(magic), owned->size()));
        if (magic == SAMPLEBLK_JOURNAL_MAGIC) {
            read_journal(std::move(*owned));
        } else if (magic == log_writes::magic) {
            read_log_writes(*owned);
            log_.owner_ = std::move(owned);
        } else {
            throw FormatError(path_, 0, "the magic number of a dm-log-writes log or of a journal");
        }
        log_.finish(promises_);
        return std::move(log_);
    }

  private:
    // The file; of a log of dm-log-writes what its entries take, as its device may have more than there is memory.
    [[nodiscard]] std::vector<std::byte> read_bytes() const {
        const Fd fd = open_file(path_, O_RDONLY);
        std::vector<std::byte> bytes;
        // Reads so many, and whether there are.
        const auto has = [&](std::uint64_t count) {
            for (std::size_t got = bytes_at_once; bytes.size() < count && got == bytes_at_once;) {
                check_interrupt();
                const std::size_t before = bytes.size();
                bytes.resize(before + bytes_at_once);
                got = read_full(fd.get(), std::span(bytes).subspan(before), path_);
                bytes.resize(before + got);
            }
            return bytes.size() >= count;
        };
        log_writes::Super super{};
        if (has(sizeof(super))) {
            std::memcpy(&super, bytes.data(), sizeof(super));
        }
        const std::uint64_t unit = super.sectorsize;
        std::uint64_t end = unit;
        if (super.magic != log_writes::magic || !log_writes::is_sector(unit)) {
            super.nr_entries = 0;
            end = std::numeric_limits<std::uint64_t>::max();
        }
        for (std::uint64_t i = 0; i < super.nr_entries && has(end + unit); ++i) {
            log_writes::Entry entry{};
            std::memcpy(&entry, bytes.data() + end, sizeof(entry));
            const bool bare = (entry.flags & (log_writes::mark | log_writes::discard)) != 0;
            end += unit + (bare ? 0 : std::min(entry.nr_sectors, last_sector / unit) * unit);
        }
        (void)has(end);
        return bytes;
    }

    void read_journal(std::vector<std::byte> bytes) {
        log_.format_ = "journal";
        log_.file_bytes_ = bytes.size();
        const auto journal = std::make_shared<const DeviceJournal>(std::move(bytes), path_);
        log_.block_bytes_ = journal->block_bytes();
        if (journal->overflow() != 0) {
            throw InputError("the journal has no room for " + std::to_string(journal->overflow()) + " operations",
                             path_, 0, "a whole one: record with a larger one");
        }
        for (std::size_t i = 0; i < journal->size(); ++i) {
            const sampleblk_journal_entry& entry = journal->entry(i);
            switch (entry.type) {
                case SAMPLEBLK_OP_FLUSH:
                    if ((entry.flags & SAMPLEBLK_JOURNAL_FAILED) == 0 && entry.complete_order != 0) {
                        log_.flushes_.push_back({entry.submit_order, entry.complete_order});
                    }
                    break;
                case SAMPLEBLK_JOURNAL_MARK:
                    log_.marks_.push_back({entry.sequence, entry.submit_order, journal->text(i)});
                    break;
                case SAMPLEBLK_JOURNAL_POWER_CUT:
                    throw InputError("the journal has a power cut, entry " + std::to_string(entry.sequence), path_, 0,
                                     "one that was recorded between two cuts");
                case SAMPLEBLK_OP_WRITE:
                case SAMPLEBLK_OP_DISCARD:
                case SAMPLEBLK_OP_WRITE_ZEROES: {
                    Write write{.sequence = entry.sequence,
                                .submit = entry.submit_order,
                                .complete = entry.complete_order,
                                .durable_at = Log::never,
                                .fua = (entry.flags & SAMPLEBLK_JOURNAL_FUA) != 0,
                                .atomic = (entry.flags & SAMPLEBLK_JOURNAL_ATOMIC) != 0,
                                .failed = (entry.flags & SAMPLEBLK_JOURNAL_FAILED) != 0,
                                .zeroes = entry.type != SAMPLEBLK_OP_WRITE,
                                .pieces = {}};
                    for (const DeviceJournal::Chunk& chunk : journal->chunks(i)) {
                        add_piece(write, chunk.sector, chunk.sectors, chunk.data.empty() ? nullptr : chunk.data.data(),
                                  0);
                    }
                    log_.writes_.push_back(std::move(write));
                    break;
                }
                default:
                    throw FormatError(path_, 0, "an entry of a known type, not " + std::to_string(entry.type));
            }
            if (i % entries_between_checks == 0) {
                check_interrupt();
            }
        }
        log_.owner_ = journal;
    }

    void read_log_writes(std::span<const std::byte> bytes) {
        log_.format_ = "dm-log-writes";
        log_writes::Super super{};
        if (bytes.size() < sizeof(super)) {
            throw FormatError(path_, bytes.size(), "a superblock of dm-log-writes");
        }
        std::memcpy(&super, bytes.data(), sizeof(super));
        if (super.version != log_writes::version) {
            throw FormatError(path_, offsetof(log_writes::Super, version), "version 1 of dm-log-writes");
        }
        const std::uint64_t unit = super.sectorsize;
        if (!log_writes::is_sector(unit)) {
            throw FormatError(path_, offsetof(log_writes::Super, sectorsize), "a power of two from 512 to 65536");
        }
        log_.block_bytes_ = super.sectorsize;
        std::uint64_t offset = unit;
        // Four numbers for each entry: submission and completion of its flush, then of its write.
        for (std::uint64_t i = 0; i < super.nr_entries; ++i) {
            log_writes::Entry entry{};
            if (offset > bytes.size() || bytes.size() - offset < unit) {
                throw FormatError(path_, offset,
                                  "entry " + std::to_string(i) + " of " + std::to_string(super.nr_entries));
            }
            std::memcpy(&entry, bytes.data() + offset, sizeof(entry));
            const std::uint64_t order = 4 * i + 1;
            if ((entry.flags & ~flags_known) != 0) {
                throw FormatError(path_, offset, "flags of dm-log-writes");
            }
            if ((entry.flags & log_writes::mark) != 0) {
                if (entry.data_len > unit - sizeof(entry)) {
                    throw FormatError(path_, offset, "a mark that fits into its sector");
                }
                const auto* text = reinterpret_cast<const char*>(bytes.data() + offset + sizeof(entry));
                log_.marks_.push_back({i + 1, order, std::string(text, ::strnlen(text, entry.data_len))});
                offset += unit;
                continue;
            }
            if ((entry.flags & log_writes::flush) != 0) {
                log_.flushes_.push_back({order, order + 1});
            }
            offset += unit;
            if (entry.nr_sectors != 0) {
                offset += read_write(bytes, offset, entry, unit, order + 2, i + 1);
            }
            if (i % entries_between_checks == 0) {
                check_interrupt();
            }
        }
        log_.file_bytes_ = offset;
    }

    // Returns the bytes of data that the log has.
    std::uint64_t read_write(std::span<const std::byte> bytes, std::uint64_t offset, const log_writes::Entry& entry,
                             std::uint64_t unit, std::uint64_t order, std::uint64_t sequence) {
        const std::uint64_t per_unit = unit / sector_bytes;
        if (entry.sector > last_sector / per_unit || entry.nr_sectors > last_sector / per_unit) {
            throw FormatError(path_, offset - unit, "sectors of a disk");
        }
        const bool zeroes = (entry.flags & log_writes::discard) != 0;
        Write write{.sequence = sequence,
                    .submit = order,
                    .complete = order + 1,
                    .durable_at = Log::never,
                    .fua = (entry.flags & log_writes::fua) != 0,
                    .zeroes = zeroes,
                    .pieces = {}};
        const std::uint64_t length = zeroes ? 0 : entry.nr_sectors * unit;
        if (length > bytes.size() - offset) {
            throw FormatError(path_, offset, std::to_string(length) + " bytes of data");
        }
        add_piece(write, entry.sector * per_unit, entry.nr_sectors * per_unit, zeroes ? nullptr : bytes.data() + offset,
                  offset);
        log_.writes_.push_back(std::move(write));
        return length;
    }

    void add_piece(Write& write, std::uint64_t sector, std::uint64_t sectors, const std::byte* data,
                   std::uint64_t offset) {
        if (sector > last_sector || sectors > last_sector - sector) {
            throw FormatError(path_, offset, "sectors of a disk");
        }
        log_.end_sector_ = std::max(log_.end_sector_, sector + sectors);
        if (sectors != 0) {
            write.pieces.push_back({sector, sectors, data});
        }
    }

    std::string path_;
    Promises promises_;
    Log log_;
};

Log Log::read(const std::string& path, Promises promises) {
    return LogReader(path, promises).read();
}

void Log::finish(Promises promises) {
    std::ranges::sort(flushes_, {}, &Flush::submit);
    std::vector<Flush> flushes = flushes_;
    // From the last to the first: when the first of the flushes from here on is complete.
    std::uint64_t earliest = never;
    for (Flush& flush : std::views::reverse(flushes)) {
        earliest = std::min(earliest, flush.complete);
        flush.complete = earliest;
    }
    for (Write& write : writes_) {
        write.durable_at = never;
        if (write.complete == 0 || write.failed) {
            continue;
        }
        if (write.fua && promises.fua) {
            write.durable_at = write.complete;
        }
        if (promises.flush) {
            const auto covers = std::ranges::upper_bound(flushes, write.complete, {}, &Flush::submit);
            if (covers != flushes.end()) {
                write.durable_at = std::min(write.durable_at, covers->complete);
            }
        }
    }
    by_submission_.resize(writes_.size());
    std::iota(by_submission_.begin(), by_submission_.end(), 0U);
    std::ranges::sort(by_submission_, {}, [&](std::uint32_t i) { return std::pair(writes_[i].submit, i); });
    place_.resize(writes_.size());
    for (std::uint32_t place = 0; place < by_submission_.size(); ++place) {
        place_[by_submission_[place]] = place;
    }
    std::ranges::stable_sort(marks_, {}, &Mark::order);
    rest_lost_until_.assign(writes_.size() + 1, never);
    for (std::size_t place = writes_.size(); place-- > 0;) {
        rest_lost_until_[place] = std::min(rest_lost_until_[place + 1], writes_[by_submission_[place]].durable_at);
    }
}

bool Log::may_lose(std::uint32_t write, std::size_t submitted) const {
    return write < writes_.size() && submitted <= writes_.size() && place_[write] < submitted &&
           writes_[write].durable_at >= writes_[by_submission_[submitted - 1]].submit;
}

Table Log::table() const {
    const std::size_t rows = writes_.size();
    std::vector<std::uint64_t> sequence(rows), sector(rows), sectors(rows), submit(rows), complete(rows), durable(rows);
    std::vector<std::uint8_t> fua(rows), atomic(rows), failed(rows);
    std::vector<std::int32_t> type(rows);
    auto types = std::make_shared<StringPool>();
    for (std::size_t i = 0; i < rows; ++i) {
        const Write& write = writes_[i];
        sequence[i] = write.sequence;
        type[i] = types->intern(write.zeroes ? "zeroes" : "write");
        sector[i] = write.pieces.empty() ? 0 : write.pieces.front().sector;
        sectors[i] = write.sectors();
        fua[i] = write.fua ? 1 : 0;
        atomic[i] = write.atomic ? 1 : 0;
        failed[i] = write.failed ? 1 : 0;
        submit[i] = write.submit;
        complete[i] = write.complete;
        durable[i] = write.durable_at == never ? 0 : write.durable_at;
    }
    std::vector<Column> columns;
    columns.emplace_back("sequence", std::move(sequence));
    columns.emplace_back("type", std::move(type), std::move(types));
    columns.emplace_back("sector", std::move(sector));
    columns.emplace_back("sectors", std::move(sectors));
    columns.emplace_back("fua", std::move(fua));
    columns.emplace_back("atomic", std::move(atomic));
    columns.emplace_back("failed", std::move(failed));
    columns.emplace_back("submit_order", std::move(submit));
    columns.emplace_back("complete_order", std::move(complete));
    columns.emplace_back("durable_order", std::move(durable));
    return Table(std::move(columns), {{"format", format_}, {"flushes", std::to_string(flushes_.size())}});
}

}  // namespace sampleblk::crash
