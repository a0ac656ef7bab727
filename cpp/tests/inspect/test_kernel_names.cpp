// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "sampleblk/inspect/kernel_names.hpp"

namespace sampleblk::inspect {
namespace {

TEST(KernelNames, FindsWhatAnAddressLiesIn) {
    const KernelNames names(
        "ffffffff81000000 T _text\n"
        "ffffffff81000100 t helper\n"
        "ffffffff81000100 T known\n"
        "ffffffff81000180 t helper\n"
        "ffffffffc0000000 d table\t[ext4]\n");
    ASSERT_EQ(names.size(), 5U);
    EXPECT_EQ(names.find(0xffffffff81000000)->name, "_text");
    EXPECT_EQ(names.find(0xffffffff8100017f)->name, "known");  // the global one of two at one place
    EXPECT_EQ(names.find(0xffffffff8100017f)->size, 0x80U);
    const auto table = names.find(0xffffffffc0000010);
    ASSERT_TRUE(table);
    EXPECT_EQ(table->name, "table");
    EXPECT_EQ(table->module, "ext4");
    EXPECT_FALSE(table->global);
    EXPECT_FALSE(names.find(0xffffffff80ffffff));
    EXPECT_FALSE(names.find(0xffffffffc0000000 + (1U << 20U)));
}

TEST(KernelNames, StaticNamesHaveSeveralPlaces) {
    const KernelNames names("ffffffff81000180 t helper\nffffffff81000100 t helper\n");
    const auto places = names.find("helper");
    ASSERT_EQ(places.size(), 2U);
    EXPECT_EQ(places[0].address, 0xffffffff81000100);
    EXPECT_EQ(places[1].address, 0xffffffff81000180);
    EXPECT_TRUE(names.find("nosuch").empty());
}

TEST(KernelNames, HiddenOnesAreNoneAndAbsoluteOnesNoPlaces) {
    const KernelNames names("0000000000000000 T hidden\n0000000000014000 A per_cpu\nnonsense\n\nffffffff81000000 T x");
    ASSERT_EQ(names.size(), 1U);
    EXPECT_EQ(names.find("x").size(), 1U);
    EXPECT_TRUE(names.find("hidden").empty());
    ASSERT_EQ(names.find("per_cpu").size(), 1U);
    EXPECT_EQ(names.find("per_cpu")[0].address, 0x14000U);
    EXPECT_FALSE(names.find(0x14000));
}

}  // namespace
}  // namespace sampleblk::inspect
