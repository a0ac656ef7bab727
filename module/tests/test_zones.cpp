// SPDX-License-Identifier: GPL-2.0-only
// What the comparison with null_blk (tests/vm/test_device_zoned.py) does not reach: limits at their edges, appends,
// races, writes that wait for memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "core.hpp"

namespace sampleblk_module {
namespace {

constexpr u64 kZone = 64U << 10;

struct ZonesDestroy {
    void operator()(sblk_zones* zones) const { sblk_zones_destroy(zones); }
};
using Zones = std::unique_ptr<sblk_zones, ZonesDestroy>;

sampleblk_config config_of(u32 zones, u32 open = 0, u32 active = 0) {
    sampleblk_config config{};
    config.capacity_bytes = zones * kZone;
    config.logical_block_bytes = 512;
    config.zone_bytes = kZone;
    config.max_open_zones = open;
    config.max_active_zones = active;
    return config;
}

Zones make(sampleblk_config config) {
    EXPECT_EQ(sblk_zones_configure(&config), 0);
    return Zones(sblk_zones_create(&config));
}

using Change = std::function<int()>;

int call(void* change) {
    return (*static_cast<Change*>(change))();
}

int in_turn(const Zones& zones, Change change) {
    return sblk_zones_change(zones.get(), call, &change);
}

int in_line(const Zones& zones, Change change) {
    return sblk_zones_change_in_line(zones.get(), call, &change);
}

// One write as the driver does it; where it went, or the error.
s64 write(const Zones& zones, u64 pos, u64 len, bool append = false) {
    const int err = in_turn(zones, [&] {
        const int refused = sblk_zones_admit(zones.get(), &pos, len, append);
        if (refused == 0) {
            sblk_zones_advance(zones.get(), pos, len);
        }
        return refused;
    });
    return err != 0 ? err : static_cast<s64>(pos);
}

u8 condition(const Zones& zones, u32 number) {
    return sblk_zones_report(zones.get(), number).cond;
}

TEST(Zones, WhatNoDeviceCanBe) {
    const auto refused = [](auto change) {
        sampleblk_config config = config_of(16);
        change(config);
        return sblk_zones_configure(&config) == -EINVAL;
    };
    EXPECT_FALSE(refused([](sampleblk_config&) {}));
    EXPECT_TRUE(refused([](sampleblk_config& c) { c.zone_bytes = 3 * kZone; }));
    EXPECT_TRUE(refused([](sampleblk_config& c) { c.zone_bytes = kZone / 2; }));
    EXPECT_TRUE(refused([](sampleblk_config& c) { c.capacity_bytes += 512; }));
    EXPECT_TRUE(refused([](sampleblk_config& c) { c.capacity_bytes = kZone * ((1ULL << 20) + 1); }));
    EXPECT_TRUE(refused([](sampleblk_config& c) { c.conventional_zones = 16; }));
    EXPECT_TRUE(refused([](sampleblk_config& c) { c.zone_capacity_bytes = kZone + 512; }));
    EXPECT_TRUE(refused([](sampleblk_config& c) { c.zone_capacity_bytes = 100; }));
    EXPECT_TRUE(refused([](sampleblk_config& c) { c.max_open_zones = 2, c.max_active_zones = 1; }));
    EXPECT_TRUE(refused([](sampleblk_config& c) { c.mode = SAMPLEBLK_MODE_BIO; }));
    EXPECT_TRUE(refused([](sampleblk_config& c) { c.zone_bytes = 0, c.max_open_zones = 1; }));
    for (const u32 flag :
         {SAMPLEBLK_F_CACHE, SAMPLEBLK_F_DISCARD, SAMPLEBLK_F_WRITE_ZEROES, SAMPLEBLK_F_SECTOR_ATOMIC}) {
        EXPECT_TRUE(refused([=](sampleblk_config& c) { c.flags = flag; }));
    }
}

TEST(Zones, AppendsGoWhereTheZoneGoesOn) {
    const Zones zones = make(config_of(4));
    EXPECT_EQ(write(zones, kZone, 4096, true), static_cast<s64>(kZone));
    EXPECT_EQ(write(zones, kZone, 512, true), static_cast<s64>(kZone + 4096));
    EXPECT_EQ(write(zones, kZone + 4096, 512, true), -EIO);
    EXPECT_EQ(write(zones, kZone + 4096, 512), -EIO);
    EXPECT_EQ(write(zones, kZone, kZone, true), -EIO);
    EXPECT_EQ(write(zones, kZone, kZone - 4608, true), static_cast<s64>(kZone + 4608));
    EXPECT_EQ(condition(zones, 1), BLK_ZONE_COND_FULL);
    EXPECT_EQ(write(zones, kZone, 512, true), -EIO);
    // Not into the next zone.
    EXPECT_EQ(write(zones, 0, 2 * kZone), -EIO);
}

TEST(Zones, AnOpenZoneMakesWay) {
    const Zones zones = make(config_of(6, 2, 3));
    EXPECT_EQ(write(zones, 0, 512), 0);
    EXPECT_EQ(sblk_zones_manage(zones.get(), kZone, SBLK_ZONE_OPEN), 0);
    EXPECT_EQ(write(zones, 2 * kZone, 512), static_cast<s64>(2 * kZone));
    EXPECT_EQ(condition(zones, 0), BLK_ZONE_COND_CLOSED);
    // Three are active; one of them may be opened again, for which another makes way.
    EXPECT_EQ(write(zones, 3 * kZone, 512), -ENFILE);
    EXPECT_EQ(write(zones, 512, 512), 512);
    EXPECT_EQ(condition(zones, 2), BLK_ZONE_COND_CLOSED);
    // Those that were opened by a call do not.
    EXPECT_EQ(sblk_zones_manage(zones.get(), 0, SBLK_ZONE_OPEN), 0);
    EXPECT_EQ(write(zones, 2 * kZone + 512, 512), -EMFILE);
    EXPECT_EQ(sblk_zones_manage(zones.get(), 2 * kZone, SBLK_ZONE_FINISH), -EMFILE);
    EXPECT_EQ(sblk_zones_reset(zones.get(), 0), 0);
    EXPECT_EQ(sblk_zones_manage(zones.get(), 2 * kZone, SBLK_ZONE_FINISH), 0);
    EXPECT_EQ(sblk_zones_readable(zones.get(), 2 * kZone, 4096), 512U);
    sblk_zones_power_cut(zones.get());
    EXPECT_EQ(condition(zones, 1), BLK_ZONE_COND_EMPTY);
    EXPECT_EQ(zones->explicitly_open + zones->implicitly_open + zones->closed, 0U);
}

TEST(Zones, WhoeverComesAfterOneThatWaitsIsInLineBehindIt) {
    const Zones zones = make(config_of(4));
    EXPECT_EQ(in_turn(zones, [] { return -ENOMEM; }), -ENOMEM);
    EXPECT_EQ(write(zones, kZone, 512), -ENOMEM);
    EXPECT_EQ(sblk_zones_readable(zones.get(), kZone, 512), 0U);
    EXPECT_EQ(in_line(zones, [] { return 0; }), 0);
    EXPECT_EQ(write(zones, 0, 512), -ENOMEM);
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(in_line(zones, [] { return -ENOMEM; }), -ENOMEM);
    }
    EXPECT_EQ(write(zones, kZone, 512), static_cast<s64>(kZone));
}

// Appends of which some have no memory at first, resets, and a worker for those in line, who stops at any time as if
// the power had gone: before the write pointer there is what has been written since the zone was reset, and nothing
// else.
TEST(Zones, BeforeTheWritePointerIsWhatWasWrittenSinceTheReset) {
    constexpr u32 kZones = 3;
    constexpr int kThreads = 3;
    const Zones zones = make(config_of(kZones));
    const Store store = make_store(kZones * kZone);
    std::array<u8, kZones> generation{};
    std::mutex mutex;
    std::deque<Change> line;
    std::atomic<u64> waited = 0;
    std::atomic<int> running = kThreads;

    const auto append = [&](u32 number, bool memory) {
        u64 pos = number * kZone;
        if (sblk_zones_admit(zones.get(), &pos, 1024, true) != 0) {
            return 0;
        }
        const std::array<u8, 512> data = [&] {
            std::array<u8, 512> bytes;
            bytes.fill(generation[number]);
            return bytes;
        }();
        EXPECT_EQ(sblk_store_write(store.get(), pos, data.data(), data.size(), GFP_NOWAIT), 0);
        if (!memory) {
            return -ENOMEM;
        }
        EXPECT_EQ(sblk_store_write(store.get(), pos + 512, data.data(), data.size(), GFP_NOWAIT), 0);
        sblk_zones_advance(zones.get(), pos, 1024);
        return 0;
    };
    const auto reset = [&](u32 number) {
        EXPECT_EQ(sblk_store_discard(store.get(), number * kZone, kZone, GFP_NOWAIT), 0);
        EXPECT_EQ(sblk_zones_reset(zones.get(), number * kZone), 0);
        ++generation[number];
        return 0;
    };

    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            std::mt19937 random(static_cast<unsigned>(t));
            for (int i = 0; i < 4000; ++i) {
                const u32 number = random() % kZones;
                const bool memory = random() % 8 != 0;
                const Change change = random() % 16 == 0 ? Change([=] { return reset(number); })
                                                         : Change([=] { return append(number, memory); });
                if (in_turn(zones, change) == -ENOMEM) {
                    ++waited;
                    const std::lock_guard lock(mutex);
                    line.push_back(memory ? change : Change([=] { return append(number, true); }));
                }
            }
            --running;
        });
    }
    while (running != 0) {
        Change change;
        {
            const std::lock_guard lock(mutex);
            if (!line.empty()) {
                change = line.front();
                line.pop_front();
            }
        }
        if (change) {
            EXPECT_EQ(in_line(zones, change), 0);
        }
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_GT(waited, 0U);
    sblk_zones_power_cut(zones.get());
    const Bytes all = contents(store.get());
    for (u32 number = 0; number < kZones; ++number) {
        const auto from = all.begin() + static_cast<std::ptrdiff_t>(number * kZone);
        const u64 written = sblk_zones_readable(zones.get(), number * kZone, kZone);
        EXPECT_EQ(std::count(from, from + static_cast<std::ptrdiff_t>(written), generation[number]), written);
    }
}

TEST(Zones, NothingIsWrittenTwiceAndTheCountsHold) {
    const Zones zones = make(config_of(8, 3, 5));
    constexpr int kThreads = 4;
    std::vector<std::vector<s64>> went(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 2000; ++i) {
                const u64 zone = static_cast<u64>((i + t) % 8) * kZone;
                const s64 pos = write(zones, zone, 512, true);
                if (pos >= 0) {
                    went[t].push_back(pos);
                }
                if (i % 7 == t) {
                    (void)sblk_zones_manage(zones.get(), zone, SBLK_ZONE_OPEN);
                    (void)sblk_zones_manage(zones.get(), zone, SBLK_ZONE_CLOSE);
                }
                EXPECT_LE(sblk_zones_readable(zones.get(), zone, kZone), kZone);
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    std::vector<s64> all;
    for (const auto& each : went) {
        all.insert(all.end(), each.begin(), each.end());
    }
    std::sort(all.begin(), all.end());
    EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
    u32 open = 0;
    u32 closed = 0;
    u64 written = 0;
    for (u32 i = 0; i < zones->nr; ++i) {
        const u8 cond = condition(zones, i);
        open += cond == BLK_ZONE_COND_IMP_OPEN || cond == BLK_ZONE_COND_EXP_OPEN;
        closed += cond == BLK_ZONE_COND_CLOSED;
        written += zones->zones[i].written;
    }
    EXPECT_EQ(written, all.size() * 512);
    EXPECT_EQ(open, zones->explicitly_open + zones->implicitly_open);
    EXPECT_EQ(closed, zones->closed);
    EXPECT_LE(open, 3U);
    EXPECT_LE(open + closed, 5U);
}

}  // namespace
}  // namespace sampleblk_module
