// SPDX-License-Identifier: MIT
// What can be said of the control room without the driver: names, checks, and the ABI's sizes. The calls themselves are
// tested inside the VM (tests/vm/test_device_*.py).
#include <gtest/gtest.h>

#include <cerrno>

#include "sampleblk/device.hpp"
#include "sampleblk/error.hpp"

namespace sampleblk {
namespace {

sampleblk_config plain() {
    sampleblk_config config{};
    config.capacity_bytes = 64U << 20;
    config.flags = SAMPLEBLK_F_DEFAULT;
    return config;
}

void expect_refused(const sampleblk_config& config, const std::string& part) {
    try {
        check_config(config);
        FAIL() << "accepted, expected an error with: " << part;
    } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
}

TEST(Device, PathIsTheKernelsName) {
    EXPECT_EQ(device_path(7), "/dev/sampleblk7");
}

TEST(Device, BinsOfAMeasuredLatency) {
    LatencyStats stats;
    EXPECT_THROW((void)latency_bins(stats), InputError);
    for (const std::uint64_t ns : {100U, 20'000U, 20'001U, 10'100U}) {
        stats.add(ns);
    }
    stats.add(~std::uint64_t{0} >> 1);
    std::uint64_t before = 0;
    std::uint64_t total = 0;
    for (const sampleblk_bin& bin : latency_bins(stats)) {
        EXPECT_GT(bin.up_to_ns, before);
        EXPECT_LE(bin.up_to_ns, SAMPLEBLK_MAX_LATENCY_NS);
        if (bin.count == 2) {
            EXPECT_LE(before, 20'000U);
            EXPECT_GT(bin.up_to_ns, 20'001U);
        }
        before = bin.up_to_ns;
        total += bin.count;
    }
    EXPECT_EQ(total, 5U);
}

TEST(Device, TakesWhatTheKernelTakes) {
    EXPECT_NO_THROW(check_config(plain()));
    sampleblk_config config = plain();
    config.logical_block_bytes = 4096;
    config.queues = SAMPLEBLK_MAX_QUEUES;
    config.flags |= SAMPLEBLK_F_CACHE | SAMPLEBLK_F_FUA;
    EXPECT_NO_THROW(check_config(config));
}

TEST(Device, NamesTheValueItRefuses) {
    sampleblk_config config = plain();
    config.capacity_bytes = 100;
    expect_refused(config, "capacity 100 bytes");
    config = plain();
    config.capacity_bytes = (64U << 20) + 512;
    config.logical_block_bytes = 4096;
    expect_refused(config, "multiple of the logical block, 4096");
    config = plain();
    config.logical_block_bytes = 768;
    expect_refused(config, "logical block of 768 bytes");
    config = plain();
    config.queues = 65;
    expect_refused(config, "queues 65");
    config = plain();
    config.flags |= SAMPLEBLK_F_FUA;
    expect_refused(config, "FUA without a volatile cache");
}

TEST(Device, NamesTheSizesItRefuses) {
    const auto refused = [](auto member, std::uint64_t value, const std::string& part) {
        sampleblk_config config = plain();
        config.*member = static_cast<std::decay_t<decltype(config.*member)>>(value);
        expect_refused(config, part);
    };
    refused(&sampleblk_config::io_min_bytes, 512, "io_min of 512 (expected a multiple of 4096 from 4096");
    refused(&sampleblk_config::io_opt_bytes, 6144, "io_opt of 6144");
    refused(&sampleblk_config::max_sectors, 7, "max_sectors of 7");
    refused(&sampleblk_config::max_segments, 1025, "max_segments of 1025");
    refused(&sampleblk_config::discard_granularity_bytes, 2048, "discard_granularity of 2048");
    refused(&sampleblk_config::discard_alignment_bytes, 512, "discard_alignment without");
    refused(&sampleblk_config::atomic_write_unit_min_bytes, 4096, "without atomic_write");
    refused(&sampleblk_config::atomic_write_unit_max_bytes, 12288, "atomic_write of 12288");
    sampleblk_config config = plain();
    config.logical_block_bytes = 4096;
    config.max_segments = 7;
    expect_refused(config, "max_segments of 7 (expected from 8 to 1024)");
    config = plain();
    config.flags |= SAMPLEBLK_F_CACHE;
    config.cache_bytes = 4096;
    expect_refused(config, "cache_size of 4096 (expected from 65536");
}

TEST(Device, NamesTheZonesItRefuses) {
    sampleblk_config zoned = plain();
    zoned.flags = 0;
    zoned.zone_bytes = 1U << 20;
    EXPECT_NO_THROW(check_config(zoned));
    sampleblk_config config = zoned;
    config.flags = SAMPLEBLK_F_DISCARD;
    expect_refused(config, "zones together with discard");
    config = zoned;
    config.mode = SAMPLEBLK_MODE_BIO;
    expect_refused(config, "zones together with mode bio");
    config = zoned;
    config.zone_bytes = 3U << 20;
    expect_refused(config, "zone of 3145728 bytes");
    config = zoned;
    config.capacity_bytes += 4096;
    expect_refused(config, "a multiple of the zone, 1048576");
    config = zoned;
    config.conventional_zones = 64;
    expect_refused(config, "fewer than there are zones, 64");
    config = zoned;
    config.zone_capacity_bytes = 513;
    expect_refused(config, "zone_capacity 513 bytes");
    config = zoned;
    config.max_open_zones = 3;
    config.max_active_zones = 2;
    expect_refused(config, "at most max_active_zones, 2");
    config = plain();
    config.max_open_zones = 3;
    expect_refused(config, "max_open_zones 3 without zones");
}

TEST(Device, WithoutTheDriverOpeningSaysWhichFile) {
    try {
        const DeviceControl control("/nonexistent/sampleblk-control");
        FAIL();
    } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), ENOENT);
        EXPECT_EQ(error.path(), "/nonexistent/sampleblk-control");
    }
}

TEST(Device, AFileThatIsNoControlDeviceIsRefused) {
    const DeviceControl control("/dev/null");
    try {
        (void)control.list();
        FAIL();
    } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), ENOTTY);
    }
}

// The sizes are the ABI: a change is a new structure at the old one's end, and shows up here.
TEST(Device, StructuresHaveTheirPublishedSize) {
    EXPECT_EQ(sizeof(sampleblk_config), 136U);
    EXPECT_EQ(sizeof(sampleblk_remove), 24U);
    EXPECT_EQ(sizeof(sampleblk_list), 56U);
    EXPECT_EQ(sizeof(sampleblk_info), 216U);
    EXPECT_EQ(sizeof(sampleblk_counters), 200U);
    EXPECT_EQ(sizeof(sampleblk_histogram), 552U);
    EXPECT_EQ(sizeof(sampleblk_reset), 24U);
    EXPECT_EQ(sizeof(sampleblk_tune), 64U);
    EXPECT_EQ(sizeof(sampleblk_timing), 80U);
    EXPECT_EQ(sizeof(sampleblk_limits), 80U);
    EXPECT_EQ(sizeof(sampleblk_rule), 96U);
    EXPECT_EQ(sizeof(sampleblk_faults), 56U);
    EXPECT_EQ(sizeof(sampleblk_power), 104U);
    EXPECT_EQ(sizeof(sampleblk_volatile_list), 64U);
    EXPECT_EQ(sizeof(sampleblk_journal_header), 80U);
    EXPECT_EQ(sizeof(sampleblk_journal_entry), 96U);
    EXPECT_EQ(sizeof(sampleblk_journal), 96U);
    EXPECT_EQ(sizeof(sampleblk_mark), 144U);
    EXPECT_EQ(sizeof(sampleblk_seek), 40U);
    EXPECT_EQ(sizeof(sampleblk_snapshot), 320U);
}

}  // namespace
}  // namespace sampleblk
