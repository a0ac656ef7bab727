// SPDX-License-Identifier: GPL-2.0-only
// Random operations on the media - writes, discards, flushes, power cuts, seeks, snapshots, failing memory - against a
// plain model that keeps whole copies and knows nothing of pages, rings or chunks. Everything is compared byte by byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <random>
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

struct Volatile {
    u64 id;
    u64 pos;
    Bytes data;
    bool durable;
};

struct Model {
    Bytes now = Bytes(bytes, 0);
    Bytes durable = Bytes(bytes, 0);
    std::deque<Volatile> cached;

    void write(u64 id, u64 pos, const Bytes& data, bool fua) {
        std::copy(data.begin(), data.end(), now.begin() + static_cast<std::ptrdiff_t>(pos));
        cached.push_back({id, pos, data, fua});
    }
    void flush() {
        durable = now;
        cached.clear();
    }
    // The oldest writes reached the medium for want of room.
    void written_back_before(u64 id) {
        while (!cached.empty() && cached.front().id < id) {
            apply(cached.front(), cached.front().data.size());
            cached.pop_front();
        }
    }
    void apply(const Volatile& write, u64 keep) {
        std::copy_n(write.data.begin(), keep, durable.begin() + static_cast<std::ptrdiff_t>(write.pos));
    }
};

class Driver {
  public:
    explicit Driver(unsigned seed, u64 cache_bytes, u64 journal_bytes)
        : random_(seed), journal_bytes_(journal_bytes), store_(make_store(bytes)) {
        media_.store = store_.get();
        spin_lock_init(&media_.lock);
        if (cache_bytes != 0) {
            EXPECT_EQ(sblk_cache_init(&cache_, cache_bytes), 0);
            media_.cache = &cache_;
        }
    }
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;
    ~Driver() {
        stop_journal();
        if (media_.cache != nullptr) {
            sblk_cache_destroy(&cache_);
        }
    }

    void step() {
        const unsigned dice = pick(1000);
        if (dice < 520) {
            write();
        } else if (dice < 620) {
            discard();
        } else if (dice < 900) {
            read();
        } else if (dice < 940) {
            flush();
        } else if (dice < 955) {
            cut();
        } else if (dice < 970) {
            snapshot();
        } else if (dice < 985) {
            seek();
        } else if (dice < 995) {
            remember();
        } else {
            toggle_journal();
        }
    }

    void check_all() { ASSERT_EQ(contents(media_.store), model_.now); }

    u64 cuts = 0, seeks = 0, restores = 0, failures = 0;

  private:
    unsigned pick(unsigned below) { return static_cast<unsigned>(random_() % below); }

    void range(u64& pos, u64& len) {
        const u64 first = pick(sectors);
        const u64 count = std::min<u64>(1 + pick(pick(8) == 0 ? 64 : 12), sectors - first);
        pos = first * sector;
        len = count * sector;
    }

    // Ranges that the cache forgot because it was full are durable in the model too.
    void settle() {
        if (media_.cache == nullptr) {
            return;
        }
        u64 oldest = cache_.next_id;
        sblk_cache_walk(
            &cache_,
            [](const sblk_cache_entry* entry, void* arg) {
                *static_cast<u64*>(arg) = entry->id;
                return 1;
            },
            &oldest);
        model_.written_back_before(oldest);
    }

    // As the driver does it: try without sleeping, get memory, try again.
    bool begin(u32 type, bool fua, u64 pos, u64 len) {
        if (pick(50) == 0) {
            user_fail_after(static_cast<long>(pick(3)));
            const int err = sblk_media_begin(&media_, type, fua, pos, len, ++clock_);
            user_fail_after(-1);
            if (err == 0) {
                return true;
            }
            EXPECT_EQ(err, -ENOMEM);
            ++failures;
            // What was not done left no trace but room made in the cache.
            settle();
        }
        return sblk_media_begin(&media_, type, fua, pos, len, ++clock_) == 0;
    }

    void finish() {
        const u64 entry = sblk_media_end(&media_);
        sblk_media_complete(&media_, entry, ++clock_, false);
    }

    u64 last_id() const { return media_.cache != nullptr ? cache_.next_id - 1 : 0; }

    void write() {
        u64 pos = 0;
        u64 len = 0;
        range(pos, len);
        Bytes data(len);
        for (u64 i = 0; i < len; i += sector) {
            std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(i), sector, static_cast<std::uint8_t>(random_()));
        }
        const bool fua = pick(10) == 0;
        ASSERT_TRUE(begin(SAMPLEBLK_OP_WRITE, fua, pos, len));
        user_fail_after(0);
        const int err = sblk_store_write(media_.store, pos, data.data(), len, GFP_NOWAIT);
        user_fail_after(-1);
        ASSERT_EQ(err, 0) << "a write that began needs no memory";
        finish();
        model_.write(last_id(), pos, data, fua);
        settle();
    }

    void discard() {
        u64 pos = 0;
        u64 len = 0;
        range(pos, len);
        const u32 type = pick(2) == 0 ? SAMPLEBLK_OP_DISCARD : SAMPLEBLK_OP_WRITE_ZEROES;
        ASSERT_TRUE(begin(type, false, pos, len));
        user_fail_after(pick(4) == 0 ? 0 : -1);
        ASSERT_EQ(sblk_store_discard(media_.store, pos, len, GFP_NOWAIT), 0);
        user_fail_after(-1);
        finish();
        model_.write(last_id(), pos, Bytes(len, 0), false);
        settle();
    }

    void read() {
        u64 pos = 0;
        u64 len = 0;
        range(pos, len);
        Bytes got(len);
        sblk_store_read(media_.store, pos, got.data(), len);
        ASSERT_TRUE(std::equal(got.begin(), got.end(), model_.now.begin() + static_cast<std::ptrdiff_t>(pos)));
    }

    void flush() {
        ASSERT_TRUE(begin(SAMPLEBLK_OP_FLUSH, false, 0, 0));
        finish();
        model_.flush();
    }

    void cut() {
        if (media_.cache == nullptr) {
            return;
        }
        sblk_cut cut{};
        std::vector<sampleblk_survivor> survivors;
        cut.mode = pick(3);
        cut.flags = pick(2) == 0 ? SAMPLEBLK_CUT_F_TORN : 0;
        cut.survive_percent = pick(101);
        cut.seed = random_();
        if (cut.mode == SAMPLEBLK_CUT_EXPLICIT) {
            for (const Volatile& write : model_.cached) {
                if (pick(2) == 0) {
                    survivors.push_back({write.id, 1 + pick(40)});
                }
            }
            cut.survivors = survivors.data();
            cut.nr_survivors = survivors.size();
        }
        user_fail_after(pick(8) == 0 ? static_cast<long>(pick(4)) : -1);
        const int err = sblk_media_cut(&media_, &cut, ++clock_);
        user_fail_after(-1);
        if (err != 0) {
            ASSERT_EQ(err, -ENOMEM);
            check_all();
            return;
        }
        EXPECT_EQ(sblk_media_begin(&media_, SAMPLEBLK_OP_WRITE, false, 0, sector, 0), -EIO);
        EXPECT_EQ(sblk_media_cut(&media_, &cut, 0), -EALREADY);
        for (const Volatile& write : model_.cached) {
            const u64 count = write.data.size() / sector;
            u64 keep = 0;
            if (write.durable) {
                keep = count;
            } else if (cut.mode == SAMPLEBLK_CUT_RANDOM) {
                const u64 drawn = chance(cut.seed, write.id);
                keep = drawn % 100 < cut.survive_percent ? count : 0;
                if (keep > 1 && (cut.flags & SAMPLEBLK_CUT_F_TORN) != 0 && drawn >> 63 == 0) {
                    keep = 1 + chance(cut.seed ^ 0x7465, write.id) % (count - 1);
                }
            } else if (cut.mode == SAMPLEBLK_CUT_EXPLICIT) {
                for (const sampleblk_survivor& survivor : survivors) {
                    if (survivor.id == write.id) {
                        keep = std::min<u64>(survivor.sectors, count);
                    }
                }
            }
            model_.apply(write, keep * sector);
        }
        model_.cached.clear();
        model_.now = model_.durable;
        ASSERT_EQ(sblk_media_power_on(&media_), 0);
        ++cuts;
        check_all();
    }

    // Layers: take, restore, forget; as snapshots do it.
    void snapshot() {
        // The volatile cache's undo belongs to the store that it was taken from.
        if (media_.journal != nullptr) {
            return;
        }
        flush();
        if (snapshots_.size() < 4 && pick(2) == 0) {
            Store top = make_store(bytes, store_.get());
            snapshots_.push_back({std::move(store_), model_.now});
            store_ = std::move(top);
        } else if (!snapshots_.empty()) {
            const std::size_t which = pick(static_cast<unsigned>(snapshots_.size()));
            if (pick(3) != 0) {
                store_ = make_store(bytes, snapshots_[which].first.get());
                model_.now = snapshots_[which].second;
                model_.durable = model_.now;
                ++restores;
            } else {
                snapshots_.erase(snapshots_.begin() + static_cast<std::ptrdiff_t>(which));
                sblk_store_merge(store_.get());
            }
        }
        media_.store = store_.get();
        check_all();
        for (const auto& [store, expected] : snapshots_) {
            ASSERT_EQ(contents(store.get()), expected);
        }
    }

    void toggle_journal() {
        if (media_.journal != nullptr) {
            stop_journal();
        } else {
            ASSERT_EQ(sblk_journal_init(&journal_, journal_bytes_), 0);
            media_.journal = &journal_;
            states_.clear();
            remember();
        }
    }

    void stop_journal() {
        if (media_.journal != nullptr) {
            media_.journal = nullptr;
            sblk_journal_destroy(&journal_);
        }
    }

    void remember() {
        if (media_.journal != nullptr && journal_.header->overflow == 0 && states_.size() < 12) {
            states_[journal_.header->next_sequence - 1] = model_.now;
            if (pick(2) == 0) {
                const u64 mark = sblk_journal_mark(&journal_, "state", 5, ++clock_);
                if (mark != 0) {
                    states_[mark] = model_.now;
                }
            }
        }
    }

    void seek() {
        if (media_.journal == nullptr || states_.empty()) {
            return;
        }
        // All that is volatile counts as written when the store is moved by hand.
        flush();
        u64 applied = 0;
        if (journal_.header->overflow != 0) {
            EXPECT_EQ(sblk_journal_seek(&journal_, media_.store, 0, &applied), -EOVERFLOW);
            return;
        }
        const u64 newest = journal_.header->next_sequence - 1;
        for (int i = 0; i < 3; ++i) {
            auto state = states_.begin();
            std::advance(state, pick(static_cast<unsigned>(states_.size())));
            ASSERT_EQ(sblk_journal_seek(&journal_, media_.store, state->first, &applied), 0);
            ASSERT_EQ(contents(media_.store), state->second) << "after sequence " << state->first;
            EXPECT_EQ(journal_.header->position, state->first);
            // Seen from a store on top, without moving.
            const Store view = make_store(bytes, media_.store);
            auto other = states_.begin();
            std::advance(other, pick(static_cast<unsigned>(states_.size())));
            ASSERT_EQ(sblk_journal_view(&journal_, view.get(), other->first), 0);
            ASSERT_EQ(contents(view.get()), other->second);
        }
        EXPECT_EQ(sblk_journal_seek(&journal_, media_.store, newest + 1, &applied), -EINVAL);
        ASSERT_EQ(sblk_journal_seek(&journal_, media_.store, newest, &applied), 0);
        check_all();
        ++seeks;
    }

    std::mt19937_64 random_;
    u64 journal_bytes_;
    Store store_;
    sblk_media media_{};
    sblk_cache cache_{};
    sblk_journal journal_{};
    u64 clock_ = 0;
    Model model_;
    std::vector<std::pair<Store, Bytes>> snapshots_;
    std::map<u64, Bytes> states_;
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
    u64 cuts = 0;
    u64 seeks = 0;
    u64 restores = 0;
    u64 failures = 0;
    for (unsigned seed = 0; seed < runs; ++seed) {
        Driver driver(seed, GetParam().cache_bytes, GetParam().journal_bytes);
        for (u64 i = 0; i < operations() / runs / 4; ++i) {
            driver.step();
            if (HasFatalFailure() || HasFailure()) {
                FAIL() << "seed " << seed << " operation " << i;
            }
        }
        driver.check_all();
        cuts += driver.cuts;
        seeks += driver.seeks;
        restores += driver.restores;
        failures += driver.failures;
    }
    EXPECT_GT(seeks + restores, 0U);
    EXPECT_GT(failures, 0U);
    if (GetParam().cache_bytes != 0) {
        EXPECT_GT(cuts, 0U);
    }
}

// A fourth of the operations each.
INSTANTIATE_TEST_SUITE_P(Shapes, ModelTest,
                         testing::Values(Shape{"Roomy", 4U << 20, 16U << 20}, Shape{"SmallCache", 64U << 10, 16U << 20},
                                         Shape{"SmallJournal", 1U << 20, 256U << 10}, Shape{"NoCache", 0, 16U << 20}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sampleblk_module
