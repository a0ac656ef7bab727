// SPDX-License-Identifier: MIT
#include "corpus.hpp"
#include "fuzz_crash_log.hpp"
#include "fuzz_device_journal.hpp"

namespace sampleblk::fuzz {
namespace {

TEST(CrashCorpus, LogsAreReadOrRefused) {
    EXPECT_GE(replay("crash_log", &crash::fuzz_crash_log), 3U);
}

TEST(CrashCorpus, FileSystemsHaveNamesOrNone) {
    EXPECT_GE(replay("crash_names", &crash::fuzz_crash_names), 3U);
}

TEST(CrashCorpus, JournalsAreViewedAndExportedOrRefused) {
    EXPECT_GE(replay("device_journal", &device_journal), 3U);
}

}  // namespace
}  // namespace sampleblk::fuzz
