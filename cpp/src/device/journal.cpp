// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "sampleblk/device_journal.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/log_writes.hpp"
#include "sampleblk/mapping.hpp"

namespace sampleblk {

namespace {

constexpr std::uint64_t sector_bytes_fixed = 512;

std::vector<std::byte> copy_mapping(const DeviceControl& control, std::uint32_t index) {
    const sampleblk_journal about = control.journal(index);
    if (about.bytes == 0) {
        throw SystemError("journal", device_path(index), ENOENT, "it has none: journal_start()");
    }
    // Whole entries up to the head; the rest is not touched.
    const Mapping memory(about.bytes, PROT_READ, MAP_SHARED, control.fd(),
                         static_cast<std::int64_t>(SAMPLEBLK_JOURNAL_OFFSET(index)), SAMPLEBLK_CONTROL_PATH);
    std::vector<std::byte> copy(memory.data(), memory.data() + std::min<std::uint64_t>(about.used_bytes, about.bytes));
    // More may have come meanwhile: the header is that of what was copied.
    sampleblk_journal_header header{};
    if (copy.size() >= sizeof(header)) {
        std::memcpy(&header, copy.data(), sizeof(header));
        header.head = copy.size();
        header.entries = about.entries;
        header.overflow = about.overflow;
        header.next_sequence = about.next_sequence;
        std::memcpy(copy.data(), &header, sizeof(header));
    }
    copy_completions(copy, memory.data());
    return copy;
}

const char* type_name(std::uint32_t type) {
    switch (type) {
        case SAMPLEBLK_OP_WRITE:
            return "write";
        case SAMPLEBLK_OP_DISCARD:
            return "discard";
        case SAMPLEBLK_OP_WRITE_ZEROES:
            return "write_zeroes";
        case SAMPLEBLK_OP_FLUSH:
            return "flush";
        case SAMPLEBLK_JOURNAL_MARK:
            return "mark";
        case SAMPLEBLK_JOURNAL_POWER_CUT:
            return "power_cut";
        default:
            return "unknown";
    }
}

// Calls `each(sector, sectors, data)` for the chunks; `data` is empty for zeroes.
template <typename Each>
void for_each_chunk(std::span<const std::byte> chunks, Each each) {
    while (chunks.size() >= sizeof(sampleblk_chunk)) {
        sampleblk_chunk chunk{};
        std::memcpy(&chunk, chunks.data(), sizeof(chunk));
        chunks = chunks.subspan(sizeof(chunk));
        std::span<const std::byte> data;
        if (chunk.kind == SAMPLEBLK_CHUNK_DATA) {
            data = chunks.first(chunk.sectors * sector_bytes_fixed);
            chunks = chunks.subspan(data.size());
        }
        each(chunk.sector, chunk.sectors, data);
    }
}

// Whether the chunks fill their room, describe no more than there is, and are the sectors of their entry.
bool chunks_are_sound(const sampleblk_journal_entry& entry, std::span<const std::byte> chunks) {
    std::uint64_t next = entry.sector;
    const bool none = chunks.empty();
    while (!chunks.empty()) {
        sampleblk_chunk chunk{};
        if (chunks.size() < sizeof(chunk)) {
            return false;
        }
        std::memcpy(&chunk, chunks.data(), sizeof(chunk));
        chunks = chunks.subspan(sizeof(chunk));
        if (chunk.kind == SAMPLEBLK_CHUNK_DATA) {
            if (chunk.sectors > chunks.size() / sector_bytes_fixed) {
                return false;
            }
            chunks = chunks.subspan(chunk.sectors * sector_bytes_fixed);
        } else if (chunk.kind != SAMPLEBLK_CHUNK_ZERO) {
            return false;
        }
        if (entry.type != SAMPLEBLK_JOURNAL_POWER_CUT && chunk.sector != next) {
            return false;
        }
        next += chunk.sectors;
    }
    return none || entry.type == SAMPLEBLK_JOURNAL_POWER_CUT || next - entry.sector == entry.sectors;
}

}  // namespace

void copy_completions(std::span<std::byte> copy, const std::byte* mapping) {
    sampleblk_journal_header header{};
    if (copy.size() < sizeof(header)) {
        return;
    }
    std::memcpy(&header, copy.data(), sizeof(header));
    // What is no journal is for the parser to tell.
    for (std::uint64_t offset = header.first;
         offset <= copy.size() && copy.size() - offset >= sizeof(sampleblk_journal_entry);) {
        const auto* live = reinterpret_cast<const sampleblk_journal_entry*>(mapping + offset);
        sampleblk_journal_entry entry{};
        std::memcpy(&entry, copy.data() + offset, sizeof(entry));
        // Written after the rest, which stays as it is then.
        entry.complete_ns = __atomic_load_n(&live->complete_ns, __ATOMIC_ACQUIRE);
        if (entry.complete_ns != 0) {
            entry.flags = live->flags;
            entry.epoch = live->epoch;
            entry.complete_order = live->complete_order;
        } else {
            entry.flags &= ~SAMPLEBLK_JOURNAL_FAILED;
            entry.complete_order = 0;
        }
        std::memcpy(copy.data() + offset, &entry, sizeof(entry));
        if (entry.bytes < sizeof(entry)) {
            return;
        }
        offset += entry.bytes;
    }
}

DeviceJournal::DeviceJournal(const DeviceControl& control, std::uint32_t index) : bytes_(copy_mapping(control, index)) {
    parse(device_path(index));
}

DeviceJournal::DeviceJournal(std::vector<std::byte> bytes, const std::string& source) : bytes_(std::move(bytes)) {
    parse(source);
}

const sampleblk_journal_entry& DeviceJournal::at(std::size_t offset) const {
    // Entries lie at multiples of 8 and the vector's memory is aligned for any type.
    return *reinterpret_cast<const sampleblk_journal_entry*>(bytes_.data() + offset);
}

std::span<const std::byte> DeviceJournal::redo(const sampleblk_journal_entry& entry) const {
    const auto* begin = reinterpret_cast<const std::byte*>(&entry + 1) + entry.undo_bytes;
    return {begin, entry.redo_bytes};
}

void DeviceJournal::parse(const std::string& source) {
    sampleblk_journal_header header{};
    // An older header ends before its last field, and where its entries begin.
    if (bytes_.size() < offsetof(sampleblk_journal_header, logical_block_bytes)) {
        throw FormatError(source, bytes_.size(), "a journal header");
    }
    std::memcpy(&header, bytes_.data(), std::min(bytes_.size(), sizeof(header)));
    if (header.magic != SAMPLEBLK_JOURNAL_MAGIC) {
        throw FormatError(source, 0, "the magic number of a journal");
    }
    overflow_ = header.overflow;
    epoch_ = header.epoch;
    if (header.first >= sizeof(header)) {
        const std::uint64_t block = header.logical_block_bytes;
        if (block != 0 && !log_writes::is_sector(block)) {
            throw FormatError(source, offsetof(sampleblk_journal_header, logical_block_bytes),
                              "a logical block of a power of two from 512 to 65536 bytes, or 0");
        }
        block_bytes_ = static_cast<std::uint32_t>(block);
    }
    constexpr std::size_t alignment = 8;
    std::uint64_t offset = header.first;
    const std::uint64_t end = header.head;
    if (end > bytes_.size()) {
        throw FormatError(source, bytes_.size(), "a journal of " + std::to_string(end) + " bytes: it is truncated");
    }
    std::uint64_t previous_bytes = 0;
    while (offset < end) {
        if (offset % alignment != 0 || end - offset < sizeof(sampleblk_journal_entry)) {
            throw FormatError(source, offset, "a journal entry");
        }
        const sampleblk_journal_entry& entry = at(offset);
        const std::uint64_t data = std::uint64_t{entry.undo_bytes} + entry.redo_bytes;
        if (entry.bytes % alignment != 0 || entry.bytes > end - offset || entry.bytes < sizeof(entry) + data) {
            throw FormatError(source, offset, "an entry as long as it says");
        }
        if (entry.sequence != entries_.size() + 1 || entry.previous_bytes != previous_bytes) {
            throw FormatError(source, offset, "entry " + std::to_string(entries_.size() + 1) + " after the one before");
        }
        previous_bytes = entry.bytes;
        if (entry.complete_order != 0 && entry.complete_order < entry.submit_order) {
            throw FormatError(source, offset, "an entry that completed after it was submitted");
        }
        if (entry.type == SAMPLEBLK_JOURNAL_MARK) {
            if (entry.redo_bytes > SAMPLEBLK_MARK_BYTES) {
                throw FormatError(source, offset,
                                  "a mark of at most " + std::to_string(SAMPLEBLK_MARK_BYTES) + " bytes");
            }
        } else if (!chunks_are_sound(entry, redo(entry))) {
            throw FormatError(source, offset, "redo data in whole chunks, of the entry's sectors");
        }
        entries_.push_back(offset);
        offset += entry.bytes;
        if (entries_.size() % 4096 == 0) {
            check_interrupt();
        }
    }
    if (entries_.size() != header.entries) {
        throw FormatError(source, offset, std::to_string(header.entries) + " entries");
    }
}

Table DeviceJournal::table() const {
    const std::size_t rows = entries_.size();
    std::vector<std::uint64_t> sequence(rows), epoch(rows), sector(rows), sectors(rows), submit(rows), complete(rows);
    std::vector<std::uint64_t> submit_order(rows), complete_order(rows), volatile_id(rows);
    std::vector<std::uint8_t> fua(rows), failed(rows), atomic(rows);
    std::vector<std::int32_t> type(rows), mark(rows);
    auto types = std::make_shared<StringPool>();
    auto marks = std::make_shared<StringPool>();
    for (std::size_t i = 0; i < rows; ++i) {
        const sampleblk_journal_entry& entry = at(entries_[i]);
        sequence[i] = entry.sequence;
        type[i] = types->intern(type_name(entry.type));
        fua[i] = (entry.flags & SAMPLEBLK_JOURNAL_FUA) != 0 ? 1 : 0;
        failed[i] = (entry.flags & SAMPLEBLK_JOURNAL_FAILED) != 0 ? 1 : 0;
        atomic[i] = (entry.flags & SAMPLEBLK_JOURNAL_ATOMIC) != 0 ? 1 : 0;
        epoch[i] = entry.epoch;
        sector[i] = entry.sector;
        sectors[i] = entry.sectors;
        submit[i] = entry.submit_ns;
        complete[i] = entry.complete_ns;
        submit_order[i] = entry.submit_order;
        complete_order[i] = entry.complete_order;
        volatile_id[i] = entry.volatile_id;
        mark[i] = -1;
        if (entry.type == SAMPLEBLK_JOURNAL_MARK) {
            const std::span<const std::byte> text = redo(entry);
            mark[i] = marks->intern({reinterpret_cast<const char*>(text.data()), text.size()});
        }
    }
    std::vector<Column> columns;
    columns.emplace_back("sequence", std::move(sequence));
    columns.emplace_back("type", std::move(type), std::move(types));
    columns.emplace_back("fua", std::move(fua));
    columns.emplace_back("failed", std::move(failed));
    columns.emplace_back("atomic", std::move(atomic));
    columns.emplace_back("epoch", std::move(epoch));
    columns.emplace_back("sector", std::move(sector));
    columns.emplace_back("sectors", std::move(sectors));
    columns.emplace_back("submit_ns", std::move(submit), "ns");
    columns.emplace_back("complete_ns", std::move(complete), "ns");
    columns.emplace_back("submit_order", std::move(submit_order));
    columns.emplace_back("complete_order", std::move(complete_order));
    columns.emplace_back("volatile_id", std::move(volatile_id));
    columns.emplace_back("mark", std::move(mark), std::move(marks));
    return Table(std::move(columns), {{"overflow", std::to_string(overflow_)}, {"epoch", std::to_string(epoch_)}});
}

std::vector<DeviceJournal::Chunk> DeviceJournal::chunks(std::size_t i) const {
    std::vector<Chunk> found;
    if (entry(i).type != SAMPLEBLK_JOURNAL_MARK) {
        for_each_chunk(redo(entry(i)), [&](std::uint64_t first, std::uint64_t count, std::span<const std::byte> data) {
            found.push_back({first, count, data});
        });
    }
    return found;
}

std::string DeviceJournal::text(std::size_t i) const {
    const std::span<const std::byte> bytes = redo(entry(i));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void DeviceJournal::save(const std::string& path) const {
    WholeFile file(path);
    write_full(file.get(), std::span<const std::byte>(bytes_), path);
    file.finish();
}

std::vector<std::byte> DeviceJournal::replay(std::uint64_t sequence, std::uint64_t sector,
                                             std::uint64_t sectors) const {
    std::vector<std::byte> out(sectors * sector_bytes_fixed);
    for (const std::size_t offset : entries_) {
        const sampleblk_journal_entry& entry = at(offset);
        if (entry.sequence > sequence) {
            break;
        }
        if (entry.type == SAMPLEBLK_JOURNAL_MARK) {
            continue;  // its redo data are text, not chunks
        }
        for_each_chunk(redo(entry), [&](std::uint64_t first, std::uint64_t count, std::span<const std::byte> data) {
            const std::uint64_t low = std::max(first, sector);
            const std::uint64_t high = std::min(first + count, sector + sectors);
            if (low >= high) {
                return;
            }
            std::byte* to = out.data() + (low - sector) * sector_bytes_fixed;
            const std::size_t length = (high - low) * sector_bytes_fixed;
            if (data.empty()) {
                std::memset(to, 0, length);
            } else {
                std::memcpy(to, data.data() + (low - first) * sector_bytes_fixed, length);
            }
        });
    }
    return out;
}

namespace {

class LogWriter {
  public:
    LogWriter(const std::string& path, std::uint32_t sector_bytes) : sector_(sector_bytes), file_(path) {
        write_full(file_.get(), std::span<const std::byte>(sector_), file_.path());  // the superblock's place
    }

    void entry(std::uint64_t sector, std::uint64_t sectors, std::uint64_t flags, std::span<const std::byte> data,
               bool inside) {
        const log_writes::Entry entry{sector * sector_bytes_fixed / sector_.size(),
                                      sectors * sector_bytes_fixed / sector_.size(), flags, inside ? data.size() : 0};
        std::ranges::fill(sector_, std::byte{0});
        std::memcpy(sector_.data(), &entry, sizeof(entry));
        if (inside) {
            std::memcpy(sector_.data() + sizeof(entry), data.data(), data.size());
        }
        write_full(file_.get(), std::span<const std::byte>(sector_), file_.path());
        if (!inside && !data.empty()) {
            write_full(file_.get(), data, file_.path());
        }
        ++entries_;
    }

    std::uint64_t finish() {
        const log_writes::Super super{log_writes::magic, log_writes::version, entries_,
                                      static_cast<std::uint32_t>(sector_.size())};
        std::ranges::fill(sector_, std::byte{0});
        std::memcpy(sector_.data(), &super, sizeof(super));
        if (::lseek(file_.get(), 0, SEEK_SET) < 0) {
            throw_errno("lseek", file_.path());
        }
        write_full(file_.get(), std::span<const std::byte>(sector_), file_.path());
        file_.finish();
        return entries_;
    }

  private:
    std::vector<std::byte> sector_;
    WholeFile file_;
    std::uint64_t entries_ = 0;
};

}  // namespace

std::vector<std::size_t> DeviceJournal::log_writes_order() const {
    // Submissions and completions in the order in which they were; see sampleblk_journal_entry.
    struct Event {
        std::uint64_t order;
        bool completion;
        std::size_t offset;
    };
    std::vector<Event> events;
    std::vector<std::size_t> on_their_way;
    for (const std::size_t offset : entries_) {
        const sampleblk_journal_entry& entry = at(offset);
        if (entry.type == SAMPLEBLK_OP_FLUSH) {
            events.push_back({entry.submit_order, false, offset});
        }
        if (entry.complete_order != 0) {
            events.push_back({entry.complete_order, true, offset});
        } else {
            on_their_way.push_back(offset);
        }
    }
    std::ranges::sort(events, {}, [](const Event& event) { return std::pair(event.order, event.offset); });

    std::vector<std::size_t> log;
    std::vector<std::size_t> unflushed;
    std::map<std::size_t, std::vector<std::size_t>> covered;  // by each flush that is on its way
    const auto move_to = [](std::vector<std::size_t>& from, std::vector<std::size_t>& to) {
        to.insert(to.end(), from.begin(), from.end());
        from.clear();
    };
    for (const Event& event : events) {
        const sampleblk_journal_entry& entry = at(event.offset);
        if (!event.completion) {
            move_to(unflushed, covered[event.offset]);
        } else if (entry.type == SAMPLEBLK_OP_FLUSH) {
            std::vector<std::size_t>& flushed = covered[event.offset];
            if ((entry.flags & SAMPLEBLK_JOURNAL_FAILED) == 0) {
                move_to(flushed, log);
                log.push_back(event.offset);
            } else {
                move_to(unflushed, flushed);
                unflushed.swap(flushed);
            }
        } else if (entry.type == SAMPLEBLK_JOURNAL_POWER_CUT) {
            // It says what was there before it and is after it, of all that it touched.
            for (auto& [flush, writes] : covered) {
                move_to(writes, log);
            }
            move_to(unflushed, log);
            log.push_back(event.offset);
        } else if (entry.type == SAMPLEBLK_JOURNAL_MARK || (entry.flags & SAMPLEBLK_JOURNAL_FUA) != 0) {
            log.push_back(event.offset);
        } else {
            unflushed.push_back(event.offset);
        }
        if (event.order % 4096 == 0) {
            check_interrupt();
        }
    }
    // dm-log-writes writes out what is left when its device goes.
    for (auto& [flush, writes] : covered) {
        move_to(writes, log);
    }
    move_to(unflushed, log);
    std::ranges::copy_if(on_their_way, std::back_inserter(log),
                         [&](std::size_t offset) { return at(offset).type != SAMPLEBLK_OP_FLUSH; });
    return with_lower_ones_first(log);
}

std::vector<std::size_t> DeviceJournal::with_lower_ones_first(const std::vector<std::size_t>& log) const {
    const auto lies_over = [&](std::size_t upper, std::size_t lower) {
        const sampleblk_journal_entry& over = at(upper);
        const sampleblk_journal_entry& under = at(lower);
        return over.type == SAMPLEBLK_JOURNAL_POWER_CUT ||
               (over.sector < under.sector + under.sectors && under.sector < over.sector + over.sectors);
    };
    const auto changes = [&](std::size_t offset) {
        return at(offset).type != SAMPLEBLK_JOURNAL_MARK && at(offset).type != SAMPLEBLK_OP_FLUSH;
    };
    std::set<std::size_t> waiting;
    std::ranges::copy_if(log, std::inserter(waiting, waiting.end()), changes);
    std::vector<std::size_t> found;
    found.reserve(log.size());
    std::size_t taken = 0;
    for (const std::size_t offset : log) {
        if (!changes(offset)) {
            found.push_back(offset);
            continue;
        }
        const auto place = waiting.find(offset);
        if (place == waiting.end()) {
            continue;  // it came before one that lies over it
        }
        std::vector<std::size_t> together{offset};
        for (auto before = waiting.erase(place); before != waiting.begin();) {
            --before;
            if (std::ranges::any_of(together, [&](std::size_t upper) { return lies_over(upper, *before); })) {
                together.push_back(*before);
                before = waiting.erase(before);
            }
        }
        found.insert(found.end(), together.rbegin(), together.rend());
        if (++taken % 256 == 0) {
            check_interrupt();
        }
    }
    return found;
}

std::uint64_t DeviceJournal::export_log_writes(const std::string& path, std::uint32_t sector_bytes) const {
    if (sector_bytes == 0) {
        return export_log_writes(path, block_bytes_ != 0 ? block_bytes_ : sector_bytes_fixed);
    }
    if (!log_writes::is_sector(sector_bytes)) {
        throw InputError("log sector of " + std::to_string(sector_bytes) + " bytes", {}, 0,
                         "a power of two from 512 to 65536");
    }
    const std::uint64_t per_log_sector = sector_bytes / sector_bytes_fixed;
    LogWriter log(path, sector_bytes);
    std::size_t written = 0;
    for (const std::size_t offset : log_writes_order()) {
        const sampleblk_journal_entry& entry = at(offset);
        if (entry.type == SAMPLEBLK_JOURNAL_MARK) {
            log.entry(0, 0, log_writes::mark, redo(entry), true);
            continue;
        }
        if (entry.type == SAMPLEBLK_OP_FLUSH) {
            log.entry(0, 0, log_writes::flush, {}, false);
            continue;
        }
        const std::uint64_t flags = (entry.flags & SAMPLEBLK_JOURNAL_FUA) != 0 ? log_writes::fua : 0;
        for_each_chunk(redo(entry), [&](std::uint64_t first, std::uint64_t count, std::span<const std::byte> data) {
            if (first % per_log_sector != 0 || count % per_log_sector != 0) {
                throw InputError("entry " + std::to_string(entry.sequence) + " with " + std::to_string(count) +
                                     " sectors at " + std::to_string(first),
                                 {}, 0, "log sectors of 512 bytes");
            }
            // Zeroes without data are what a discard leaves here.
            log.entry(first, count, data.empty() ? flags | log_writes::discard : flags, data, false);
        });
        if (++written % 1024 == 0) {
            check_interrupt();
        }
    }
    return log.finish();
}

}  // namespace sampleblk
