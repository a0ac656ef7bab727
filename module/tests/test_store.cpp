// SPDX-License-Identifier: GPL-2.0-only
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "core.hpp"

namespace sampleblk_module {
namespace {

constexpr u64 page = 4096;

TEST(Store, ReadsAsZeroAndTakesNoMemory) {
    const Store store = make_store(u64{1} << 50);
    ASSERT_TRUE(store);
    Bytes buffer(3 * page, 1);
    sblk_store_read(store.get(), (u64{1} << 50) - buffer.size(), buffer.data(), buffer.size());
    EXPECT_EQ(buffer, Bytes(3 * page, 0));
    EXPECT_EQ(sblk_store_allocated_bytes(store.get()), 0U);
}

TEST(Store, KeepsWhatSurroundsAWrite) {
    const Store store = make_store(16 * page);
    const Bytes a(2 * page, 'a');
    const Bytes b(page, 'b');
    ASSERT_EQ(sblk_store_write(store.get(), page, a.data(), a.size(), GFP_KERNEL), 0);
    ASSERT_EQ(sblk_store_write(store.get(), page + 512, b.data(), b.size(), GFP_KERNEL), 0);
    Bytes expected(16 * page, 0);
    std::fill_n(expected.begin() + page, 2 * page, 'a');
    std::fill_n(expected.begin() + page + 512, page, 'b');
    EXPECT_EQ(contents(store.get()), expected);
    EXPECT_EQ(sblk_store_allocated_bytes(store.get()), 2 * page);
}

TEST(Store, DiscardFreesWholePagesAndZeroesParts) {
    const Store store = make_store(16 * page);
    const Bytes a(8 * page, 'a');
    ASSERT_EQ(sblk_store_write(store.get(), 0, a.data(), a.size(), GFP_KERNEL), 0);
    ASSERT_EQ(sblk_store_discard(store.get(), 512, 3 * page, GFP_KERNEL), 0);
    Bytes expected(16 * page, 0);
    std::fill_n(expected.begin(), 8 * page, 'a');
    std::fill_n(expected.begin() + 512, 3 * page, 0);
    EXPECT_EQ(contents(store.get()), expected);
    EXPECT_EQ(sblk_store_allocated_bytes(store.get()), 6 * page);
}

TEST(Store, AnotherSizeKeepsWhatIsWithinItAndTheRestIsZero) {
    const Store store = make_store(4 * page);
    const Bytes a(4 * page, 'a');
    ASSERT_EQ(sblk_store_write(store.get(), 0, a.data(), a.size(), GFP_KERNEL), 0);
    // Beyond the first leaf.
    ASSERT_EQ(sblk_store_resize(store.get(), 2000 * page), 0);
    ASSERT_EQ(sblk_store_write(store.get(), 1996 * page, a.data(), a.size(), GFP_KERNEL), 0);
    ASSERT_EQ(sblk_store_resize(store.get(), 2 * page + 512), 0);
    EXPECT_EQ(contents(store.get()), Bytes(2 * page + 512, 'a'));
    EXPECT_EQ(sblk_store_allocated_bytes(store.get()), 3 * page);
    ASSERT_EQ(sblk_store_resize(store.get(), 2000 * page), 0);
    Bytes expected(2000 * page, 0);
    std::fill_n(expected.begin(), 2 * page + 512, 'a');
    EXPECT_EQ(contents(store.get()), expected);
}

TEST(Store, OneOnAShrunkOneIsAsLongAsItsTable) {
    const Store base = make_store(2000 * page);
    ASSERT_EQ(sblk_store_resize(base.get(), page), 0);
    const Store top = make_store(page, base.get());
    EXPECT_EQ(top->nr_leaves, base->nr_leaves);
    EXPECT_EQ(sblk_store_resize(top.get(), 2 * page), -EBUSY);
    EXPECT_EQ(sblk_store_resize(base.get(), u64{1} << 50), -EFBIG);
    EXPECT_EQ(base->bytes, page);
}

TEST(Store, WithoutMemoryAWriteFailsAndCanBeTriedAgain) {
    const Store store = make_store(16 * page);
    const Bytes a(3 * page, 'a');
    for (long successes = 0; successes < 4; ++successes) {
        user_fail_after(successes);
        const int err = sblk_store_write(store.get(), 0, a.data(), a.size(), GFP_KERNEL);
        user_fail_after(-1);
        if (successes == 0) {
            EXPECT_EQ(err, -ENOMEM);
        }
    }
    ASSERT_EQ(sblk_store_write(store.get(), 0, a.data(), a.size(), GFP_KERNEL), 0);
    EXPECT_EQ(sblk_store_allocated_bytes(store.get()), 3 * page);
    user_fail_after(0);
    EXPECT_EQ(sblk_store_create(page, nullptr), nullptr);
    // A discard needs memory to remember what it frees; without it the page stays and is zero.
    EXPECT_EQ(sblk_store_discard(store.get(), 0, page, GFP_KERNEL), 0);
    user_fail_after(-1);
    EXPECT_EQ(sblk_store_allocated_bytes(store.get()), 3 * page);
    Bytes first(page, 1);
    sblk_store_read(store.get(), 0, first.data(), page);
    EXPECT_EQ(first, Bytes(page, 0));
}

TEST(Store, WhatIsReservedReadsAsBeforeAndIsWrittenWithoutMemory) {
    const Store below = make_store(16 * page);
    const Bytes a(2 * page, 'a');
    ASSERT_EQ(sblk_store_write(below.get(), page, a.data(), a.size(), GFP_KERNEL), 0);
    const Store store = make_store(16 * page, below.get());
    const Bytes b(page, 'b');
    ASSERT_EQ(sblk_store_write(store.get(), 4 * page, b.data(), b.size(), GFP_KERNEL), 0);
    ASSERT_EQ(sblk_store_discard(store.get(), 2 * page, page, GFP_KERNEL), 0);
    const Bytes before = contents(store.get());
    // Pages 0 to 8, of which one is there.
    const u64 from = 512;
    const u64 len = 8 * page + 1024;
    for (long memory = 0;; ++memory) {
        user_fail_after(memory);
        const int err = sblk_store_reserve(store.get(), from, len, GFP_NOWAIT);
        user_fail_after(-1);
        EXPECT_EQ(contents(store.get()), before);
        if (err == 0) {
            break;
        }
        ASSERT_EQ(err, -ENOMEM);
    }
    EXPECT_EQ(store->allocated.counter, 9);
    const Bytes c(len, 'c');
    user_fail_after(0);
    EXPECT_EQ(sblk_store_write(store.get(), from, c.data(), c.size(), GFP_NOWAIT), 0);
    user_fail_after(-1);
}

TEST(Store, AWriteOfManyPagesTakesAndGivesBackWhatItNeeds) {
    constexpr u64 pages = 1200;
    const Store base = make_store(pages * page);
    const Bytes below(page, 'x');
    std::mt19937 random(3);
    for (int round = 0; round < 200; ++round) {
        const Store store = make_store(pages * page, round % 2 == 0 ? nullptr : base.get());
        Bytes expected(pages * page, 0);
        u64 present = 0;
        // Some are there already, some were and are holes now.
        for (u64 i = 0; i < pages; i += 1 + random() % 60) {
            ASSERT_EQ(sblk_store_write(store.get(), i * page, below.data(), page, GFP_KERNEL), 0);
            if (random() % 2 == 0) {
                ASSERT_EQ(sblk_store_discard(store.get(), i * page, page, GFP_KERNEL), 0);
            } else {
                std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(i * page), page, 'x');
                ++present;
            }
        }
        ASSERT_EQ(sblk_store_allocated_bytes(store.get()), present * page);
        const u64 pos = random() % (pages * 8 - 400) * 512;
        const u64 len = (1 + random() % 400) * 512;
        sblk_writer writer;
        sblk_writer_begin(&writer, store.get(), pos, len, GFP_KERNEL);
        user_fail_after(random() % 4 == 0 ? static_cast<long>(random() % 40) : -1);
        Bytes data(len);
        int err = 0;
        for (u64 at = 0; at < len && err == 0;) {
            const u64 part = std::min<u64>(len - at, (1 + random() % 24) * 512);
            std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(at), part, static_cast<std::uint8_t>(random()));
            err = sblk_writer_write(&writer, data.data() + at, part);
            at += part;
        }
        user_fail_after(-1);
        sblk_writer_end(&writer);
        if (err != 0) {
            ASSERT_EQ(err, -ENOMEM);
            // Memory is back: the whole write again.
            ASSERT_EQ(sblk_store_write(store.get(), pos, data.data(), len, GFP_KERNEL), 0);
        }
        std::copy(data.begin(), data.end(), expected.begin() + static_cast<std::ptrdiff_t>(pos));
        ASSERT_EQ(contents(store.get()), expected) << round;
        u64 held = 0;
        for (u64 i = 0; i < pages; ++i) {
            const sblk_slot* leaf = store->leaves[i >> store->leaf_shift];
            const void* slot = leaf != nullptr ? leaf[i & ((u64{1} << store->leaf_shift) - 1)] : nullptr;
            held += slot != nullptr && slot != sblk_zero_page() ? 1 : 0;
        }
        // Nothing that was got ahead is kept or counted.
        ASSERT_EQ(sblk_store_allocated_bytes(store.get()), held * page);
    }
}

// Each store has a leaf of one page beside its data.
TEST(Store, ALimitThatAChunkExceedsIsMetPageByPage) {
    rcu_barrier();
    sblk_pages_set_limit(13);
    {
        const Store store = make_store(64 * page);
        const Bytes a(16 * page, 'a');
        EXPECT_EQ(sblk_store_write(store.get(), 0, a.data(), a.size(), GFP_KERNEL), -ENOMEM);
        EXPECT_EQ(sblk_store_allocated_bytes(store.get()), 12 * page);
        EXPECT_EQ(sblk_store_write(store.get(), 0, a.data(), 12 * page, GFP_KERNEL), 0);
    }
    sblk_pages_set_limit(~u64{0});
}

TEST(Store, TheLimitHoldsForAllTogether) {
    rcu_barrier();
    sblk_pages_set_limit(6);
    {
        const Store one = make_store(16 * page);
        const Store two = make_store(16 * page);
        const Bytes a(3 * page, 'a');
        EXPECT_EQ(sblk_store_write(one.get(), 0, a.data(), a.size(), GFP_KERNEL), 0);
        EXPECT_EQ(sblk_store_write(two.get(), 0, a.data(), a.size(), GFP_KERNEL), -ENOMEM);
        sblk_journal journal;
        EXPECT_EQ(sblk_journal_init(&journal, 64 * page), -ENOMEM) << "a journal is memory, too";
        // Discarded pages are waited for by one who may wait.
        rcu_read_lock();
        EXPECT_EQ(sblk_store_discard(one.get(), 0, a.size(), GFP_NOWAIT), 0);
        EXPECT_EQ(sblk_store_write(two.get(), 0, a.data(), a.size(), GFP_NOWAIT), -ENOMEM);
        rcu_read_unlock();
        EXPECT_EQ(sblk_store_write(two.get(), 0, a.data(), a.size(), GFP_KERNEL), 0);
        // For a journal, too: it begins in a moment in which its pages are on their way.
        EXPECT_EQ(sblk_store_discard(two.get(), 0, a.size(), GFP_NOWAIT), 0);
        EXPECT_EQ(sblk_journal_init(&journal, 4 * page), 0);
        sblk_journal_destroy(&journal);
    }
    sblk_pages_set_limit(~u64{0});
}

TEST(Store, WhoeverMayWaitGetsMemoryWhereOthersFail) {
    const Store base = make_store(16 * page);
    const Bytes a(8 * page, 'a');
    ASSERT_EQ(sblk_store_write(base.get(), 0, a.data(), a.size(), GFP_KERNEL), 0);
    const Store clone = make_store(16 * page, base.get());
    user_fail_atomic(true);
    EXPECT_EQ(sblk_store_write(clone.get(), 0, a.data(), page, GFP_NOWAIT), -ENOMEM);
    EXPECT_EQ(sblk_store_write(clone.get(), 0, a.data(), page, GFP_NOIO), 0);
    // A hole over what lies below needs a leaf, and a part of a page a page; a whole page of its own goes by itself.
    const Store other = make_store(16 * page, base.get());
    EXPECT_EQ(sblk_store_discard(other.get(), 0, page, GFP_NOWAIT), -ENOMEM);
    EXPECT_EQ(sblk_store_discard(other.get(), 0, page + 512, GFP_NOIO), 0);
    user_fail_atomic(false);
    Bytes expected(16 * page, 0);
    std::copy(a.begin() + page + 512, a.end(), expected.begin() + page + 512);
    EXPECT_EQ(contents(other.get()), expected);
}

TEST(Store, PopulatedItNeedsNoMore) {
    const Store store = make_store(10 * page + 512);
    ASSERT_EQ(sblk_store_populate(store.get(), 0), 0);
    EXPECT_EQ(sblk_store_allocated_bytes(store.get()), 11 * page);
    user_fail_after(0);
    const Bytes a(5 * page, 'a');
    EXPECT_EQ(sblk_store_write(store.get(), 1024, a.data(), a.size(), GFP_NOWAIT), 0);
    user_fail_after(-1);
    user_fail_after(3);
    const Store fails = make_store(10 * page);
    EXPECT_EQ(sblk_store_populate(fails.get(), 0), -ENOMEM);
    user_fail_after(-1);
    user_interrupt(true);
    const Store stopped = make_store(10 * page);
    EXPECT_EQ(sblk_store_populate(stopped.get(), 0), -EINTR);
    user_interrupt(false);
    // Discards zero it and give nothing back.
    ASSERT_EQ(sblk_store_discard(store.get(), 0, 10 * page, GFP_NOWAIT), 0);
    EXPECT_EQ(sblk_store_allocated_bytes(store.get()), 11 * page);
    EXPECT_EQ(contents(store.get()), Bytes(10 * page + 512, 0));
    // A smaller size does.
    ASSERT_EQ(sblk_store_resize(store.get(), 3 * page + 512), 0);
    EXPECT_EQ(sblk_store_allocated_bytes(store.get()), 4 * page);
}

TEST(Layers, TheUpperHidesTheLowerWhichNeverChanges) {
    Store base = make_store(8 * page);
    const Bytes a(8 * page, 'a');
    ASSERT_EQ(sblk_store_write(base.get(), 0, a.data(), a.size(), GFP_KERNEL), 0);
    const Store top = make_store(8 * page, base.get());
    const Bytes b(512, 'b');
    ASSERT_EQ(sblk_store_write(top.get(), page + 512, b.data(), b.size(), GFP_KERNEL), 0);
    ASSERT_EQ(sblk_store_discard(top.get(), 3 * page, page, GFP_KERNEL), 0);
    ASSERT_EQ(sblk_store_discard(top.get(), 5 * page + 512, 512, GFP_KERNEL), 0);
    Bytes expected = a;
    std::fill_n(expected.begin() + page + 512, 512, 'b');
    std::fill_n(expected.begin() + 3 * page, page, 0);
    std::fill_n(expected.begin() + 5 * page + 512, 512, 0);
    EXPECT_EQ(contents(top.get()), expected);
    EXPECT_EQ(contents(base.get()), a);
    // A first write onto a hole is of zeroes around it, not of what lies below.
    ASSERT_EQ(sblk_store_write(top.get(), 3 * page, b.data(), b.size(), GFP_KERNEL), 0);
    std::fill_n(expected.begin() + 3 * page, 512, 'b');
    EXPECT_EQ(contents(top.get()), expected);
}

TEST(Layers, MergingChangesNothingToRead) {
    std::mt19937 random(7);
    Store base = make_store(64 * page);
    Store middle;
    Store top;
    const auto scribble = [&](sblk_store* store) {
        for (int i = 0; i < 40; ++i) {
            const u64 pos = (random() % (64 * 8)) * 512;
            const u64 len = std::min<u64>((1 + random() % 24) * 512, 64 * page - pos);
            if (random() % 3 != 0) {
                const Bytes data(len, static_cast<std::uint8_t>(random()));
                ASSERT_EQ(sblk_store_write(store, pos, data.data(), len, GFP_KERNEL), 0);
            } else {
                ASSERT_EQ(sblk_store_discard(store, pos, len, GFP_KERNEL), 0);
            }
        }
    };
    scribble(base.get());
    middle = make_store(64 * page, base.get());
    scribble(middle.get());
    top = make_store(64 * page, middle.get());
    scribble(top.get());
    const Bytes expected = contents(top.get());
    const Bytes below = contents(base.get());
    middle.reset();
    sblk_store_merge(top.get());
    EXPECT_EQ(top->base, base.get());
    EXPECT_EQ(contents(top.get()), expected);
    EXPECT_EQ(contents(base.get()), below);
    base.reset();
    sblk_store_merge(top.get());
    EXPECT_EQ(top->base, nullptr);
    EXPECT_EQ(contents(top.get()), expected);
}

// Each thread has its own sectors, but they share pages: first writes, copies up and discards race for the same slots.
TEST(Threads, RacingFirstWritesLoseNothing) {
    constexpr int threads = 4;
    constexpr u64 pages = 64;
    const Store base = make_store(pages * page);
    const Bytes below(pages * page, 0xee);
    ASSERT_EQ(sblk_store_write(base.get(), 0, below.data(), below.size() / 2, GFP_KERNEL), 0);
    for (int round = 0; round < 20; ++round) {
        const Store store = make_store(pages * page, base.get());
        std::vector<std::thread> running;
        for (int t = 0; t < threads; ++t) {
            running.emplace_back([&, t] {
                for (u64 i = 0; i < pages; ++i) {
                    Bytes data(1024, static_cast<std::uint8_t>(t + 1));
                    const u64 pos = i * page + static_cast<u64>(t) * 1024;
                    EXPECT_EQ(sblk_store_write(store.get(), pos, data.data(), data.size(), GFP_KERNEL), 0);
                    Bytes back(1024);
                    sblk_store_read(store.get(), pos, back.data(), back.size());
                    EXPECT_EQ(back, data);
                }
            });
        }
        for (std::thread& thread : running) {
            thread.join();
        }
        const Bytes all = contents(store.get());
        for (u64 i = 0; i < all.size(); ++i) {
            ASSERT_EQ(all[i], i % page / 1024 + 1) << i;
        }
    }
}

// Changes replace pages: every sector read is of one write, whatever races with it.
TEST(Threads, ChangesTearNoSector) {
    constexpr u64 pages = 4;
    const Store store = make_store(pages * page);
    sblk_medium medium{};
    sblk_medium_init(&medium, store.get());
    medium.sector_atomic = true;
    std::atomic<bool> stop{false};
    std::vector<std::thread> running;
    const auto change = [&](u32 type, u64 pos, const Bytes& data) {
        sblk_ticket ticket{};
        EXPECT_TRUE(sblk_medium_submit(&medium, &ticket, type, 0));
        int err = -EAGAIN;
        while (err == -EAGAIN) {
            sblk_record* record = sblk_medium_record(&medium, type, pos, data.size(), false, 0, GFP_NOIO);
            if (type == SAMPLEBLK_OP_WRITE) {
                sblk_change_fill(&record->change, 0, data.data(), data.size());
            }
            u64 overflow = 0;
            err = sblk_medium_change(&medium, &ticket, record, type, &overflow);
        }
        EXPECT_EQ(err, 0);
        sblk_flushed flushed{};
        EXPECT_TRUE(sblk_medium_complete(&medium, &ticket, false, 0, &flushed));
    };
    for (int t = 0; t < 2; ++t) {
        running.emplace_back([&, t] {
            for (int i = 0; i < 300; ++i) {
                const u64 pos = i % 3 == 0 ? 512 : 0;
                const Bytes data(pages * page - pos, static_cast<std::uint8_t>(2 * i + t));
                change(i % 16 == 15 ? SAMPLEBLK_OP_DISCARD : SAMPLEBLK_OP_WRITE, pos, data);
            }
            stop = true;
        });
    }
    running.emplace_back([&] {
        Bytes sector(512);
        u64 n = 0;
        while (!stop) {
            sblk_store_read(store.get(), (n++ % (pages * 8)) * 512, sector.data(), sector.size());
            for (const std::uint8_t byte : sector) {
                ASSERT_EQ(byte, sector[0]);
            }
        }
    });
    for (std::thread& thread : running) {
        thread.join();
    }
}

}  // namespace
}  // namespace sampleblk_module
