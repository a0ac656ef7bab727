// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "sampleblk/table.hpp"

namespace sampleblk {
namespace {

TEST(StringPool, GivesEachStringOneStableCode) {
    StringPool pool;
    EXPECT_EQ(pool.intern("write"), 0);
    EXPECT_EQ(pool.intern("read"), 1);
    for (int i = 0; i < 1000; ++i) {
        pool.intern(std::to_string(i));
    }
    EXPECT_EQ(pool.intern("write"), 0);
    EXPECT_EQ(pool.at(1), "read");
    EXPECT_EQ(pool.size(), 1002U);
    EXPECT_EQ(pool.find("999"), 1001);
    EXPECT_FALSE(pool.find("none").has_value());
}

// Arrow and Python take nothing else.
TEST(StringPool, IsUtf8) {
    StringPool pool;
    const std::int32_t code = pool.intern("na\xff\xc3\xa9me");
    EXPECT_EQ(pool.at(code), "na\\xff\xc3\xa9me");
    EXPECT_EQ(pool.intern("na\xff\xc3\xa9me"), code);
    EXPECT_EQ(pool.intern("na\\xff\xc3\xa9me"), code);
    EXPECT_EQ(pool.find("na\xff\xc3\xa9me"), code);
    EXPECT_FALSE(pool.find("\xff").has_value());
    EXPECT_EQ(pool.size(), 1U);
}

TEST(Column, KnowsItsTypeAndRefusesAnother) {
    const Column column("latency", std::vector<std::uint64_t>{1, 2, 3}, "ns");
    EXPECT_EQ(column.type(), ColumnType::u64);
    EXPECT_EQ(column.unit(), "ns");
    EXPECT_EQ(column.values<std::uint64_t>()[2], 3U);
    EXPECT_THROW((void)column.values<double>(), std::invalid_argument);
}

TEST(Column, CopiesShareTheirData) {
    const Column column("x", std::vector<std::int32_t>(1000, 7));
    const Column copy = column;  // NOLINT(performance-unnecessary-copy-initialization): the copy is what is tested
    EXPECT_EQ(copy.data(), column.data());
}

TEST(Column, RefusesCodesOutsideThePool) {
    auto pool = std::make_shared<StringPool>();
    pool->intern("a");
    EXPECT_NO_THROW(Column("s", std::vector<std::int32_t>{0, -1}, pool));
    EXPECT_THROW(Column("s", std::vector<std::int32_t>{1}, pool), std::invalid_argument);
    EXPECT_THROW(Column("s", std::vector<std::int32_t>{-2}, pool), std::invalid_argument);
    EXPECT_THROW(Column("s", std::vector<std::int32_t>{}, nullptr), std::invalid_argument);
}

TEST(Table, HoldsColumnsOfOneLength) {
    const Table table({Column("a", std::vector<std::int8_t>{1, 2}), Column("b", std::vector<double>{0.5, 1.5})});
    EXPECT_EQ(table.rows(), 2U);
    ASSERT_NE(table.find("b"), nullptr);
    EXPECT_EQ(table.find("b")->values<double>()[1], 1.5);
    EXPECT_EQ(table.find("c"), nullptr);
    EXPECT_THROW(Table({Column("a", std::vector<double>{1}), Column("b", std::vector<double>{})}),
                 std::invalid_argument);
    EXPECT_THROW(Table({Column("a", std::vector<double>{1}), Column("a", std::vector<double>{1})}),
                 std::invalid_argument);
}

}  // namespace
}  // namespace sampleblk
