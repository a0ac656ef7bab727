// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "run/disk_stats.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk::workload {
namespace {

// A disk's directory in /sys, made up: a file does not answer as the kernel does, so a test writes what it would say.
class SchedulerChangesTest : public testing::Test {
  protected:
    void SetUp() override {
        std::string name = testing::TempDir() + "sampleblk-disk-XXXXXX";
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        disk_ = name;
        std::filesystem::create_directory(disk_ / "queue");
        kernel_says("none [mq-deadline] kyber bfq\n");
    }
    void TearDown() override { std::filesystem::remove_all(disk_); }

    void kernel_says(const std::string& text) const { write_file(file(), text, O_CREAT | O_TRUNC); }
    // Not the whole text: a write to a file of /sys does not cut it, and neither does one to ours.
    [[nodiscard]] bool was_told(const std::string& scheduler) const { return read_file(file()).starts_with(scheduler); }
    [[nodiscard]] std::string file() const { return (disk_ / "queue" / "scheduler").string(); }

    std::filesystem::path disk_;
};

TEST_F(SchedulerChangesTest, ADiskThatWasChangedTwiceIsLeftAsItWas) {
    SchedulerChanges changes;
    changes.change_disk(disk_.string(), "kyber");
    EXPECT_TRUE(was_told("kyber"));
    kernel_says("none mq-deadline [kyber] bfq\n");
    changes.change_disk(disk_.string(), "bfq");
    EXPECT_TRUE(was_told("bfq"));
    kernel_says("none mq-deadline kyber [bfq]\n");
    changes.undo();
    EXPECT_TRUE(was_told("mq-deadline")) << read_file(file());
    kernel_says("none [mq-deadline] kyber bfq\n");
    changes.undo();
    EXPECT_TRUE(was_told("none [")) << "undone twice";
}

// A job would say of one scheduler what it measured with another, or with none.
TEST_F(SchedulerChangesTest, ADiskWithoutSchedulersIsRefusedButForNone) {
    SchedulerChanges changes;
    kernel_says("none\n");
    EXPECT_THROW(changes.change_disk(disk_.string(), "mq-deadline"), UnsupportedError);
    EXPECT_TRUE(was_told("none\n"));
    changes.change_disk(disk_.string(), "none");
    std::filesystem::remove(file());
    EXPECT_THROW(changes.change_disk(disk_.string(), "kyber"), UnsupportedError);
    changes.change_disk(disk_.string(), "none");
    EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(SchedulerChangesTest, TheEndOfItsLifeUndoesItAndADiskThatIsGoneIsNoFailure) {
    {
        SchedulerChanges changes;
        changes.change_disk(disk_.string(), "kyber");
    }
    EXPECT_TRUE(was_told("mq-deadline"));
    kernel_says("none [mq-deadline] kyber bfq\n");
    SchedulerChanges changes;
    changes.change_disk(disk_.string(), "kyber");
    std::filesystem::remove_all(disk_);
    changes.undo();
    EXPECT_FALSE(std::filesystem::exists(disk_));
}

}  // namespace
}  // namespace sampleblk::workload
