// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
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

TEST_F(FdTest, AWholeFileHasItsNameWhenItIsFinished) {
    const std::string path = (dir_ / "file").string();
    const std::string link = (dir_ / "link").string();
    std::filesystem::create_symlink("file", link);
    write_file(path, "before", O_CREAT | O_TRUNC);
    std::filesystem::permissions(path, std::filesystem::perms(0600));
    const Fd reader = open_file(path, O_RDONLY);
    {
        WholeFile file(link);
        write_full(file.get(), "half", file.path());
    }
    EXPECT_EQ(read_file(path), "before");
    {
        WholeFile file(link);
        write_full(file.get(), "after", file.path());
        EXPECT_EQ(read_file(path), "before");
        file.finish();
    }
    EXPECT_EQ(read_file(path), "after");
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0600));
    std::array<std::byte, 6> open_since{};
    EXPECT_EQ(read_full(reader.get(), open_since, path), 6U);
    EXPECT_EQ(std::to_integer<char>(open_since[0]), 'b');
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_), {}), 2);
}

TEST_F(FdTest, WhatIsNoRegularFileIsWrittenInPlace) {
    const std::string path = (dir_ / "pipe").string();
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    const Fd reader = open_file(path, O_RDONLY | O_NONBLOCK);
    WholeFile file(path);
    write_full(file.get(), "text", file.path());
    file.finish();
    std::array<std::byte, 4> got{};
    EXPECT_EQ(read_full(reader.get(), got, path), 4U);
    EXPECT_TRUE(std::filesystem::is_fifo(path));
    EXPECT_THROW(WholeFile((dir_ / "none" / "file").string()), SystemError);
    EXPECT_THROW(WholeFile(dir_.string()), SystemError);
}

TEST_F(FdTest, ANameWithAByteZeroIsNotThatOfAnotherFile) {
    const std::string path = (dir_ / "file").string();
    write_file(path, "before", O_CREAT | O_TRUNC);
    const std::string odd = path + '\0' + "part";
    EXPECT_THROW((void)open_file(odd, O_RDONLY), InputError);
    EXPECT_THROW((void)WholeFile(odd), InputError);
    EXPECT_EQ(read_file(path), "before");
}

}  // namespace
}  // namespace sampleblk
