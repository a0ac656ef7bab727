// SPDX-License-Identifier: MIT
// The undo log on plain files, which take writes as control files do.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/trace/tracefs.hpp"
#include "synthetic.hpp"

namespace sampleblk::trace::test {
namespace {

class Undo : public testing::Test {
  protected:
    std::string file(const std::string& name, const std::string& text) {
        const std::string path = directory_.file(name);
        write_control(path, {});
        if (!text.empty()) {
            write_control(path, text);
        }
        return path;
    }
    void SetUp() override {
        for (const char* name : {"knob", "set_list", "trace_marker"}) {
            (void)open_file(directory_.file(name), O_WRONLY | O_CREAT, 0600);
        }
    }

    TemporaryDirectory directory_;
    std::string undo_dir_ = directory_.file("undo");
};

TEST_F(Undo, PutsBackWhatAFileHeldBeforeItsFirstChange) {
    const std::string knob = file("knob", "before");
    UndoLog log(undo_dir_);
    log.set(knob, "first");
    log.set(knob, "second");
    EXPECT_EQ(read_file(knob), "second");
    EXPECT_TRUE(log.undo().empty());
    EXPECT_EQ(read_file(knob), "before");
    EXPECT_NE(access(log.path().c_str(), F_OK), 0);
    write_control(knob, "later");
    EXPECT_TRUE(log.undo().empty());  // the second time does nothing
    EXPECT_EQ(read_file(knob), "later");
}

TEST_F(Undo, ADestroyedLogPutsBackToo) {
    const std::string knob = file("knob", "before");
    {
        UndoLog(undo_dir_).set(knob, "changed");
    }
    EXPECT_EQ(read_file(knob), "before");
}

TEST_F(Undo, TheNextStartUndoesWhatADeadProcessLeft) {
    const std::string knob = file("knob", "before");
    const pid_t child = fork();
    if (child == 0) {
        auto* log = new UndoLog(undo_dir_);  // never destroyed: the process dies under it
        log->set(knob, "left behind");
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(read_file(knob), "left behind");
    EXPECT_EQ(recover(undo_dir_), (std::vector<std::string>{"knob " + knob}));
    EXPECT_EQ(read_file(knob), "before");
    EXPECT_TRUE(recover(undo_dir_).empty());
}

TEST_F(Undo, WhoLivesIsLeftAlone) {
    const std::string knob = file("knob", "before");
    UndoLog log(undo_dir_);
    log.set(knob, "mine");
    EXPECT_TRUE(recover(undo_dir_).empty());
    EXPECT_EQ(read_file(knob), "mine");
}

TEST_F(Undo, ANoteCutOffByTheKillIsNotUndone) {
    const std::string knob = file("knob", "before");
    ASSERT_EQ(mkdir(undo_dir_.c_str(), 0700), 0);
    const std::string path = undo_dir_ + "/trace-1-0.undo";
    const Fd fd = open_file(path, O_WRONLY | O_CREAT, 0600);
    write_full(fd.get(), "knob\t" + knob + "\t" + "6f6c64\n" + "knob\t" + knob + "\t77", path);
    EXPECT_EQ(recover(undo_dir_).size(), 1U);
    EXPECT_EQ(read_file(knob), "old");
}

TEST_F(Undo, WhatCannotBePutBackIsSaidAndTheRestIsDone) {
    const std::string knob = file("knob", "before");
    const std::string gone = directory_.file("gone/instance");
    UndoLog log(undo_dir_);
    log.set(knob, "changed");
    EXPECT_THROW(log.make_instance(gone), SystemError);  // its parent is not there
    EXPECT_THROW(log.set(directory_.file("none"), "x"), SystemError);
    EXPECT_TRUE(log.undo().empty());
    EXPECT_EQ(read_file(knob), "before");
}

TEST_F(Undo, NoDirectoryMeansNothingToRecover) {
    EXPECT_TRUE(recover(directory_.file("never made")).empty());
}

TEST_F(Undo, MarkersAreOneWriteEach) {
    const Marker marker(directory_.file(""));
    marker.write("one ");
    marker.write("");
    marker.write("two");
    EXPECT_EQ(read_file(directory_.file("trace_marker")), "one two");
    EXPECT_THROW(Marker("/nonexistent"), SystemError);
}

}  // namespace
}  // namespace sampleblk::trace::test
