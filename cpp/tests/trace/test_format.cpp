// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "sampleblk/error.hpp"
#include "sampleblk/trace/format.hpp"
#include "synthetic.hpp"

namespace sampleblk::trace::test {
namespace {

EventFormat parse(const std::string& fields) {
    static std::string text;
    text = format_text("an_event", 77, fields);
    return parse_event_format(text, "sys", "file.dat", 1000);
}

TEST(Format, NumbersArraysAndStringsAreTold) {
    const EventFormat format = parse(
        "\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n"
        "\tfield:long prev_state;\toffset:24;\tsize:8;\tsigned:1;\n"
        "\tfield:unsigned long args[6];\toffset:32;\tsize:48;\tsigned:0;\n"
        "\tfield:const char * filename;\toffset:80;\tsize:8;\tsigned:0;\n"
        "\tfield:__data_loc char[] name;\toffset:88;\tsize:4;\tsigned:0;\n"
        "\tfield:__rel_loc u32[] rel;\toffset:92;\tsize:4;\tsigned:0;\n"
        "\tfield:char buf[];\toffset:96;\tsize:0;\tsigned:0;\n");
    EXPECT_EQ(format.id, 77U);
    EXPECT_EQ(format.name, "an_event");
    EXPECT_EQ(format.common_fields, 4U);
    EXPECT_EQ(format.fixed_size, 96U);
    EXPECT_EQ(format.print_format, "\"%d\", REC->x");
    EXPECT_EQ(format.find("prev_comm")->kind, FieldKind::text);
    EXPECT_TRUE(format.find("prev_state")->is_signed);
    EXPECT_EQ(format.find("args")->kind, FieldKind::numbers);
    EXPECT_EQ(format.find("args")->element_size, 8U);
    EXPECT_TRUE(format.find("filename")->is_pointer);
    EXPECT_EQ(format.find("name")->kind, FieldKind::data_loc);
    EXPECT_TRUE(format.find("name")->is_text);
    EXPECT_EQ(format.find("rel")->kind, FieldKind::rel_loc);
    EXPECT_EQ(format.find("rel")->element_size, 4U);
    EXPECT_EQ(format.find("buf")->kind, FieldKind::trailing_text);
    EXPECT_EQ(format.find("nothing"), nullptr);
}

TEST(Format, AProbesStringsHaveAPlaceEach) {
    const EventFormat format = parse("\tfield:__data_loc char[][2] argv;\toffset:8;\tsize:8;\tsigned:1;\n");
    EXPECT_EQ(format.find("argv")->kind, FieldKind::data_loc);
    EXPECT_TRUE(format.find("argv")->is_text);
    const EventFormat synthetic = parse("\tfield:__data_loc char[] comm;\toffset:16;\tsize:8;\tsigned:1;\n");
    EXPECT_EQ(synthetic.find("comm")->size, 4U) << "one place, in the first half";
    EXPECT_THROW((void)parse("\tfield:__data_loc char[] x;\toffset:8;\tsize:6;\tsigned:1;\n"), FormatError);
}

TEST(Format, SymbolicArrayLengthsTakeTheSizeFromTheField) {
    const EventFormat format = parse("\tfield:char comm[TASK_COMM_LEN];\toffset:8;\tsize:16;\tsigned:0;\n");
    EXPECT_EQ(format.find("comm")->kind, FieldKind::text);
    EXPECT_EQ(format.find("comm")->size, 16U);
}

TEST(Format, WhatIsWrongIsNamedWithItsPlace) {
    const auto fails = [](const std::string& fields, const std::string& words) {
        try {
            (void)parse(fields);
            ADD_FAILURE() << "no error for " << fields;
        } catch (const FormatError& error) {
            EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
            EXPECT_GT(error.offset(), 1000U);
        }
    };
    fails("\tfield:int x;\toffset:y;\tsize:4;\tsigned:1;\n", "an offset and a size");
    fails("\tfield:int x;\toffset:8;\n", "field:TYPE NAME");
    fails("\tfield:x;\toffset:8;\tsize:4;\tsigned:1;\n", "a type and a name");
    fails("\tfield:int x[4;\toffset:8;\tsize:4;\tsigned:1;\n", "closing bracket");
    fails("\tfield:int x;\toffset:8;\tsize:4000000000;\tsigned:1;\n", "an offset and a size");
}

TEST(Format, AFileWithoutNameOrIdIsRefused) {
    EXPECT_THROW((void)parse_event_format("ID: 3\nformat:\n", "s", "f", 0), FormatError);
    EXPECT_THROW((void)parse_event_format("name: x\nID: 70000\nformat:\n", "s", "f", 0), FormatError);
}

TEST(Format, HeaderPageGivesTheSubBufferSize) {
    const PageLayout big{false, 4, 8, 12, 65536};
    const PageLayout layout = parse_page_layout(header_page(big), true, 8, 4096, "f", 0);
    EXPECT_TRUE(layout.big_endian);
    EXPECT_EQ(layout.commit_size, 4);
    EXPECT_EQ(layout.data_offset, 12U);
    EXPECT_EQ(layout.page_size, 65536U);
    EXPECT_EQ(parse_page_layout("", false, 8, 4096, "f", 0).data_offset, 16U);
    EXPECT_THROW((void)parse_page_layout("\tfield: u64 t;\toffset:0;\tsize:8;\n", false, 8, 4096, "f", 0), FormatError);
}

}  // namespace
}  // namespace sampleblk::trace::test
