// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk {
namespace {

bool is_open(int fd) {
    return ::fcntl(fd, F_GETFD) >= 0;
}

class FdTest : public testing::Test {
  protected:
    void SetUp() override {
        std::string name = testing::TempDir() + "sampleblk-fd-XXXXXX";
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        dir_ = name;
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }
    std::filesystem::path dir_;
};

TEST_F(FdTest, ClosesOnceAndMoves) {
    int raw = -1;
    {
        Fd fd = open_file("/dev/null", O_RDONLY);
        raw = fd.get();
        EXPECT_TRUE(::fcntl(raw, F_GETFD) & FD_CLOEXEC);
        Fd moved = std::move(fd);
        EXPECT_FALSE(static_cast<bool>(fd));  // NOLINT(bugprone-use-after-move): that is what is tested
        EXPECT_EQ(moved.get(), raw);
        EXPECT_TRUE(is_open(raw));
    }
    EXPECT_FALSE(is_open(raw));
}

TEST_F(FdTest, OpenFailureNamesThePath) {
    try {
        (void)open_file((dir_ / "none").string(), O_RDONLY);
        FAIL();
    } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), ENOENT);
        EXPECT_EQ(error.path(), (dir_ / "none").string());
    }
}

TEST_F(FdTest, ReadsFilesWhoseSizeIsGivenAsZero) {
    EXPECT_NE(read_file("/proc/self/stat").find('('), std::string::npos);
}

TEST_F(FdTest, ReadsNoMoreThanIsAskedForAndNothingOfWhatCannotBeRead) {
    const std::string path = (dir_ / "file").string();
    write_file(path, "abcdef", O_CREAT | O_TRUNC);
    EXPECT_EQ(read_start(path, 4), "abcd");
    EXPECT_EQ(read_start(path, 100), "abcdef");
    EXPECT_EQ(read_start("/proc/sys/kernel/ostype", 100), "Linux\n");
    EXPECT_EQ(read_start(path + "-none", 100), "");
    EXPECT_EQ(read_start(dir_.string(), 100), "");
}

TEST_F(FdTest, WritesAndReadsBack) {
    const std::string path = (dir_ / "file").string();
    std::string text(200000, 'x');
    write_file(path, text, O_CREAT | O_TRUNC);
    EXPECT_EQ(read_file(path), text);
}

TEST_F(FdTest, AFullDiskIsAnErrorWithItsPath) {
    const Fd full = open_file("/dev/full", O_WRONLY);
    try {
        write_full(full.get(), std::string_view("data"), "/dev/full");
        FAIL();
    } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), ENOSPC);
        EXPECT_EQ(error.path(), "/dev/full");
    }
}

}  // namespace
}  // namespace sampleblk
