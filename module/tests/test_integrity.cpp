// SPDX-License-Identifier: GPL-2.0-only
// Tags against the published check value of their CRC; how they are kept. Devices are in tests/vm/test_device_integrity.py.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "core.hpp"

namespace sampleblk_module {
namespace {

u16 guard_of(const std::string& text) {
    return sblk_integrity_guard(0, text.data(), text.size());
}

TEST(Integrity, TheChecksumIsThatOfT10) {
    // "check" of CRC-16/T10-DIF in the catalogue of parametrised CRC algorithms, and the samples of SBC-3.
    EXPECT_EQ(guard_of("123456789"), 0xd0db);
    EXPECT_EQ(guard_of(std::string(32, '\0')), 0x0000);
    EXPECT_EQ(guard_of(std::string(32, '\xff')), 0xa293);
    std::string up;
    std::string down;
    for (int i = 0; i < 32; ++i) {
        up.push_back(static_cast<char>(i));
        down.push_back(static_cast<char>(0xff - i));
    }
    EXPECT_EQ(guard_of(up), 0x0224);
    EXPECT_EQ(guard_of(down), 0xa0b7);
    EXPECT_EQ(guard_of("\xff\xff" + std::string(30, '\0')), 0x21b8);
    EXPECT_EQ(sblk_integrity_guard(guard_of("1234"), "56789", 5), 0xd0db) << "in two pieces";
}

TEST(Integrity, ATupleIsRightForOneBlockOnly) {
    sblk_tuple tuple = sblk_integrity_tuple(0x1234, 0x5'6789'abcd);
    const u8 wanted[] = {0x12, 0x34, 0, 0, 0x67, 0x89, 0xab, 0xcd};
    ASSERT_EQ(sizeof(tuple), sizeof(wanted));
    EXPECT_EQ(std::memcmp(&tuple, wanted, sizeof(wanted)), 0);
    EXPECT_TRUE(sblk_integrity_is_right(&tuple, 0x1234, 0x6789'abcd));
    EXPECT_FALSE(sblk_integrity_is_right(&tuple, 0x1235, 0x6789'abcd));
    EXPECT_FALSE(sblk_integrity_is_right(&tuple, 0x1234, 0x6789'abce));
    tuple.app[0] = 0xff;
    EXPECT_FALSE(sblk_integrity_is_right(&tuple, 0, 0));
    tuple.app[1] = 0xff;
    EXPECT_TRUE(sblk_integrity_is_right(&tuple, 0, 0)) << "nothing is to be checked";
}

TEST(Integrity, TuplesLieBehindTheDataAndAreForgottenWithIt) {
    sblk_integrity layout{};
    constexpr u64 capacity = 10 * 4096 + 512;
    const u64 bytes = sblk_integrity_lay_out(&layout, capacity, 512);
    EXPECT_EQ(layout.start, 11U * 4096);
    EXPECT_EQ(bytes, layout.start + capacity / 512 * 8);
    const Store store = make_store(bytes);
    const auto checked = [&](u64 block) {
        const sblk_tuple tuple = sblk_integrity_read(&layout, store.get(), block);
        return tuple.app[0] != 0xff || tuple.app[1] != 0xff;
    };
    for (u64 block = 0; block < capacity / 512; ++block) {
        EXPECT_FALSE(checked(block)) << "never written";
        const sblk_tuple tuple = sblk_integrity_tuple(7, block);
        ASSERT_EQ(sblk_integrity_write(&layout, store.get(), block, &tuple, GFP_KERNEL), 0);
        const sblk_tuple back = sblk_integrity_read(&layout, store.get(), block);
        EXPECT_EQ(std::memcmp(&back, &tuple, sizeof(tuple)), 0);
    }
    EXPECT_EQ(contents(store.get()).at(capacity - 1), 0) << "no tuple lies in the data";
    ASSERT_EQ(sblk_integrity_forget(&layout, store.get(), 3 * 512, 4 * 512, GFP_KERNEL), 0);
    for (u64 block = 0; block < capacity / 512; ++block) {
        EXPECT_EQ(checked(block), block < 3 || block > 6) << block;
    }
}

}  // namespace
}  // namespace sampleblk_module
