// SPDX-License-Identifier: GPL-2.0-only
// What the comparison with null_blk (tests/vm/test_device_zoned.py) does not reach: limits at their edges, appends, races.
#include <gtest/gtest.h>

#include <algorithm>
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

// One write as the driver does it; where it went, or the error.
s64 write(const Zones& zones, u64 pos, u64 len, bool append = false) {
    unsigned long irq = 0;
    spin_lock_irqsave(&zones->lock, irq);
    const int err = sblk_zones_admit(zones.get(), &pos, len, append);
    if (err == 0) {
        sblk_zones_advance(zones.get(), pos, len);
    }
    spin_unlock_irqrestore(&zones->lock, irq);
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
    for (const u32 flag : {SAMPLEBLK_F_CACHE, SAMPLEBLK_F_DISCARD, SAMPLEBLK_F_WRITE_ZEROES, SAMPLEBLK_F_SECTOR_ATOMIC}) {
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
