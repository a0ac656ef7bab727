// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cerrno>

#include "sampleblk/error.hpp"

namespace sampleblk {
namespace {

TEST(Errors, KeepTheirPartsAndSayThem) {
    const SystemError system("mount", "/mnt", EBUSY, "still used by pid 7");
    EXPECT_EQ(system.code(), EBUSY);
    EXPECT_EQ(system.path(), "/mnt");
    EXPECT_STREQ(system.what(), "mount '/mnt': Device or resource busy: still used by pid 7");

    const InputError input("unknown key 'bss'", "job.fio", 3, "bs");
    EXPECT_STREQ(input.what(), "job.fio:3: unknown key 'bss' (expected bs)");
    EXPECT_STREQ(InputError("no jobs").what(), "no jobs");

    const FormatError format("trace.dat", 17, "a header page");
    EXPECT_STREQ(format.what(), "trace.dat: at byte 17: expected a header page");

    const UnsupportedError unsupported("function profiler", "CONFIG_FUNCTION_PROFILER is off", "use graph records");
    EXPECT_STREQ(unsupported.what(), "function profiler: CONFIG_FUNCTION_PROFILER is off; use graph records");
}

TEST(Errors, ThrowErrnoTakesTheCurrentErrno) {
    errno = ENOENT;
    try {
        throw_errno("open", "/nowhere");
    } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), ENOENT);
        EXPECT_EQ(error.operation(), "open");
    }
}

}  // namespace
}  // namespace sampleblk
