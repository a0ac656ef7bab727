// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "sampleblk/error.hpp"
#include "sampleblk/profile/flamegraph.hpp"
#include "sampleblk/profile/stack_tree.hpp"

namespace sampleblk::profile {
namespace {

constexpr std::string_view kFolded =
    "fio;main;write;ext4_write_[k] 30\n"
    "fio;main;write;ext4_write_[k];copy_[k] 20\n"
    "fio;main;fadvise 50\n"
    "swapper;halt_[k] 100\n";

TEST(StackTree, FoldedTextGoesInAndOut) {
    const StackTree tree = read_folded(kFolded, "test", "samples");
    EXPECT_EQ(tree.total(), 200U);
    EXPECT_EQ(tree.nodes()[tree.find({"fio", "main", "write"})].total, 50U);
    EXPECT_EQ(tree.nodes()[tree.find({"fio", "main", "write", "ext4_write"})].self, 30U);
    EXPECT_EQ(tree.find({"fio", "write"}), StackTree::npos);
    EXPECT_EQ(
        folded_text(tree),
        "fio;main;fadvise 50\nfio;main;write;ext4_write 30\nfio;main;write;ext4_write;copy 20\nswapper;halt 100\n");
}

TEST(StackTree, ABranchBelowTheShareIsLeftOut) {
    // 3 of 79 is 3.8 %.
    const StackTree tree = read_folded("a;b 73\na;c 3\nd 3\n", "test", "samples");
    EXPECT_EQ(tree_text(tree, 5.0, 9),
              "  total%   self%  samples\n   96.20    0.00  a\n   92.41   92.41    b\n(2 branches left out)\n");
    EXPECT_EQ(tree_text(tree, 3.0, 9).find("left out"), std::string::npos);
    const StackTree whole = read_folded("a 95\nb 5\n", "test", "samples");
    EXPECT_EQ(tree_text(whole, 5.0, 9), "  total%   self%  samples\n   95.00   95.00  a\n    5.00    5.00  b\n");
}

TEST(StackTree, ABadLineIsNamed) {
    try {
        (void)read_folded("a;b 1\nno count\n", "x.folded", "samples");
        FAIL();
    } catch (const InputError& error) {
        EXPECT_EQ(error.source(), "x.folded");
        EXPECT_EQ(error.line(), 2U);
    }
    EXPECT_THROW((void)read_folded("a 9223372036854775808\n", "x", "samples"), InputError);
}

TEST(StackTree, NoPartOfACountIsLost) {
    EXPECT_EQ(read_folded("a;b 12.000\na;c 3.\n", "x", "ms").total(), 15U);
    for (const char* text : {"a 0.5\n", "a 12.05\n", "a 1.0e3\n", "a .5\n", "a 1.2.0\n"}) {
        EXPECT_THROW((void)read_folded(text, "x", "ms"), InputError) << text;
    }
}

TEST(StackTree, RecursionCountsOnce) {
    const Table table = function_table(read_folded("p;f;g;f 10\np;f 5\n", "test", "samples"));
    const auto* names = table.find("function");
    const auto* totals = table.find("total")->values<std::uint64_t>();
    ASSERT_EQ(table.rows(), 2U);
    EXPECT_EQ(names->pool()->at(names->values<std::int32_t>()[0]), "f");
    EXPECT_EQ(totals[0], 15U);
    EXPECT_EQ(totals[1], 10U);
}

TEST(StackTree, MergingAddsUp) {
    StackTree sum("samples");
    sum.merge(read_folded(kFolded, "test", "samples"));
    sum.merge(read_folded("fio;main;fadvise 5\nother;x 1\n", "test", "samples"));
    EXPECT_EQ(sum.total(), 206U);
    EXPECT_EQ(sum.nodes()[sum.find({"fio", "main", "fadvise"})].total, 55U);
}

TEST(StackTree, WhatLiesBelowKeepsWhatItIs) {
    const StackTree tree = stacks_below(read_folded(kFolded, "test", "samples"), {"ext4_write", "copy", "none"});
    EXPECT_EQ(tree.total(), 50U);
    const auto& top = tree.nodes()[tree.find({"ext4_write"})];
    EXPECT_EQ(top.kind, FrameKind::kernel);
    EXPECT_EQ(tree.nodes()[tree.find({"ext4_write", "copy"})].kind, FrameKind::kernel);
    // It is a function, not a thread's name.
    const Table table = function_table(tree);
    ASSERT_EQ(table.rows(), 2U);
    EXPECT_EQ(table.find("total")->values<std::uint64_t>()[0], 50U);
}

TEST(FlameGraph, HasEveryFrameWithItsShare) {
    const std::string svg = flame_graph(read_folded(kFolded, "test", "samples"), {});
    EXPECT_NE(svg.find("<title>ext4_write\n50 samples, 25.00%\nself 15.00%</title>"), std::string::npos);
    EXPECT_NE(svg.find("x=\"50%\""), std::string::npos);
}

TEST(FlameGraph, WhatIsLeftOutIsSaid) {
    FlameGraphOptions options;
    options.min_percent = 20;
    const std::string svg = flame_graph(read_folded(kFolded, "test", "samples"), options);
    EXPECT_EQ(svg.find("<title>copy\n"), std::string::npos);
    EXPECT_NE(svg.find("1 branches below 20% left out"), std::string::npos);
}

TEST(FlameGraph, NamesCannotBreakOut) {
    const std::string svg = flame_graph(read_folded("a<script>\"&\x01\xff;b 1\n", "test", "samples"), {});
    EXPECT_EQ(svg.find("a<script>"), std::string::npos);
    EXPECT_NE(svg.find("a&lt;script&gt;&quot;&amp;\\x01\\xff"), std::string::npos);
}

TEST(FlameGraph, DifferencesAreInPoints) {
    const StackTree before = read_folded("p;a 50\np;b 50\np;gone 100\n", "test", "samples");
    const StackTree after = read_folded("p;a 75\np;b 25\n", "test", "samples");
    const std::string svg = difference_flame_graph(before, after, {});
    EXPECT_NE(svg.find("+50.00 points (25.00% before)"), std::string::npos);
    EXPECT_NE(svg.find("only before: gone 50.00%"), std::string::npos);
}

}  // namespace
}  // namespace sampleblk::profile
