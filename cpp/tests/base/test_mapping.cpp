// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <numeric>
#include <thread>
#include <vector>

#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/mapping.hpp"
#include "sampleblk/signals.hpp"

namespace sampleblk {
namespace {

constexpr std::size_t kPage = 4096;

class MappingTest : public testing::Test {
  protected:
    void SetUp() override {
        std::string name = testing::TempDir() + "sampleblk-map-XXXXXX";
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        dir_ = name;
        path_ = (dir_ / "file").string();
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }

    std::filesystem::path dir_;
    std::string path_;
};

std::size_t sum(std::span<const std::byte> bytes) {
    return std::transform_reduce(bytes.begin(), bytes.end(), std::size_t{0}, std::plus<>(),
                                 [](std::byte byte) { return std::to_integer<std::size_t>(byte); });
}

TEST_F(MappingTest, MapsAFileAndAnEmptyOne) {
    write_file(path_, std::string(200000, 'x'), O_CREAT | O_TRUNC);
    const MappedFile mapped(path_);
    EXPECT_EQ(sum(mapped.bytes()), std::size_t{200000} * 'x');
    EXPECT_NO_THROW(mapped.check());
    const std::string empty = (dir_ / "empty").string();
    write_file(empty, "", O_CREAT);
    EXPECT_TRUE(MappedFile(empty).bytes().empty());
}

TEST_F(MappingTest, APipeWithoutAWriterIsNotWaitedFor) {
    ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    EXPECT_TRUE(MappedFile(path_).bytes().empty());
}

TEST_F(MappingTest, AFileThatGetsShorterIsAnError) {
    // To nothing, to a page's end, and inside a page, of which the rest reads as zeros without a fault.
    for (const std::size_t left : {std::size_t{0}, 2 * kPage, 2 * kPage + 10, 10 * kPage - 1}) {
        write_file(path_, std::string(10 * kPage, 'x'), O_CREAT | O_TRUNC);
        const MappedFile mapped(path_);
        ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(left)), 0);
        EXPECT_EQ(sum(mapped.bytes()), left * 'x');
        try {
            mapped.check();
            FAIL() << "no error at " << left;
        } catch (const FormatError& error) {
            EXPECT_EQ(error.path(), path_);
            EXPECT_EQ(error.offset(), left);
        }
    }
}

TEST_F(MappingTest, WhatAReaderFindsMalformedIsOfAFileThatGotShorter) {
    const auto said = [this](bool cut, bool malformed) -> std::string {
        write_file(path_, std::string(4 * kPage, 'x'), O_CREAT | O_TRUNC);
        const MappedFile mapped(path_);
        const auto read = [&] {
            if (cut) {
                EXPECT_EQ(::truncate(path_.c_str(), 0), 0);
            }
            if (malformed) {
                throw FormatError(path_, 7, "an x");
            }
        };
        try {
            read_checked(read, [&mapped] { mapped.check(); });
        } catch (const FormatError& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_EQ(said(false, false), "");
    EXPECT_NE(said(false, true).find("an x"), std::string::npos);
    EXPECT_NE(said(true, false).find("it was truncated while it was read"), std::string::npos);
    EXPECT_NE(said(true, true).find("it was truncated while it was read"), std::string::npos);
}

TEST_F(MappingTest, OneThatGrewAgainIsAnErrorToo) {
    write_file(path_, std::string(4 * kPage, 'x'), O_CREAT | O_TRUNC);
    const MappedFile mapped(path_);
    ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
    EXPECT_EQ(sum(mapped.bytes()), 0U);
    ASSERT_EQ(::truncate(path_.c_str(), 4 * kPage), 0);
    EXPECT_THROW(mapped.check(), FormatError);
}

TEST_F(MappingTest, AnotherFileOfItsNameIsNoneOfItsBusiness) {
    write_file(path_, std::string(4 * kPage, 'x'), O_CREAT | O_TRUNC);
    const MappedFile mapped(path_);
    write_file((dir_ / "other").string(), "short", O_CREAT);
    std::filesystem::rename(dir_ / "other", path_);
    EXPECT_NO_THROW(mapped.check());
    EXPECT_EQ(sum(mapped.bytes()), 4 * kPage * 'x');
}

TEST_F(MappingTest, HelperThreadsSurviveItAsWell) {
    write_file(path_, std::string(64 * kPage, 'x'), O_CREAT | O_TRUNC);
    const MappedFile mapped(path_);
    ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(kPage)), 0);
    std::vector<std::size_t> sums(4);
    std::vector<std::thread> threads;
    {
        const SignalsBlocked in_the_threads;
        for (std::size_t& own : sums) {
            threads.emplace_back([&own, &mapped] { own = sum(mapped.bytes()); });
        }
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(sums, std::vector<std::size_t>(4, kPage * 'x'));
    EXPECT_THROW(mapped.check(), FormatError);
}

TEST_F(MappingTest, CopyOnWriteStaysAway) {
    write_file(path_, std::string(2 * kPage, 'x'), O_CREAT | O_TRUNC);
    MappedFile mapped(path_, MappedFile::Access::copy_on_write);
    mapped.writable()[0] = std::byte{'y'};
    EXPECT_EQ(read_file(path_)[0], 'x');
    ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(kPage)), 0);
    mapped.writable()[kPage] = std::byte{'z'};
    EXPECT_THROW(mapped.check(), FormatError);
}

void someone_elses(int /*signal*/) {
    ::_exit(42);
}

using MappingDeathTest = MappingTest;

TEST_F(MappingDeathTest, AFaultThatIsNotOursGoesToWhoeverWasThereBefore) {
    write_file(path_, std::string(2 * kPage, 'x'), O_CREAT | O_TRUNC);
    const auto fault = [this] {
        const Fd fd = open_file(path_, O_RDWR);
        const Mapping theirs(2 * kPage, PROT_READ, MAP_SHARED, fd.get(), 0, path_);
        (void)::truncate(path_.c_str(), 0);
        EXPECT_EQ(sum({theirs.data(), theirs.size()}), 0U);  // asked for, so that no compiler leaves it out
    };
    EXPECT_EXIT(
        {
            (void)::signal(SIGBUS, SIG_DFL);
            const MappedFile ours(path_);
            fault();
        },
        testing::KilledBySignal(SIGBUS), "");
    write_file(path_, std::string(2 * kPage, 'x'), O_CREAT | O_TRUNC);
    EXPECT_EXIT(
        {
            (void)::signal(SIGBUS, &someone_elses);
            const MappedFile ours(path_);
            fault();
        },
        testing::ExitedWithCode(42), "");
}

TEST_F(MappingTest, EntriesAreUsedAgain) {
    write_file(path_, std::string(kPage, 'x'), O_CREAT | O_TRUNC);
    for (int round = 0; round < 3; ++round) {
        std::vector<MappedFile> many;
        for (int i = 0; i < 100; ++i) {
            many.emplace_back(path_);
        }
        EXPECT_EQ(sum(many.back().bytes()), kPage * 'x');
        many.erase(many.begin(), many.begin() + 50);
        EXPECT_NO_THROW(many.front().check());
    }
}

}  // namespace
}  // namespace sampleblk
