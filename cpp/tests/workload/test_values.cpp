// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "sampleblk/error.hpp"
#include "sampleblk/workload/values.hpp"

namespace sampleblk::workload {
namespace {

TEST(Values, NumbersHaveUnits) {
    EXPECT_EQ(parse_number("4096"), 4096);
    EXPECT_EQ(parse_number("0x1000"), 4096);
    EXPECT_EQ(parse_number("-8k"), -8192);
    EXPECT_EQ(parse_number("4k"), 4096);
    EXPECT_EQ(parse_number("4KB"), 4096);
    EXPECT_EQ(parse_number("2M"), 2 << 20);
    EXPECT_EQ(parse_number("1P"), std::int64_t{1} << 50);
    EXPECT_EQ(parse_number("512b"), 512);
}

// What fio 3.33 prints for bs=4Ki, 4KiB, 4kB: only the full IEC form counts the other way round.
TEST(Values, FullIecUnitsAreTheOppositeOfTheBase) {
    EXPECT_EQ(parse_number("4Ki"), 4096);
    EXPECT_EQ(parse_number("4KiB"), 4000);
    EXPECT_EQ(parse_number("4k", KbBase::si), 4000);
    EXPECT_EQ(parse_number("4KiB", KbBase::si), 4096);
}

TEST(Values, Arithmetic) {
    EXPECT_EQ(parse_number("(4*1k)"), 4096);
    EXPECT_EQ(parse_number("(2*4096+1)"), 8193);
    EXPECT_EQ(parse_number("(2+3)*4k"), 20480);
    EXPECT_EQ(parse_number("(2^10)"), 1024);
    EXPECT_EQ(parse_number("(7%4)"), 3);
    EXPECT_EQ(parse_number("(-(4-1))"), -3);
    EXPECT_EQ(parse_number("1.5k"), 1536);
    EXPECT_THROW((void)parse_number("(4/0)"), InputError);
    EXPECT_THROW((void)parse_number("(4"), InputError);
    EXPECT_THROW((void)parse_number("4 k k"), InputError);
    EXPECT_THROW((void)parse_number(std::string(10000, '(')), InputError);
    EXPECT_THROW((void)parse_number(std::string(10000, '-') + "1"), InputError);
    // Of "16k-4k" fio takes the second number, of "4k*2" the first.
    for (const char* bare : {"16k-4k", "4k*2", "2+3", "2^10", "4k 8k"}) {
        EXPECT_THROW((void)parse_number(bare), InputError) << bare;
    }
}

TEST(Values, RefusalsNameTheValue) {
    for (const char* bad : {"", "k", "4x", "inf", "nan", "99999999999999999999", "8E", "1e300"}) {
        EXPECT_THROW((void)parse_number(bad), InputError) << bad;
    }
    try {
        (void)parse_unsigned("-1M");
        FAIL();
    } catch (const InputError& error) {
        EXPECT_NE(error.message().find("'-1M' is negative"), std::string::npos);
    }
}

TEST(Values, Durations) {
    constexpr std::uint64_t s = 1'000'000'000;
    EXPECT_EQ(parse_duration("30", s), 30 * s);
    EXPECT_EQ(parse_duration("500ms", s), s / 2);
    EXPECT_EQ(parse_duration("10us", s), 10'000U);
    EXPECT_EQ(parse_duration("1m30s", s), 90 * s);
    EXPECT_EQ(parse_duration("2h", s), 7200 * s);
    EXPECT_EQ(parse_duration("1d", s), 86400 * s);
    EXPECT_EQ(parse_duration("100", 1000), 100'000U);
    EXPECT_EQ(parse_duration("(2*5)", s), 10 * s);
    for (const char* bad : {"", "s", "-1s", "1:30", "1m30", "1parsec", "1e99", "(18446744075)", "18446744075"}) {
        EXPECT_THROW((void)parse_duration(bad, s), InputError) << bad;
    }
}

TEST(Values, RangesPercentagesAndTriples) {
    EXPECT_EQ(parse_range("1k-4k").lower, 1024U);
    EXPECT_EQ(parse_range("4k-1k").upper, 4096U);
    EXPECT_EQ(parse_range("8k").lower, 8192U);
    EXPECT_EQ(parse_size_or_percent("20%").percent, 20U);
    EXPECT_EQ(parse_size_or_percent("2M").bytes, 2U << 20);
    EXPECT_THROW((void)parse_size_or_percent("120%"), InputError);
    EXPECT_THROW((void)parse_size_or_percent("3z"), InputError);

    const auto only_write = split_triple(",4k");
    EXPECT_FALSE(only_write[0]);
    EXPECT_EQ(only_write[1], "4k");
    EXPECT_EQ(only_write[2], "4k");
    const auto no_trim = split_triple(",4k,");
    EXPECT_FALSE(no_trim[2]);
    const auto all = split_triple("4k");
    EXPECT_EQ(all[2], "4k");
    for (const char* bad : {"1,2,3,4", "", " ", ",,"}) {
        EXPECT_THROW((void)split_triple(bad), InputError) << bad;
    }
}

TEST(Values, Booleans) {
    EXPECT_TRUE(parse_bool(""));
    EXPECT_TRUE(parse_bool("1"));
    EXPECT_FALSE(parse_bool("0"));
    EXPECT_THROW((void)parse_bool("maybe"), InputError);
}

}  // namespace
}  // namespace sampleblk::workload
