// SPDX-License-Identifier: GPL-2.0-only
// Random commands on the medium - submitted, executed, completed, each at its own time - with flushes, power cuts, seeks,
// snapshots and failing memory, against a plain model that keeps whole copies and a list of everything that happened, and
// knows nothing of pages, rings or chunks. Everything is compared byte by byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "core.hpp"

namespace sampleblk_module {
namespace {

constexpr u64 sector = 512;
constexpr u64 sectors = 256;
constexpr u64 bytes = sectors * sector;

// What the ABI promises of chance, written down a second time.
u64 chance(u64 seed, u64 n) {
    u64 z = seed + n * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

// A change that was executed, with the moments of its life by a clock of the model's own; 0: not yet.
struct Change {
    u64 id;
    u64 pos;
    Bytes data;
    bool zeroes;
    bool fua;
    bool atomic;
    u64 completed = 0;
    bool written_back = false;
};

struct Flush {
    u64 submitted;
    bool succeeded = false;
};

// The rules of docs/explanation/crash-states.md, read literally.
struct Model {
    Bytes now = Bytes(bytes, 0);
    Bytes before = Bytes(bytes, 0);  // what was there before the oldest of `changes`
    std::list<Change> changes;
    std::vector<Flush> flushes;  // of this epoch of power
    u64 clock = 0;
    u64 cache_bytes = 0;

    bool durable(const Change& change) const {
        return change.written_back ||
               (change.completed != 0 &&
                (change.fua || std::any_of(flushes.begin(), flushes.end(), [&](const Flush& flush) {
                     return flush.succeeded && change.completed < flush.submitted;
                 })));
    }
    void forget_oldest() {
        const Change& oldest = changes.front();
        std::copy(oldest.data.begin(), oldest.data.end(), before.begin() + static_cast<std::ptrdiff_t>(oldest.pos));
        changes.pop_front();
    }
    void trim() {
        while (!changes.empty() && durable(changes.front())) {
            forget_oldest();
        }
    }
    Change* execute(Change change) {
        std::copy(change.data.begin(), change.data.end(), now.begin() + static_cast<std::ptrdiff_t>(change.pos));
        trim();
        changes.push_back(std::move(change));
        Change* made = &changes.back();
        const auto held = [&] {
            u64 sum = 0;
            for (const Change& one : changes) {
                sum += one.zeroes ? 0 : one.data.size();
            }
            return sum;
        };
        while (held() > cache_bytes) {
            const bool itself = &changes.front() == made;
            forget_oldest();
            if (itself) {
                return nullptr;
            }
        }
        return made;
    }
    void everything_is_durable() {
        before = now;
        changes.clear();
    }
};

struct Command {
    u32 type = 0;
    u64 pos = 0;
    u64 len = 0;
    Bytes data;
    bool fua = false;
    bool atomic = false;
    bool keep = false;
    sblk_ticket ticket{};
    sblk_record* record = nullptr;  // created, but not handed over yet
    bool executed = false;
    bool lost = false;         // the power went
    std::size_t flush = 0;     // in Model::flushes
    std::set<u64> ids;         // of the changes that were executed
    u64 done = 0;
};

class Driver {
  public:
    Driver(unsigned seed, u64 cache_bytes, u64 journal_bytes)
        : random_(seed), journal_bytes_(journal_bytes), store_(make_store(bytes)) {
        sblk_medium_init(&medium_, store_.get());
        unit_ = pick(2) == 0 ? 1 : 8;
        if (cache_bytes != 0) {
            sblk_cache_init(&cache_, cache_bytes);
            medium_.cache = &cache_;
            model_.cache_bytes = cache_bytes;
        } else {
            medium_.sector_atomic = true;
        }
    }
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;
    ~Driver() {
        for (Command& command : commands_) {
            if (command.record != nullptr) {
                sblk_record_put(command.record);
            }
            sblk_flushed flushed{};
            sblk_medium_complete(&medium_, &command.ticket, true, 0, &flushed);
        }
        if (medium_.cache != nullptr) {
            sblk_cache_forget(&cache_);
        }
        stop_journal();
    }

    void step() {
        const unsigned dice = pick(1000);
        if (dice < 300) {
            submit();
        } else if (dice < 560) {
            execute(any());
        } else if (dice < 800) {
            complete(any());
        } else if (dice < 885) {
            read();
        } else if (dice < 900) {
            compose();
        } else if (dice < 920) {
            cut();
        } else if (dice < 935) {
            snapshot();
        } else if (dice < 950) {
            seek();
        } else if (dice < 970) {
            remember();
        } else if (dice < 990) {
            check_list();
        } else {
            toggle_journal();
        }
    }

    void check_all() { ASSERT_EQ(contents(medium_.store), model_.now); }

    u64 cuts = 0, seeks = 0, restores = 0, failures = 0, agains = 0, enumerated = 0, composed = 0, refused = 0;
    u64 torn = 0, durable_behind = 0;

  private:
    unsigned pick(unsigned below) { return static_cast<unsigned>(random_() % below); }

    // --- commands

    Command* any() {
        if (commands_.empty()) {
            return nullptr;
        }
        auto at = commands_.begin();
        std::advance(at, pick(static_cast<unsigned>(commands_.size())));
        return &*at;
    }

    void submit() {
        if (commands_.size() >= 8) {
            return;
        }
        Command& command = commands_.emplace_back();
        const unsigned dice = pick(100);
        command.type = dice < 65   ? SAMPLEBLK_OP_WRITE
                       : dice < 75 ? SAMPLEBLK_OP_DISCARD
                       : dice < 85 ? SAMPLEBLK_OP_WRITE_ZEROES
                                   : SAMPLEBLK_OP_FLUSH;
        if (command.type != SAMPLEBLK_OP_FLUSH) {
            const u64 first = pick(sectors / unit_) * unit_;
            const u64 units = 1 + pick(pick(8) == 0 ? 64 : 12);
            command.pos = first * sector;
            command.len = std::min<u64>(units * unit_, sectors - first) * sector;
            command.data = Bytes(command.len, 0);
        }
        if (command.type == SAMPLEBLK_OP_WRITE) {
            for (u64 i = 0; i < command.len; i += sector) {
                std::fill_n(command.data.begin() + static_cast<std::ptrdiff_t>(i), sector,
                            static_cast<std::uint8_t>(random_()));
            }
            command.fua = pick(8) == 0;
            command.atomic = pick(8) == 0;
        }
        command.keep = pick(3) == 0;
        ASSERT_TRUE(sblk_medium_submit(&medium_, &command.ticket, command.type, ++now_ns_));
        ++model_.clock;
        if (command.type == SAMPLEBLK_OP_FLUSH) {
            command.flush = model_.flushes.size();
            model_.flushes.push_back({model_.clock});
            ++flushes_;
            command.ticket.no_promise = pick(3) == 0;
        }
        if (pick(3) != 0) {
            execute(&command);
        }
    }

    sblk_record* create(const Command& command) {
        const u32 flags = (command.fua ? SBLK_RECORD_FUA : 0) | (command.atomic ? SBLK_RECORD_ATOMIC : 0);
        const auto made = [&](gfp_t gfp) {
            return sblk_medium_record(&medium_, command.type, command.pos + command.done, command.len - command.done,
                                      command.keep, flags, gfp);
        };
        sblk_record* record = nullptr;
        if (pick(20) == 0) {
            user_fail_after(static_cast<long>(pick(4)));
            record = made(GFP_NOWAIT);
            user_fail_after(-1);
            failures += record == nullptr ? 1 : 0;
        }
        if (record == nullptr) {
            record = made(pick(2) == 0 ? GFP_NOWAIT : GFP_NOIO);
        }
        EXPECT_NE(record, nullptr);
        if (command.type == SAMPLEBLK_OP_WRITE) {
            // In pieces, as a request has them.
            for (u64 at = 0; at < command.len;) {
                const u64 part = std::min<u64>(command.len - at, (1 + pick(9)) * sector);
                sblk_change_fill(&record->change, at, command.data.data() + at, part);
                at += part;
            }
        }
        return record;
    }

    void execute(Command* command) {
        if (command == nullptr || command->executed || command->lost) {
            return;
        }
        if (command->record == nullptr) {
            command->record = create(*command);
            // Others may come between.
            if (pick(3) == 0) {
                return;
            }
        }
        sblk_record* record = command->record;
        const u64 part = record->change.len;
        u64 overflow = 0;
        command->record = nullptr;
        // Nothing from here on needs memory.
        user_fail_after(0);
        const int err = sblk_medium_change(&medium_, &command->ticket, record, command->type, &overflow);
        user_fail_after(-1);
        if (err == -EAGAIN) {
            ASSERT_NE(command->type, SAMPLEBLK_OP_WRITE);
            ++agains;
            return;
        }
        ASSERT_EQ(err, 0);
        if (command->type != SAMPLEBLK_OP_FLUSH) {
            made(*command, part);
        }
        command->done += part;
        command->executed = command->done == command->len;
    }

    void made(Command& command, u64 part) {
        const auto from = command.data.begin() + static_cast<std::ptrdiff_t>(command.done);
        Change change{.id = ++ids_,
                      .pos = command.pos + command.done,
                      .data = Bytes(from, from + static_cast<std::ptrdiff_t>(part)),
                      .zeroes = command.type != SAMPLEBLK_OP_WRITE,
                      .fua = command.fua,
                      .atomic = command.atomic};
        if (medium_.journal != nullptr && journal_.overflow == 0) {
            recorded_.emplace_back(journal_.next_sequence - 1, change);
        }
        if (medium_.cache == nullptr) {
            std::copy(change.data.begin(), change.data.end(),
                      model_.now.begin() + static_cast<std::ptrdiff_t>(change.pos));
            return;
        }
        command.ids.insert(change.id);
        model_.execute(std::move(change));
    }

    void complete(Command* command) {
        if (command == nullptr || (!command->executed && !command->lost)) {
            return;
        }
        const bool failed = pick(10) == 0;
        sblk_flushed flushed{};
        const bool in_time = sblk_medium_complete(&medium_, &command->ticket, failed, ++now_ns_, &flushed);
        EXPECT_EQ(in_time, !command->lost);
        ++model_.clock;
        for (Change& change : model_.changes) {
            if (in_time && command->ids.contains(change.id)) {
                change.completed = model_.clock;
            }
        }
        if (command->type == SAMPLEBLK_OP_FLUSH && in_time && !failed && !command->ticket.no_promise) {
            model_.flushes.at(command->flush).succeeded = true;
        }
        if (medium_.journal != nullptr && !command->lost) {
            completed_epoch_[command->ticket.submit_order] = flushes_ - flushes_before_;
        }
        commands_.remove_if([&](const Command& other) { return &other == command; });
    }

    void complete_all() {
        while (!commands_.empty()) {
            Command* command = &commands_.front();
            execute(command);
            complete(command);
            if (testing::Test::HasFatalFailure()) {
                return;
            }
        }
    }

    void read() {
        const u64 first = pick(sectors);
        const u64 count = std::min<u64>(1 + pick(64), sectors - first);
        Bytes got(count * sector);
        sblk_store_read(medium_.store, first * sector, got.data(), got.size());
        ASSERT_TRUE(
            std::equal(got.begin(), got.end(), model_.now.begin() + static_cast<std::ptrdiff_t>(first * sector)));
    }

    // --- what is volatile

    std::vector<sampleblk_volatile> listed() {
        std::vector<sampleblk_volatile> list(10'000);
        sblk_volatile_copy copy{};
        copy.list = list.data();
        copy.room = list.size();
        sblk_medium_list(&medium_, &copy);
        EXPECT_LE(copy.nr, list.size());
        order_ = copy.order;
        list.resize(copy.nr);
        return list;
    }

    void check_list() {
        const std::vector<sampleblk_volatile> list = listed();
        model_.trim();
        ASSERT_EQ(list.size(), model_.changes.size());
        auto change = model_.changes.begin();
        std::set<u64> volatile_ids;
        for (const sampleblk_volatile& one : list) {
            ASSERT_EQ(one.id, change->id);
            ASSERT_EQ(one.sector * sector, change->pos);
            ASSERT_EQ(one.sectors * sector, change->data.size());
            const u32 expected = (change->completed == 0 ? SAMPLEBLK_VOLATILE_IN_FLIGHT : 0) |
                                 (model_.durable(*change) ? SAMPLEBLK_VOLATILE_DURABLE : 0) |
                                 (change->zeroes ? SAMPLEBLK_VOLATILE_ZEROES : 0);
            ASSERT_EQ(one.flags, expected);
            durable_behind += model_.durable(*change) ? 1 : 0;
            if (!model_.durable(*change)) {
                volatile_ids.insert(one.id);
            }
            ++change;
        }
        check_enumeration(volatile_ids);
    }

    // The same set from the journal's numbers alone.
    void check_enumeration(const std::set<u64>& volatile_ids) {
        if (medium_.journal == nullptr || journal_.overflow != 0 || past_cut_ || written_back() != 0) {
            return;
        }
        u64 durable = 0;
        const auto each = [&](const auto& look) {
            for (u64 offset = journal_.header->first; offset < journal_.header->head;) {
                const auto* entry = reinterpret_cast<const sampleblk_journal_entry*>(
                    reinterpret_cast<const std::byte*>(journal_.header) + offset);
                look(*entry);
                offset += entry->bytes;
            }
        };
        each([&](const sampleblk_journal_entry& entry) {
            if (entry.type == SAMPLEBLK_OP_FLUSH && entry.complete_order != 0 &&
                (entry.flags & SAMPLEBLK_JOURNAL_FAILED) == 0) {
                durable = std::max<u64>(durable, entry.submit_order);
            }
        });
        std::set<u64> from_journal;
        each([&](const sampleblk_journal_entry& entry) {
            if (entry.volatile_id == 0) {
                return;
            }
            const bool completed = entry.complete_order != 0;
            if (!completed ||
                (entry.complete_order > durable && (entry.flags & SAMPLEBLK_JOURNAL_FUA) == 0)) {
                from_journal.insert(entry.volatile_id);
            }
            if (completed) {
                EXPECT_EQ(entry.epoch, completed_epoch_.at(entry.submit_order));
                // Of an epoch before the open one is what is durable by a flush.
                EXPECT_EQ(entry.epoch < journal_.header->epoch, entry.complete_order < durable);
            }
        });
        // What was there before the journal began is in none of its entries.
        std::set<u64> since;
        std::copy_if(volatile_ids.begin(), volatile_ids.end(), std::inserter(since, since.end()),
                     [&](u64 id) { return id > ids_before_; });
        ASSERT_EQ(from_journal, since);
        ++enumerated;
    }

    u64 written_back() const { return cache_.written_back - written_back_before_; }

    // --- power

    void cut() {
        if (medium_.cache == nullptr) {
            return;
        }
        sblk_cut cut{};
        std::vector<sampleblk_survivor> survivors;
        cut.mode = pick(3);
        cut.flags = pick(2) == 0 ? SAMPLEBLK_CUT_F_TORN : 0;
        cut.survive_percent = pick(101);
        cut.seed = random_();
        cut.unit_sectors = static_cast<u32>(unit_);
        if (cut.mode == SAMPLEBLK_CUT_EXPLICIT) {
            for (const Change& change : model_.changes) {
                if (pick(2) == 0) {
                    survivors.push_back({change.id, (1 + pick(40 / static_cast<unsigned>(unit_))) * unit_});
                }
            }
            cut.survivors = survivors.data();
            cut.nr_survivors = survivors.size();
        }
        ASSERT_EQ(sblk_medium_power_off(&medium_), 0);
        EXPECT_EQ(sblk_medium_power_off(&medium_), -EALREADY);
        sblk_ticket ticket{};
        EXPECT_FALSE(sblk_medium_submit(&medium_, &ticket, SAMPLEBLK_OP_WRITE, 0));
        // Some are answered, with an error, before the cut comes to them.
        for (auto command = commands_.begin(); command != commands_.end();) {
            Command& answered = *command++;
            answered.lost = true;
            if (answered.executed && pick(3) == 0) {
                complete(&answered);
            }
        }
        // A cut needs no memory at all.
        user_fail_after(0);
        sblk_medium_cut(&medium_, &cut, ++now_ns_);
        user_fail_after(-1);
        model_.trim();
        u64 counts[3] = {};
        Bytes after = model_.before;
        for (const Change& change : model_.changes) {
            const u64 keep = surviving(cut, survivors, change);
            std::copy_n(change.data.begin(), keep * sector, after.begin() + static_cast<std::ptrdiff_t>(change.pos));
            ++counts[keep == 0 ? 0 : keep * sector == change.data.size() ? 1 : 2];
        }
        EXPECT_EQ(cut.dropped, counts[0]);
        EXPECT_EQ(cut.survived, counts[1]);
        EXPECT_EQ(cut.torn, counts[2]);
        torn += cut.torn;
        model_.now = after;
        model_.everything_is_durable();
        for (Command& command : commands_) {
            if (command.record != nullptr) {
                // It came before the cut and comes to be executed after it.
                u64 overflow = 0;
                EXPECT_EQ(sblk_medium_change(&medium_, &command.ticket, command.record, command.type, &overflow), -EIO);
                command.record = nullptr;
            }
        }
        past_cut_ = true;
        check_all();
        ASSERT_EQ(sblk_medium_power_on(&medium_), 0);
        EXPECT_EQ(sblk_medium_power_on(&medium_), -EALREADY);
        ++cuts;
    }

    u64 surviving(const sblk_cut& cut, const std::vector<sampleblk_survivor>& survivors, const Change& change) const {
        const u64 count = change.data.size() / sector;
        u64 keep = 0;
        if (model_.durable(change)) {
            return count;
        }
        if (cut.mode == SAMPLEBLK_CUT_RANDOM) {
            const u64 drawn = chance(cut.seed, change.id);
            const u64 units = count / unit_;
            keep = drawn % 100 < cut.survive_percent ? count : 0;
            if (keep != 0 && units > 1 && !change.atomic && (cut.flags & SAMPLEBLK_CUT_F_TORN) != 0 && drawn >> 63 == 0) {
                keep = (1 + chance(cut.seed ^ 0x7465, change.id) % (units - 1)) * unit_;
            }
        } else if (cut.mode == SAMPLEBLK_CUT_EXPLICIT) {
            for (const sampleblk_survivor& survivor : survivors) {
                if (survivor.id == change.id) {
                    keep = std::min<u64>(survivor.sectors, count);
                }
            }
            keep = change.atomic && keep < count ? 0 : keep;
        }
        return keep;
    }

    // --- layers: take, restore, forget; as snapshots do it

    void snapshot() {
        if (medium_.journal != nullptr) {
            return;
        }
        complete_all();
        const unsigned dice = pick(4);
        if (snapshots_.size() < 4 && dice < 2) {
            // What is volatile stays so, over the store that is frozen now.
            const bool fails = pick(4) == 0;
            Store top = make_store(bytes, store_.get());
            user_fail_after(fails ? static_cast<long>(pick(3)) : -1);
            const int err = sblk_medium_push(&medium_, top.get());
            user_fail_after(-1);
            if (err == 0) {
                snapshots_.push_back({std::move(store_), model_.now});
                store_ = std::move(top);
            } else {
                ASSERT_EQ(err, -ENOMEM);
                ++failures;
            }
        } else if (!snapshots_.empty()) {
            const std::size_t which = pick(static_cast<unsigned>(snapshots_.size()));
            if (dice == 2) {
                Store top = make_store(bytes, snapshots_[which].first.get());
                ASSERT_EQ(sblk_medium_replace(&medium_, top.get()), store_.get());
                store_ = std::move(top);
                model_.now = snapshots_[which].second;
                model_.everything_is_durable();
                ++restores;
            } else {
                snapshots_.erase(snapshots_.begin() + static_cast<std::ptrdiff_t>(which));
                sblk_medium_merge(&medium_);
            }
        }
        check_all();
        for (const auto& [store, expected] : snapshots_) {
            ASSERT_EQ(contents(store.get()), expected);
        }
    }

    // --- the journal

    void toggle_journal() {
        complete_all();
        if (medium_.journal != nullptr) {
            stop_journal();
            return;
        }
        ASSERT_EQ(sblk_journal_init(&journal_, journal_bytes_), 0);
        sblk_medium_attach(&medium_, &journal_);
        states_.clear();
        recorded_.clear();
        recorded_over_ = model_.now;
        completed_epoch_.clear();
        flushes_before_ = flushes_;
        ids_before_ = ids_;
        written_back_before_ = cache_.written_back;
        past_cut_ = false;
        remember();
    }

    void stop_journal() {
        if (medium_.journal != nullptr) {
            medium_.journal = nullptr;
            sblk_journal_destroy(&journal_);
        }
    }

    void remember() {
        if (medium_.journal == nullptr || journal_.overflow != 0 || states_.size() >= 12) {
            return;
        }
        states_[journal_.next_sequence - 1] = model_.now;
        if (pick(2) == 0) {
            u64 overflow = 0;
            const u64 mark = sblk_medium_mark(&medium_, "state", 5, ++now_ns_, &overflow);
            ++model_.clock;
            EXPECT_EQ(mark == 0, overflow != 0);
            if (mark != 0) {
                states_[mark] = model_.now;
            }
        }
    }

    void seek() {
        if (medium_.journal == nullptr || states_.empty()) {
            return;
        }
        complete_all();
        const bool stop = false;
        u64 applied = 0;
        if (journal_.overflow != 0) {
            EXPECT_EQ(sblk_journal_seek(&journal_, medium_.store, 0, &applied, &stop), -EOVERFLOW);
            return;
        }
        // All that is volatile counts as written when the store is moved by hand.
        ASSERT_EQ(sblk_medium_replace(&medium_, store_.get()), store_.get());
        model_.everything_is_durable();
        past_cut_ = true;
        const u64 newest = journal_.next_sequence - 1;
        for (int i = 0; i < 3; ++i) {
            auto state = states_.begin();
            std::advance(state, pick(static_cast<unsigned>(states_.size())));
            seek_to(state->first);
            ASSERT_EQ(contents(medium_.store), state->second) << "after sequence " << state->first;
            // Seen from a store on top, without moving.
            const Store view = make_store(bytes, medium_.store);
            auto other = states_.begin();
            std::advance(other, pick(static_cast<unsigned>(states_.size())));
            ASSERT_EQ(sblk_journal_view(&journal_, view.get(), other->first, &stop), 0);
            ASSERT_EQ(contents(view.get()), other->second);
        }
        EXPECT_EQ(sblk_journal_seek(&journal_, medium_.store, newest + 1, &applied, &stop), -EINVAL);
        ASSERT_EQ(sblk_journal_seek(&journal_, medium_.store, newest, &applied, &stop), 0);
        check_all();
        ++seeks;
    }

    // With a signal or without memory on the way: then again from where it came to.
    void seek_to(u64 sequence) {
        const bool stop = false;
        u64 applied = 0;
        if (pick(4) == 0 && journal_.position != sequence) {
            user_interrupt(true);
            EXPECT_EQ(sblk_journal_seek(&journal_, medium_.store, sequence, &applied, &stop), -EINTR);
            user_interrupt(false);
        }
        if (pick(4) == 0) {
            user_fail_after(static_cast<long>(pick(4)));
            const int err = sblk_journal_seek(&journal_, medium_.store, sequence, &applied, &stop);
            user_fail_after(-1);
            ASSERT_TRUE(err == 0 || err == -ENOMEM);
            failures += err == 0 ? 0 : 1;
            if (const auto here = states_.find(journal_.position); here != states_.end()) {
                ASSERT_EQ(contents(medium_.store), here->second) << "at sequence " << journal_.position;
            }
            // From there one may also turn round.
            if (pick(2) == 0) {
                auto other = states_.begin();
                std::advance(other, pick(static_cast<unsigned>(states_.size())));
                ASSERT_EQ(sblk_journal_seek(&journal_, medium_.store, other->first, &applied, &stop), 0);
                ASSERT_EQ(contents(medium_.store), other->second) << "after sequence " << other->first;
            }
        }
        ASSERT_EQ(sblk_journal_seek(&journal_, medium_.store, sequence, &applied, &stop), 0);
        EXPECT_EQ(journal_.position, sequence);
        EXPECT_EQ(journal_.header->position, sequence);
    }

    // --- what a crash may have left, out of the journal

    void compose() {
        if (medium_.journal == nullptr || journal_.overflow != 0) {
            return;
        }
        const Store below = make_store(bytes);
        ASSERT_EQ(sblk_store_write(below.get(), 0, recorded_over_.data(), bytes, GFP_KERNEL), 0);
        // Some of a few that follow each other, whole or torn, now and then not in the order in which they were executed.
        const std::size_t first = recorded_.empty() ? 0 : pick(static_cast<unsigned>(recorded_.size()));
        std::vector<const std::pair<u64, Change>*> chosen;
        for (std::size_t i = first; i < std::min(recorded_.size(), first + 40); ++i) {
            if (pick(3) != 0) {
                chosen.push_back(&recorded_[i]);
            }
        }
        if (pick(4) == 0) {
            std::shuffle(chosen.begin(), chosen.end(), random_);
        }
        std::vector<sampleblk_part> parts;
        Bytes expected = recorded_over_;
        for (const auto* one : chosen) {
            const auto& [sequence, change] = *one;
            const u64 units = change.data.size() / sector / unit_;
            u64 begin = 0, count = units;
            if (!change.atomic && pick(2) == 0) {
                begin = pick(static_cast<unsigned>(units));
                count = 1 + pick(static_cast<unsigned>(units - begin));
            }
            std::copy_n(change.data.begin() + static_cast<std::ptrdiff_t>(begin * unit_ * sector),
                        count * unit_ * sector,
                        expected.begin() + static_cast<std::ptrdiff_t>(change.pos + begin * unit_ * sector));
            parts.push_back({sequence, begin * unit_, count == units && pick(2) == 0 ? 0 : count * unit_});
        }
        const u64 entries = journal_.entries;
        const auto build = [&](const Store& store, const std::vector<sampleblk_part>& of) {
            const bool stop = false;
            return sblk_journal_compose(&journal_, entries, store.get(), of.data(), of.size(),
                                        static_cast<u32>(unit_), &stop);
        };
        if (pick(4) == 0) {
            const Store failing = make_store(bytes, below.get());
            user_fail_after(static_cast<long>(pick(6)));
            const int err = build(failing, parts);
            user_fail_after(-1);
            ASSERT_TRUE(err == 0 || err == -ENOMEM);
            failures += err == 0 ? 0 : 1;
        }
        if (pick(4) == 0 && !parts.empty()) {
            user_interrupt(true);
            EXPECT_EQ(build(make_store(bytes, below.get()), parts), -EINTR);
            user_interrupt(false);
        }
        const Store store = make_store(bytes, below.get());
        ASSERT_EQ(build(store, parts), 0);
        ASSERT_EQ(contents(store.get()), expected);
        ASSERT_EQ(contents(below.get()), recorded_over_);
        ++composed;
        for (const sampleblk_part& wrong : impossible_parts()) {
            EXPECT_EQ(build(make_store(bytes, below.get()), {wrong}), -EINVAL) << wrong.sequence;
            ++refused;
        }
    }

    std::vector<sampleblk_part> impossible_parts() {
        std::vector<sampleblk_part> wrong = {{0, 0, 0}, {journal_.entries + 1, 0, 0}, {~0ULL, 0, 0}};
        std::set<u64> changes;
        for (const auto& [sequence, change] : recorded_) {
            changes.insert(sequence);
        }
        for (u64 sequence = 1; sequence <= journal_.entries && wrong.size() < 6; ++sequence) {
            // A flush, a mark, or what a cut changed.
            if (!changes.contains(sequence)) {
                wrong.push_back({sequence, 0, 0});
            }
        }
        for (const auto& [sequence, change] : recorded_) {
            const u64 count = change.data.size() / sector;
            if (wrong.size() > 12) {
                break;
            }
            wrong.push_back({sequence, 0, count + unit_});
            wrong.push_back({sequence, count, unit_});
            wrong.push_back({sequence, unit_, ~0ULL});
            wrong.push_back({sequence, ~0ULL, 2});
            wrong.push_back({sequence, unit_, 0});
            if (unit_ > 1) {
                wrong.push_back({sequence, 0, 1});
                wrong.push_back({sequence, 1, count - 1});
            }
            if (change.atomic && count > unit_) {
                wrong.push_back({sequence, 0, unit_});
            }
        }
        return wrong;
    }

    std::mt19937_64 random_;
    u64 journal_bytes_;
    u64 unit_ = 1;
    Store store_;
    sblk_medium medium_{};
    sblk_cache cache_{};
    sblk_journal journal_{};
    u64 now_ns_ = 0;
    u64 ids_ = 0;
    u64 order_ = 0;
    Model model_;
    std::list<Command> commands_;
    std::vector<std::pair<Store, Bytes>> snapshots_;
    std::map<u64, Bytes> states_;
    // What the journal has, by sequence, and what was there when it began.
    std::vector<std::pair<u64, Change>> recorded_;
    Bytes recorded_over_;
    // What the journal is held against: by submit_order, the flushes submitted before an operation completed.
    std::map<u64, u64> completed_epoch_;
    u64 flushes_ = 0;
    u64 flushes_before_ = 0;
    u64 ids_before_ = 0;
    u64 written_back_before_ = 0;
    bool past_cut_ = false;
};

u64 operations() {
    const char* asked = std::getenv("SAMPLEBLK_MODEL_OPERATIONS");
    return asked != nullptr ? std::strtoull(asked, nullptr, 10) : 200'000;
}

struct Shape {
    const char* name;
    u64 cache_bytes;
    u64 journal_bytes;
};

class ModelTest : public testing::TestWithParam<Shape> {};

TEST_P(ModelTest, BytesAreThoseOfTheModel) {
    const u64 runs = 20;
    std::map<std::string, u64> seen;
    for (unsigned seed = 0; seed < runs; ++seed) {
        Driver driver(seed, GetParam().cache_bytes, GetParam().journal_bytes);
        for (u64 i = 0; i < operations() / runs / 4; ++i) {
            driver.step();
            if (HasFatalFailure() || HasFailure()) {
                FAIL() << "seed " << seed << " operation " << i;
            }
        }
        driver.check_all();
        seen["cuts"] += driver.cuts;
        seen["torn"] += driver.torn;
        seen["restores or seeks"] += driver.seeks + driver.restores;
        seen["failed allocations"] += driver.failures;
        seen["zeroes that had to be prepared again"] += driver.agains;
        seen["enumerations"] += driver.enumerated;
        seen["states that were built"] += driver.composed;
        seen["parts that were refused"] += driver.refused;
        seen["durable behind volatile"] += driver.durable_behind;
    }
    for (const auto& [what, count] : seen) {
        if (GetParam().cache_bytes != 0 || (what != "cuts" && what != "torn" && what != "durable behind volatile")) {
            EXPECT_GT(count, 0U) << what;
        }
    }
}

// A fourth of the operations each.
INSTANTIATE_TEST_SUITE_P(Shapes, ModelTest,
                         testing::Values(Shape{"Roomy", 4U << 20, 16U << 20}, Shape{"SmallCache", 64U << 10, 16U << 20},
                                         Shape{"SmallJournal", 1U << 20, 256U << 10}, Shape{"NoCache", 0, 16U << 20}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sampleblk_module
