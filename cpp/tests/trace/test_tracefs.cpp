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
        for (const char* name : {"knob", "set_list", "snapshot", "trace_marker"}) {
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

TEST_F(Undo, ASpareBufferThatWasThereStays) {
    const std::string freed = "# tracer: nop\n#\n#\n# * Snapshot is freed *\n#\n# Snapshot commands:\n";
    for (const auto& [before, after] : {std::pair{freed, "0"}, std::pair{std::string("# * allocated *\n"), "1"}}) {
        const std::string spare = file("snapshot", before);
        UndoLog log(undo_dir_);
        log.set(spare, "1");
        EXPECT_TRUE(log.undo().empty());
        EXPECT_EQ(read_file(spare), after);
    }
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

TEST_F(Undo, TheNewestOfADeadProcessIsUndoneFirst) {
    const std::string knob = file("knob", "newest");
    ASSERT_EQ(mkdir(undo_dir_.c_str(), 0700), 0);
    for (const auto& [name, old] : {std::pair{"/trace-1-2.undo", "6f6c64"}, std::pair{"/trace-1-9.undo", "6e6577"},
                                    std::pair{"/trace-1-10.undo", "6e6577"}}) {
        const Fd fd = open_file(undo_dir_ + name, O_WRONLY | O_CREAT, 0600);
        write_full(fd.get(), "knob\t" + knob + "\t" + old + "\n", undo_dir_ + name);
    }
    EXPECT_EQ(recover(undo_dir_).size(), 3U);
    EXPECT_EQ(read_file(knob), "old");
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
    EXPECT_THROW(log.make_instance(gone), SystemError);  // its parent does not exist
    EXPECT_THROW(log.set(directory_.file("none"), "x"), SystemError);
    EXPECT_TRUE(log.undo().empty());
    EXPECT_EQ(read_file(knob), "before");
}

TEST_F(Undo, AnInstanceThatWasThereBeforeStays) {
    const std::string theirs = directory_.file("theirs");
    ASSERT_EQ(mkdir(theirs.c_str(), 0700), 0);
    UndoLog log(undo_dir_);
    try {
        log.make_instance(theirs);
        FAIL() << "no error";
    } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), EEXIST);
    }
    EXPECT_TRUE(log.undo().empty());
    EXPECT_EQ(access(theirs.c_str(), F_OK), 0);
}

TEST_F(Undo, AnInstanceMadeInPlaceOfOursStays) {
    const std::string path = directory_.file("ours");
    const std::string other = directory_.file("other");
    UndoLog log(undo_dir_);
    log.make_instance(path);
    ASSERT_EQ(mkdir(other.c_str(), 0700), 0);  // while ours lives, so that it has another inode for certain
    ASSERT_EQ(rmdir(path.c_str()), 0);
    ASSERT_EQ(rename(other.c_str(), path.c_str()), 0);
    EXPECT_TRUE(log.undo().empty());
    EXPECT_EQ(access(path.c_str(), F_OK), 0);
}

TEST_F(Undo, AnInstanceOfOursGoes) {
    const std::string path = directory_.file("ours");
    UndoLog log(undo_dir_);
    log.make_instance(path);
    EXPECT_TRUE(log.undo().empty());
    EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST_F(Undo, ADynamicEventThatWasThereBeforeStays) {
    const std::string list = file("set_list", "p:mine/event do_open\nr8:mine/other do_close\n");
    UndoLog log(undo_dir_);
    for (const char* remove : {"-:mine/event", "-:mine/other"}) {
        try {
            log.add_dynamic(list, "p:mine/event do_read\n", remove);
            FAIL() << "no error";
        } catch (const SystemError& error) {
            EXPECT_EQ(error.code(), EEXIST);
        }
    }
    EXPECT_TRUE(log.undo().empty());
    EXPECT_EQ(read_file(list), "p:mine/event do_open\nr8:mine/other do_close\n");
}

TEST_F(Undo, ADynamicEventOfOursGoesUnlessItBecameAnother) {
    const std::string list = file("set_list", "p:mine/events do_open\n");  // a longer name is another one
    {
        UndoLog log(undo_dir_);
        log.add_dynamic(list, "p:mine/event do_read\n", "-:mine/event");
        EXPECT_TRUE(log.undo().empty());
        EXPECT_EQ(read_file(list), "p:mine/events do_open\np:mine/event do_read\n-:mine/event");
    }
    write_control(list, "");
    UndoLog log(undo_dir_);
    log.add_dynamic(list, "p:mine/event do_read\n", "-:mine/event");
    write_control(list, "p:mine/event do_write\n");  // ours was removed, and somebody made one of that name
    const auto failed = log.undo();
    ASSERT_EQ(failed.size(), 1U);
    EXPECT_NE(failed[0].find("not made here: p:mine/event do_write"), std::string::npos) << failed[0];
    EXPECT_EQ(read_file(list), "p:mine/event do_write\n");
}

TEST_F(Undo, ADynamicEventThatIsAnotherByNowStays) {
    const std::string list = file("set_list", "");
    UndoLog log(undo_dir_);
    log.add_dynamic(list, "p:mine/event /bin/a:0x10\n", "-:mine/event");
    write_control(list, "p:mine/event /bin/a:0x1\n");  // the beginning of a line is another line
    EXPECT_EQ(log.undo().size(), 1U);
    EXPECT_EQ(read_file(list), "p:mine/event /bin/a:0x1\n");
}

TEST_F(Undo, ASyntheticEventIsFoundByItsName) {
    const std::string list = file("set_list", "wakeup\tu64 lat\n");
    UndoLog log(undo_dir_);
    EXPECT_THROW(log.add_dynamic(list, "wakeup u64 lat", "!wakeup"), SystemError);
    log.add_dynamic(list, "latency u64 lat\n", "!latency");
    EXPECT_TRUE(log.undo().empty());
    EXPECT_EQ(read_file(list), "wakeup\tu64 lat\nlatency u64 lat\n!latency");
}

TEST_F(Undo, ALineThatWasRefusedIsNotTakenAway) {
    const std::string trigger = file("set_list", "");
    UndoLog log(undo_dir_);
    EXPECT_THROW(log.add_line("/dev/full", "traceoff", "!traceoff"), SystemError);
    log.add_line(trigger, "stacktrace\n", "!stacktrace");
    EXPECT_TRUE(log.undo().empty());
    EXPECT_EQ(read_file(trigger), "stacktrace\n!stacktrace");
}

TEST_F(Undo, WhatADeadProcessWasMakingIsNamedAndStays) {
    const std::string instance = directory_.file("half");
    ASSERT_EQ(mkdir(undo_dir_.c_str(), 0700), 0);
    ASSERT_EQ(mkdir(instance.c_str(), 0700), 0);
    const std::string path = undo_dir_ + "/trace-1-0.undo";
    const Fd fd = open_file(path, O_WRONLY | O_CREAT, 0600);
    write_full(fd.get(), "making\t" + instance + "\t\n", path);
    const auto done = recover(undo_dir_);
    ASSERT_EQ(done.size(), 1U);
    EXPECT_NE(done[0].find("may be somebody else's: rmdir " + instance), std::string::npos) << done[0];
    EXPECT_EQ(access(instance.c_str(), F_OK), 0);
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
