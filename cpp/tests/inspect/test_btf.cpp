// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "sampleblk/error.hpp"
#include "sampleblk/inspect/btf.hpp"

namespace sampleblk::inspect {
namespace {

// A file of these words of types and this text of names.
std::vector<std::byte> made(const std::vector<std::uint32_t>& types, const std::string& names) {
    const auto length = static_cast<std::uint32_t>(types.size() * 4);
    std::vector<std::uint32_t> words{0x0001eb9f, 24, 0, length, length, static_cast<std::uint32_t>(names.size())};
    words.insert(words.end(), types.begin(), types.end());
    std::vector<std::byte> out(words.size() * 4 + names.size());
    std::memcpy(out.data(), words.data(), words.size() * 4);
    std::memcpy(out.data() + words.size() * 4, names.data(), names.size());
    return out;
}

constexpr std::uint32_t info(BtfKind kind, std::uint32_t parts = 0, bool flag = false) {
    return static_cast<std::uint32_t>(flag) << 31U | static_cast<std::uint32_t>(kind) << 24U | parts;
}

// 1: int, signed; 2: struct pair {int first; int rest : 5;}; 3: enum {RED = -1}; 4: enum64 {BIG = 1 << 40}
std::vector<std::byte> small() {
    return made({1,
                 info(BtfKind::integer),
                 4,
                 1U << 24U | 32,  //
                 5,
                 info(BtfKind::structure, 2, true),
                 8,
                 10,
                 1,
                 0,
                 16,
                 1,
                 5U << 24U | 32,  //
                 0,
                 info(BtfKind::enumeration, 1, true),
                 4,
                 21,
                 0xffffffffU,  //
                 0,
                 info(BtfKind::enumeration64, 1),
                 8,
                 25,
                 0,
                 1U << 8U},
                std::string("\0int\0pair\0first\0rest\0RED\0BIG\0", 29));
}

TEST(Btf, TypesMembersAndConstants) {
    const Btf file(small(), "small");
    ASSERT_EQ(file.end(), 5U);
    EXPECT_EQ(file.type(1).name, "int");
    EXPECT_EQ(file.type(1).encoding, 1U);
    const BtfType pair = file.type(2);
    EXPECT_EQ(pair.name, "pair");
    ASSERT_EQ(pair.members.size(), 2U);
    EXPECT_EQ(pair.members[1].name, "rest");
    EXPECT_EQ(pair.members[1].bit_offset, 32U);
    EXPECT_EQ(pair.members[1].bit_field_size, 5U);
    EXPECT_EQ(file.type(3).members.at(0).value, -1);
    EXPECT_EQ(file.type(4).members.at(0).value, std::int64_t{1} << 40U);
    EXPECT_EQ(file.enumerations_of("BIG"), std::vector<std::uint32_t>{4});
    EXPECT_TRUE(file.enumerations_of("nosuch").empty());
    EXPECT_EQ(file.find("pair", BtfKind::structure), std::vector<std::uint32_t>{2});
    EXPECT_TRUE(file.find("pair", BtfKind::union_).empty());
}

// include/uapi/linux/btf.h before 6.0: "__s32 val", and no flag.
TEST(Btf, EnumerationsAreSignedWhereNoneTellsIt) {
    const std::vector<std::uint32_t> old{0, info(BtfKind::enumeration, 1), 4, 1, 0xffffffffU};
    const std::string names("\0OFF\0", 5);
    const auto base = std::make_shared<const Btf>(made(old, names), "old");
    EXPECT_EQ(base->type(1).members.at(0).value, -1);
    EXPECT_TRUE(base->type(1).flag);
    EXPECT_EQ(Btf(made(old, std::string("\0", 1)), "module", base).type(2).members.at(0).value, -1);
    auto words = old;
    words.insert(words.end(), {0, info(BtfKind::enumeration, 1, true), 4, 1, 0});
    const Btf file(made(words, names), "new");
    EXPECT_EQ(file.type(1).members.at(0).value, 0xffffffff);
    EXPECT_FALSE(file.type(1).flag);
}

TEST(Btf, ASignedCharIsSignedWhereNoneTellsIt) {
    const Btf file(made({1, info(BtfKind::integer), 1, 8, 13, info(BtfKind::integer), 1, 8},
                        std::string("\0signed char\0unsigned char\0", 27)),
                   "old");
    EXPECT_EQ(file.type(1).encoding, 1U);
    EXPECT_EQ(file.type(2).encoding, 0U);
}

TEST(Btf, AModuleGoesOnWhereTheKernelEnds) {
    const auto base = std::make_shared<const Btf>(small(), "base");
    // A pointer to struct pair of the base, and a structure whose name is the base's and whose member's is its own.
    const Btf module(
        made({0, info(BtfKind::pointer), 2, 5, info(BtfKind::structure, 1), 8, 30, 5, 0}, std::string("\0own\0", 5)),
        "module", base);
    EXPECT_EQ(module.end(), 7U);
    EXPECT_EQ(module.type(5).type, 2U);
    EXPECT_EQ(module.type(6).name, "pair");
    EXPECT_EQ(module.type(6).members.at(0).name, "own");
    EXPECT_EQ(module.find("pair", BtfKind::structure), (std::vector<std::uint32_t>{6, 2}));
    EXPECT_EQ(module.enumerations_of("RED"), std::vector<std::uint32_t>{3});
}

// include/uapi/linux/btf.h of 7.1: 24 bits of parts and seven of kind, where there were 16 and five.
TEST(Btf, MorePartsThanSixteenBitsCount) {
    constexpr std::uint32_t parts = 65536 + 3;
    std::vector<std::uint32_t> words{0, info(BtfKind::enumeration, parts), 4};
    for (std::uint32_t i = 0; i < parts; ++i) {
        words.insert(words.end(), {i + 1 == parts ? 1U : 0U, i});
    }
    words.insert(words.end(), {1, info(BtfKind::type_definition), 1});
    const Btf file(made(words, std::string("\0LAST\0", 6)), "many");
    ASSERT_EQ(file.end(), 3U);
    ASSERT_EQ(file.type(1).members.size(), parts);
    EXPECT_EQ(file.type(1).members.back().name, "LAST");
    EXPECT_EQ(file.type(1).members.back().value, parts - 1);
    EXPECT_EQ(file.type(2).type, 1U);
    const auto kind = static_cast<BtfKind>(32 + static_cast<std::uint32_t>(BtfKind::pointer));
    EXPECT_THROW(Btf(made({0, info(kind), 0}, std::string("\0", 1)), "kind"), FormatError);
}

TEST(Btf, DamageIsRefusedAndSaysWhere) {
    EXPECT_THROW(Btf({}, "empty"), FormatError);
    auto bytes = small();
    bytes[0] = std::byte{0};
    EXPECT_THROW(Btf(bytes, "magic"), FormatError);
    bytes = small();
    bytes.resize(bytes.size() - 10);
    EXPECT_THROW(Btf(bytes, "cut"), FormatError);
    EXPECT_THROW(Btf(made({1, info(static_cast<BtfKind>(30)), 0}, std::string("\0", 1)), "kind"), FormatError);
    EXPECT_THROW(Btf(made({99, info(BtfKind::pointer), 0}, std::string("\0", 1)), "name"), FormatError);
    EXPECT_THROW((void)Btf(small(), "small").type(5), FormatError);
    bytes = small();
    bytes[2] = std::byte{2};
    EXPECT_THROW(Btf(bytes, "version"), FormatError);
    EXPECT_THROW(Btf(made({0, info(BtfKind::pointer), 0}, std::string("int\0", 4)), "unnamed"), FormatError);
}

}  // namespace
}  // namespace sampleblk::inspect
