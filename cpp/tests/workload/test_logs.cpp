// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "result/logs.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk::workload {
namespace {

class LogFiles : public testing::Test {
  protected:
    void SetUp() override {
        directory = std::filesystem::temp_directory_path() / ("sampleblk-logs-" + std::to_string(::getpid()));
        std::filesystem::create_directories(directory);
        plan.options.write_bw_log = plan.options.write_iops_log = plan.options.write_lat_log = directory / "log";
    }
    void TearDown() override { std::filesystem::remove_all(directory); }

    [[nodiscard]] std::string read(const std::string& kind) const {
        return read_file(directory / ("log_" + kind + ".1.log"));
    }

    std::filesystem::path directory;
    JobPlan plan;
    Measured measured;
};

// A window ends a little after its time, so that a rate just below a whole number is the rule.
TEST_F(LogFiles, ValuesOfAWindowAreRoundedToTheNearest) {
    plan.options.log_avg_ns = 300'000'000;
    Logs logs(plan, measured);
    logs.begin(0);
    Io io;
    io.direction = Direction::write;
    io.length = 4096;
    for (int i = 0; i < 60; ++i) {
        logs.add(io, 1, 0, i == 0 ? 99 : 100, 100);
    }
    logs.on_time(300'001'000);
    logs.write(300'002'000);
    EXPECT_EQ(read("iops"), "300, 200, 1, 0, 0\n");
    EXPECT_EQ(read("bw"), "300, 800, 1, 0, 0\n");
    EXPECT_EQ(read("clat"), "300, 100, 1, 0, 0\n");
}

TEST_F(LogFiles, OneThatCannotBeWrittenDoesNotCostTheOthers) {
    plan.options.write_iops_log = directory / "missing" / "log";
    Logs logs(plan, measured);
    logs.begin(0);
    logs.add(Io{.length = 4096}, 1, 0, 100, 100);
    EXPECT_THROW(logs.write(1000), SystemError);
    EXPECT_EQ(read("clat"), "0, 100, 0, 4096, 0\n");
    EXPECT_EQ(read("lat"), "0, 100, 0, 4096, 0\n");
}

}  // namespace
}  // namespace sampleblk::workload
