// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "file/page.hpp"
#include "synthetic.hpp"

namespace sampleblk::trace::test {
namespace {

struct Seen {
    std::vector<std::uint64_t> times;
    std::vector<std::uint32_t> sizes;
    PageFault fault = PageFault::none;
    bool missed = false;
    std::uint64_t missed_count = 0;
    std::size_t unread = 0;
};

template <bool Swap>
Seen walk_as(const std::vector<std::byte>& page, const PageLayout& layout) {
    Seen out;
    PageWalker<Swap> walker;
    walker.begin(page, layout);
    RawRecord record;
    while (walker.next(record)) {
        out.times.push_back(record.time);
        out.sizes.push_back(record.size);
    }
    out.fault = walker.fault();
    out.missed = walker.missed();
    out.missed_count = walker.missed_count();
    out.unread = walker.unread();
    return out;
}

Seen walk_page(const std::vector<std::byte>& page, const PageLayout& layout) {
    return swap_needed(layout.big_endian) ? walk_as<true>(page, layout) : walk_as<false>(page, layout);
}

// Both byte orders, both long sizes, two sub-buffer sizes.
class EveryLayout : public testing::TestWithParam<PageLayout> {};

TEST_P(EveryLayout, RecordsOfEveryKindKeepTheirTimes) {
    const std::vector<std::byte> small(8);
    const std::vector<std::byte> large(200);
    const auto page = PageBuilder(1'000'000, GetParam())
                          .record(5, small)
                          .long_record(7, large)
                          .time_extend((std::uint64_t{3} << 27) + 11)
                          .record(1, small)
                          .discarded(100, 12)
                          .record(2, small)
                          .rest_is_empty()
                          .page();
    const Seen seen = walk_page(page, GetParam());
    const std::uint64_t extended = 1'000'012 + (std::uint64_t{3} << 27) + 11;
    EXPECT_EQ(seen.times, (std::vector<std::uint64_t>{1'000'005, 1'000'012, extended + 1, extended + 103}));
    EXPECT_EQ(seen.sizes, (std::vector<std::uint32_t>{8, 200, 8, 8}));
    EXPECT_EQ(seen.fault, PageFault::none);
    EXPECT_FALSE(seen.missed);
}

TEST_P(EveryLayout, AbsoluteStampsTakeTheirTopBitsFromThePage) {
    const std::uint64_t top = std::uint64_t{0x21} << 59;  // beyond the 59 bits that a stamp carries
    const auto page = PageBuilder(top + 500, GetParam()).absolute(700).record(0, std::vector<std::byte>(8)).page();
    EXPECT_EQ(walk_page(page, GetParam()).times, (std::vector<std::uint64_t>{top + 700}));
}

TEST_P(EveryLayout, AbsoluteStampsThatWentRoundGoOn) {
    const std::uint64_t before = (std::uint64_t{1} << 60) - 10;
    const auto page = PageBuilder(before, GetParam()).absolute(5).record(0, std::vector<std::byte>(8)).page();
    EXPECT_EQ(walk_page(page, GetParam()).times, (std::vector<std::uint64_t>{(std::uint64_t{1} << 60) + 5}));
}

TEST_P(EveryLayout, MissedEventsAreCounted) {
    const auto page = PageBuilder(1, GetParam()).record(1, std::vector<std::byte>(8)).missed(42).page();
    const Seen seen = walk_page(page, GetParam());
    EXPECT_TRUE(seen.missed);
    EXPECT_EQ(seen.missed_count, 42U);
    EXPECT_EQ(seen.times.size(), 1U);
}

TEST_P(EveryLayout, ARecordBeyondTheCommittedDataIsAFault) {
    PageBuilder builder(1, GetParam());
    const auto whole = builder.record(1, std::vector<std::byte>(8)).record(1, std::vector<std::byte>(40)).page();
    auto cut = whole;
    // The commit says less than the second record needs.
    PageBuilder shorter(1, GetParam());
    cut = shorter.record(1, std::vector<std::byte>(8)).record(1, std::vector<std::byte>(8)).page();
    std::copy(whole.begin() + GetParam().data_offset, whole.end(), cut.begin() + GetParam().data_offset);
    const Seen seen = walk_page(cut, GetParam());
    EXPECT_EQ(seen.times.size(), 1U);
    EXPECT_EQ(seen.fault, PageFault::record_too_long);
    EXPECT_EQ(seen.unread, 12U);
}

INSTANTIATE_TEST_SUITE_P(Layouts, EveryLayout,
                         testing::Values(PageLayout{false, 8, 8, 16, 4096}, PageLayout{true, 8, 8, 16, 4096},
                                         PageLayout{false, 4, 8, 12, 4096}, PageLayout{true, 4, 8, 12, 4096},
                                         PageLayout{false, 8, 8, 16, 65536}),
                         [](const auto& info) { return layout_name(info); });

TEST(Page, BrokenHeadersAreFaults) {
    const PageLayout layout;
    EXPECT_EQ(walk_page(std::vector<std::byte>(10), layout).fault, PageFault::short_page);
    PageBuilder builder(1, layout);
    builder.put<std::uint64_t>(8, 5000);
    auto page = builder.page();
    const std::uint64_t commit = 5000;
    std::memcpy(page.data() + 8, &commit, 8);
    EXPECT_EQ(walk_page(page, layout).fault, PageFault::commit_too_long);
}

TEST(Page, ALengthWordThatOverflowsIsAFault) {
    PageBuilder builder(1, PageLayout{});
    auto page = builder.long_record(0, std::vector<std::byte>(8)).page();
    const std::uint32_t huge = 0xfffffffe;
    std::memcpy(page.data() + 20, &huge, 4);
    EXPECT_EQ(walk_page(page, PageLayout{}).fault, PageFault::record_too_long);
    const std::uint32_t tiny = 0;
    std::memcpy(page.data() + 20, &tiny, 4);
    EXPECT_EQ(walk_page(page, PageLayout{}).fault, PageFault::record_too_long);
}

}  // namespace
}  // namespace sampleblk::trace::test
