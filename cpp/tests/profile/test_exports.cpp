// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "recording.hpp"
#include "sampleblk/profile/exports.hpp"

namespace sampleblk::profile {
namespace {

std::string perfetto(const Profile& profile, const SampleSelection& selection) {
    const auto path = std::filesystem::temp_directory_path() / ("sampleblk-exports-" + std::to_string(::getpid()));
    write_perfetto_samples(profile, selection, path.string());
    std::ifstream file(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    std::filesystem::remove(path);
    return bytes;
}

TEST(Exports, AThreadsTrackHasTheNameThatItHasLast) {
    constexpr std::uint64_t ms = 1000000;
    Recording made;
    made.comm(7, "forker");
    made.run(1 * ms, 7, {"do_syscall_64", "__x64_sys_execve"});
    made.comm(7, "program", 2 * ms);
    made.run(3 * ms, 7, {"do_syscall_64", "ksys_write"});
    made.run(4 * ms, 7, {"do_syscall_64", "ksys_write"});
    const Profile profile = made.profile();
    ASSERT_EQ(profile.size(), 3U);
    EXPECT_EQ(profile.names().at(profile.comms()[0]), "forker");  // a sample keeps the name of its moment

    const std::string bytes = perfetto(profile, {});
    EXPECT_NE(bytes.find("program"), std::string::npos);
    EXPECT_EQ(bytes.find("forker"), std::string::npos);

    SampleSelection early;
    early.to = 2 * ms;
    EXPECT_NE(perfetto(profile, early).find("forker"), std::string::npos);
}

}  // namespace
}  // namespace sampleblk::profile
