// SPDX-License-Identifier: MIT
// Whole files made by hand: written by our writer, read by our reader, in every byte order.
#include <gtest/gtest.h>

#include <fstream>

#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/trace/decode.hpp"
#include "sampleblk/trace/writer.hpp"
#include "synthetic.hpp"

namespace sampleblk::trace::test {
namespace {

constexpr const char* kFields =
    "\tfield:int value;\toffset:8;\tsize:4;\tsigned:1;\n"
    "\tfield:char comm[8];\toffset:12;\tsize:8;\tsigned:0;\n"
    "\tfield:__data_loc char[] path;\toffset:20;\tsize:4;\tsigned:0;\n"
    "\tfield:__rel_loc char[] rel;\toffset:24;\tsize:4;\tsigned:0;\n"
    "\tfield:u16 pair[2];\toffset:28;\tsize:4;\tsigned:0;\n"
    "\tfield:u64 time;\toffset:32;\tsize:8;\tsigned:0;\n";

std::vector<std::byte> a_record(bool big, std::int32_t pid, std::int32_t value, const std::string& comm,
                                const std::string& path) {
    const auto length = static_cast<std::uint32_t>(path.size() + 1);
    return RecordBuilder(big)
        .common(300, pid)
        .number<std::int32_t>(value)
        .text(comm, 8)
        .number<std::uint32_t>(40U | length << 16)
        .number<std::uint32_t>(12U | length << 16)  // from the end of this field, at 28
        .number<std::uint16_t>(7)
        .number<std::uint16_t>(8)
        .number<std::uint64_t>(99)
        .text(path, length)
        .bytes();
}

struct Made {
    TemporaryDirectory directory;
    std::string path = directory.file("trace.dat");
};

void write_pages(const std::string& path, const std::vector<std::vector<std::byte>>& pages) {
    std::ofstream out(path, std::ios::binary);
    for (const auto& page : pages) {
        out.write(reinterpret_cast<const char*>(page.data()), static_cast<std::streamsize>(page.size()));
    }
}

// CPU 0 and 2 have data, CPU 1 has none.
std::unique_ptr<Made> make(const PageLayout& layout) {
    auto made = std::make_unique<Made>();
    const bool big = layout.big_endian;
    TraceHeader header;
    header.big_endian = big;
    header.long_size = layout.commit_size;
    header.header_page = header_page(layout);
    header.header_event = "compressed entry header\n";
    header.event_formats = {{"test", {format_text("an_event", 300, kFields)}}};
    header.kallsyms = "ffffffff81000000 T _stext\nffffffff81000100 t vfs_write\nffffffffc0000000 t f\t[mod]\n";
    header.command_lines = "11 sh\n12 a name\n";
    header.clock = "local [mono] boot";
    header.uname = "Linux host 6.1.0 x86_64";
    header.writer = "test";
    header.cpu_stats = {"CPU: 0\nentries: 0\noverrun: 3\ncommit overrun: 0\ndropped events: 1\nread events: 3\n"};
    std::vector<SpoolFile> spool;
    write_pages(made->directory.file("0"),
                {PageBuilder(100, layout)
                     .record(0, a_record(big, 11, -1, "sh", "/a"))
                     .record(20, a_record(big, 12, 2, "12345678", "/b"))
                     .page(),
                 PageBuilder(200, layout).record(0, a_record(big, 11, 3, "sh", "/a")).page()});
    write_pages(made->directory.file("2"),
                {PageBuilder(110, layout).record(0, a_record(big, 11, 4, "\xff", "")).missed(5).page()});
    spool.push_back({0, made->directory.file("0"), std::uint64_t{2} * layout.page_size});
    spool.push_back({2, made->directory.file("2"), layout.page_size});
    write_trace_file(made->path, header, {{{}, spool}});
    return made;
}

class FileOfEveryLayout : public testing::TestWithParam<PageLayout> {};

TEST_P(FileOfEveryLayout, WhatWasWrittenIsRead) {
    const auto made = make(GetParam());
    const TraceFile file(made->path);
    EXPECT_EQ(file.version(), 6);
    EXPECT_EQ(file.clock(), "mono");
    EXPECT_EQ(file.uname(), "Linux host 6.1.0 x86_64");
    EXPECT_EQ(file.commands().at(12), "a name");
    EXPECT_EQ(file.symbols().describe(0xffffffff81000104, true), "vfs_write+0x4");
    EXPECT_EQ(file.symbols().find(0xffffffffc0000001)->module, "mod");
    EXPECT_EQ(file.symbols().describe(0x10), "0x10");
    EXPECT_EQ(file.losses().at(0).overrun, 3U);

    DecodeRequest request;
    request.events = {"an_event"};
    request.comm = true;
    const Decoded decoded = decode(file, request);
    const Table& table = decoded.tables.at("an_event");
    const auto numbers = [&table](const char* name) {
        const auto* values = table.find(name)->values<std::int32_t>();
        return std::vector<std::int32_t>(values, values + table.rows());
    };
    const auto words = [&](const char* name) {
        std::vector<std::string> out;
        for (const std::int32_t code : numbers(name)) {
            out.push_back(table.find(name)->pool()->at(code));
        }
        return out;
    };
    ASSERT_EQ(table.rows(), 4U);
    const auto* times = table.find("time")->values<std::uint64_t>();
    EXPECT_EQ(std::vector<std::uint64_t>(times, times + 4), (std::vector<std::uint64_t>{100, 110, 120, 200}));
    const auto* cpus = table.find("cpu")->values<std::uint16_t>();
    EXPECT_EQ(std::vector<std::uint16_t>(cpus, cpus + 4), (std::vector<std::uint16_t>{0, 2, 0, 0}));
    EXPECT_EQ(numbers("value"), (std::vector<std::int32_t>{-1, 4, 2, 3}));
    EXPECT_EQ(words("comm"), (std::vector<std::string>{"sh", "sh", "a name", "sh"}));
    EXPECT_EQ(words("comm_"), (std::vector<std::string>{"sh", "\\xff", "12345678", "sh"}));
    EXPECT_EQ(words("path"), (std::vector<std::string>{"/a", "", "/b", "/a"}));
    EXPECT_EQ(words("rel"), words("path"));
    EXPECT_EQ(table.find("pair[1]")->values<std::uint16_t>()[0], 8U);
    EXPECT_EQ(table.find("time_")->values<std::uint64_t>()[3], 99U);
    EXPECT_EQ(table.metadata().at("lost_events"), "5");
    EXPECT_EQ(table.metadata().at("lost_by_cpu"), "cpu0: 4");
    EXPECT_EQ(decoded.stats.missed, 5U);
}

TEST_P(FileOfEveryLayout, ExportKeepsEveryEvent) {
    const auto made = make(GetParam());
    const TraceFile file(made->path);
    ExportRequest request;
    request.prune = true;
    const std::string copy = made->directory.file("copy.dat");
    export_trace_file(file, copy, request);
    const TraceFile again(copy);
    const Decoded before = decode(file, {});
    const Decoded after = decode(again, {});
    EXPECT_EQ(before.tables.at("an_event").rows(), after.tables.at("an_event").rows());
    EXPECT_EQ(after.tables.at("an_event").metadata().at("lost_by_cpu"), "cpu0: 4");
}

INSTANTIATE_TEST_SUITE_P(Layouts, FileOfEveryLayout,
                         testing::Values(PageLayout{false, 8, 8, 16, 4096}, PageLayout{true, 8, 8, 16, 4096},
                                         PageLayout{false, 4, 8, 12, 4096}, PageLayout{true, 4, 8, 12, 8192}),
                         [](const auto& info) { return layout_name(info); });

TEST(TraceFile, DamageIsAnErrorOrIsCounted) {
    const PageLayout layout;
    const auto made = make(layout);
    std::string bytes = read_file(made->path);
    // The second record of CPU 0's first page claims more than its page holds.
    const TraceFile whole(made->path);
    const std::size_t page = static_cast<std::size_t>(whole.buffers()[0].cpus[0].offset);
    const std::size_t second = page + 16 + 4 + a_record(false, 11, -1, "sh", "/a").size();
    bytes[second] = 0;  // length in a word, which is common_type and flags: far too large
    bytes[second + 6] = 0x7f;
    const TraceFile strict(bytes_of(bytes), "broken.dat");
    try {
        (void)decode(strict, {});
        FAIL() << "no error";
    } catch (const FormatError& error) {
        EXPECT_EQ(error.path(), "broken.dat");
        EXPECT_EQ(error.offset(), second);
        EXPECT_EQ(error.expected(), "a record that ends inside its page's committed data");
    }
    const TraceFile lenient(bytes_of(bytes), "broken.dat", OnError::skip);
    const Decoded decoded = decode(lenient, {});
    EXPECT_EQ(decoded.tables.at("an_event").rows(), 3U);
    EXPECT_EQ(decoded.stats.damage.pages, 1U);
    EXPECT_NE(decoded.tables.at("an_event").metadata().at("unread_because").find("broken.dat"), std::string::npos);
}

TEST(TraceFile, WhereAClockWentBackThreadsLoseNothing) {
    const auto made = make(PageLayout{});
    std::string bytes = read_file(made->path);
    const TraceFile whole(made->path);
    const CpuData& cpu = whole.buffers()[0].cpus[0];
    ASSERT_EQ(cpu.size, 2U * 4096);
    // The second page begins before the first one's 100.
    bytes.replace(static_cast<std::size_t>(cpu.offset) + 4096, 8, std::string("\x32\0\0\0\0\0\0\0", 8));
    const TraceFile file(bytes_of(bytes), "went-back.dat");
    DecodeRequest request;
    request.threads = 1;
    const Decoded one = decode(file, request);
    request.threads = 2;
    const Decoded two = decode(file, request);
    EXPECT_EQ(one.stats.events, 4U);
    EXPECT_EQ(two.stats.events, one.stats.events);
}

TEST(TraceFile, APageThatIsNoneIsNotExportedAsIfItHadBeenEmpty) {
    const auto made = make(PageLayout{});
    std::string bytes = read_file(made->path);
    const TraceFile whole(made->path);
    const auto page = static_cast<std::size_t>(whole.buffers()[0].cpus[0].offset);
    // More than a page is committed, at a time after that of anything else.
    bytes.replace(page, 16, 16, '\x7f');
    bytes.replace(page, 8, 8, '\xff');
    const std::string copy = made->directory.file("copy.dat");
    const TraceFile strict(bytes_of(bytes), "broken.dat");
    try {
        export_trace_file(strict, copy, {});
        FAIL() << "no error";
    } catch (const FormatError& error) {
        EXPECT_EQ(error.offset(), page);
        EXPECT_EQ(error.expected(), "a commit length that fits in its page");
    }
    const TraceFile lenient(bytes_of(bytes), "broken.dat", OnError::skip);
    export_trace_file(lenient, copy, {});
    const TraceFile again(copy);
    EXPECT_EQ(decode(again, {}).tables.at("an_event").rows(), decode(lenient, {}).tables.at("an_event").rows());
    EXPECT_GT(decode(again, {}).tables.at("an_event").rows(), 0U);
}

TEST(TraceFile, EveryTruncationIsAnErrorThatNamesAnOffsetInTheFile) {
    const auto made = make(PageLayout{});
    const std::string bytes = read_file(made->path);
    const TraceFile whole(made->path);
    const std::size_t data = static_cast<std::size_t>(whole.buffers()[0].cpus[0].offset);
    for (std::size_t size = 0; size < data; size += 7) {
        try {
            const TraceFile cut(bytes_of(std::string_view(bytes).substr(0, size)), "cut.dat");
            FAIL() << "no error at " << size;
        } catch (const FormatError& error) {
            EXPECT_LE(error.offset(), bytes.size());
        }
    }
}

TEST(TraceFile, UnknownEventsAndBuffersAreNamed) {
    const auto made = make(PageLayout{});
    const TraceFile file(made->path);
    DecodeRequest request;
    request.events = {"nonesuch"};
    EXPECT_THROW((void)decode(file, request), InputError);
    EXPECT_THROW((void)file.select("nowhere"), InputError);
    EXPECT_EQ(file.find_event("other:an_event"), nullptr);
}

TEST(Glob, MatchesAsAShellDoes) {
    EXPECT_TRUE(glob_match("*sys_write", "__x64_sys_write"));
    EXPECT_TRUE(glob_match("a?c*", "abcdef"));
    EXPECT_TRUE(glob_match("*", ""));
    EXPECT_FALSE(glob_match("a*b", "abc"));
    EXPECT_FALSE(glob_match("", "a"));
    EXPECT_TRUE(glob_match("*a*b*c", "xaxbxbxc"));
}

}  // namespace
}  // namespace sampleblk::trace::test
