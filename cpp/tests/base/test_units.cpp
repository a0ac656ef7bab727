// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "sampleblk/error.hpp"
#include "sampleblk/units.hpp"

namespace sampleblk {
namespace {

TEST(ParseBytes, TakesEveryForm) {
    EXPECT_EQ(parse_bytes("0"), 0U);
    EXPECT_EQ(parse_bytes("4096"), 4096U);
    EXPECT_EQ(parse_bytes("0x1000"), 4096U);
    EXPECT_EQ(parse_bytes("4k"), 4096U);
    EXPECT_EQ(parse_bytes("4K"), 4096U);
    EXPECT_EQ(parse_bytes("64M"), 64U << 20);
    EXPECT_EQ(parse_bytes("2MiB"), 2U << 20);
    EXPECT_EQ(parse_bytes("2MB"), 2000000U);
    EXPECT_EQ(parse_bytes("8s"), 4096U);
    EXPECT_EQ(parse_bytes("18446744073709551615"), UINT64_MAX);
    EXPECT_EQ(parse_bytes("16383P"), 16383ULL << 50);
}

TEST(ParseBytes, NamesWhatItRefuses) {
    for (const char* text : {"", "k", "-1", "1.5G", "4kk", "4 k", "0x", "18446744073709551616", "16384P", "4q"}) {
        try {
            (void)parse_bytes(text, "capacity");
            ADD_FAILURE() << "accepted '" << text << "'";
        } catch (const InputError& error) {
            EXPECT_NE(std::string(error.what()).find("capacity '" + std::string(text) + "'"), std::string::npos)
                << error.what();
            EXPECT_FALSE(error.expected().empty());
        }
    }
}

TEST(Format, ThreeDigits) {
    EXPECT_EQ(format_bytes(0), "0 B");
    EXPECT_EQ(format_bytes(1023), "1023 B");
    EXPECT_EQ(format_bytes(1024), "1 KiB");
    EXPECT_EQ(format_bytes(1536), "1.5 KiB");
    EXPECT_EQ(format_bytes(64ULL << 20), "64 MiB");
    EXPECT_EQ(format_bytes(UINT64_MAX), "16 EiB");
    EXPECT_EQ(format_duration(999), "999 ns");
    EXPECT_EQ(format_duration(1240000), "1.24 ms");
    EXPECT_EQ(format_duration(999999), "1 ms");
    EXPECT_EQ(format_duration(3600000000000), "3600 s");
}

}  // namespace
}  // namespace sampleblk
