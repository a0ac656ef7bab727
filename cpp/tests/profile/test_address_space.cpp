// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "symbols/address_space.hpp"

namespace sampleblk::profile {
namespace {

TEST(AddressSpace, AMappingInsideAnotherLeavesBothItsEnds) {
    Processes processes;
    processes.map(1, {0x1000, 0x9000, 0, 7});
    processes.map(1, {0x3000, 0x5000, 0x100, 8});
    const AddressSpace& space = processes.space(1);
    ASSERT_EQ(space.mappings.size(), 3U);
    EXPECT_EQ(space.find(0x2fff)->file, 7U);
    EXPECT_EQ(space.find(0x3000)->file, 8U);
    EXPECT_EQ(space.find(0x5000)->file, 7U);
    EXPECT_EQ(space.find(0x5000)->offset, 0x4000U);
    EXPECT_EQ(space.find(0x9000), nullptr);
    EXPECT_EQ(space.find(0xfff), nullptr);
}

TEST(AddressSpace, AForkSeesWhatItsParentHadThen) {
    Processes processes;
    processes.map(1, {0x1000, 0x2000, 0, 7});
    processes.name(1, 1, 5, false);
    processes.fork(2, 2, 1, 1, false);
    processes.map(1, {0x3000, 0x4000, 0, 8});
    EXPECT_NE(processes.space(2).find(0x1000), nullptr);
    EXPECT_EQ(processes.space(2).find(0x3000), nullptr);
    EXPECT_EQ(processes.comm(2), 5);
    EXPECT_EQ(processes.parents().at(2), 1);
}

TEST(AddressSpace, ANumberThatIsUsedAgainHasNoNameOfBefore) {
    Processes processes;
    processes.name(2, 2, 5, false);
    processes.fork(2, 2, 1, 1, false);
    EXPECT_EQ(processes.comm(2), -1);
}

TEST(AddressSpace, AnExecBeginsAnew) {
    Processes processes;
    processes.map(1, {0x1000, 0x2000, 0, 7});
    const auto before = processes.space(1).version;
    processes.name(1, 1, 5, true);
    EXPECT_EQ(processes.space(1).find(0x1000), nullptr);
    EXPECT_NE(processes.space(1).version, before);
}

}  // namespace
}  // namespace sampleblk::profile
