// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "sampleblk/kallsyms.hpp"
#include "sampleblk/text.hpp"

namespace sampleblk {
namespace {

TEST(Printable, LeavesUtf8Alone) {
    using namespace std::string_view_literals;
    for (const std::string_view text :
         {""sv, "a"sv, "exactly8"sv, "longer than eight bytes"sv, "nul\0inside it"sv, "\xc3\xa9"sv,
          "\xe2\x82\xac and then some"sv, "\xf0\x9f\x98\x80"sv, "1234567\xc3\xa9"sv, "\xf4\x8f\xbf\xbf"sv}) {
        EXPECT_TRUE(is_utf8(text)) << text;
        EXPECT_EQ(printable(text), text);
    }
}

TEST(Printable, ShowsEveryOtherByte) {
    EXPECT_EQ(printable("\xff"), "\\xff");
    EXPECT_EQ(printable("12345678\x80"), "12345678\\x80");
    EXPECT_EQ(printable("a\xc3"), "a\\xc3");                           // cut off
    EXPECT_EQ(printable("\xc3(\xc3\xa9"), "\\xc3(\xc3\xa9");           // no continuation
    EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");                    // longer than it need be
    EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a surrogate
    EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // past U+10FFFF
    EXPECT_EQ(printable("\xe2\x82\xac\xe2\x82"), "\xe2\x82\xac\\xe2\\x82");
    EXPECT_FALSE(is_utf8("12345678\x80"));
}

TEST(MountPath, HasBlanksAsTheyAre) {
    EXPECT_EQ(mount_path("/sys/kernel/tracing"), "/sys/kernel/tracing");
    EXPECT_EQ(mount_path("/mnt/a\\040b\\134\\011c\\012"), "/mnt/a b\\\tc\n");
    EXPECT_EQ(mount_path("/mnt/\\04\\09x\\"), "/mnt/\\04\\09x\\");
}

TEST(PlainText, ShowsWhatATerminalOrXmlCannotCarry) {
    EXPECT_EQ(plain_text("a\x1b[31m\tb\nc\x7f\xff"), "a\\x1b[31m\tb\nc\\x7f\\xff");
    EXPECT_EQ(plain_text("\xc2\x9b"
                         "31m \xc2\xa0\xc3\x9b"),
              "\\xc2\\x9b31m \xc2\xa0\xc3\x9b");
    EXPECT_EQ(plain_text("\xef\xbf\xbe \xef\xbf\xbf \xef\xbf\xbd"), "\\xef\\xbf\\xbe \\xef\\xbf\\xbf \xef\xbf\xbd");
    EXPECT_EQ(xml_text("<a & \"b\">\x01"), "&lt;a &amp; &quot;b&quot;&gt;\\x01");
}

TEST(JsonText, EscapesWhatAStringMustNotHold) {
    EXPECT_EQ(json_text("a\"b\\c\n\x1f\xff\xc3\xa9"), "\"a\\\"b\\\\c\\u000a\\u001f\\\\xff\xc3\xa9\"");
    EXPECT_EQ(json_text(""), "\"\"");
}

TEST(Trim, TakesWhiteSpaceOffBothEnds) {
    EXPECT_EQ(trim(" \t a b\r\n\v\f"), "a b");
    EXPECT_EQ(trim(" \n "), "");
    EXPECT_EQ(trim(""), "");
}

TEST(HexNumber, HasNoLeadingZeros) {
    EXPECT_EQ(hex_number(0), "0x0");
    EXPECT_EQ(hex_number(~std::uint64_t{0}), "0xffffffffffffffff");
}

TEST(Kallsyms, GivesWholeLinesAndStopsWhenTold) {
    std::vector<std::string> seen;
    const std::string_view text = "ffffffff81000000 T _text\nnot one\n10 t \n20 a abs\n30 d data \t[ext4]\n40 T last\n";
    for_each_kallsyms_line(text, [&](const KallsymsLine& line) {
        seen.push_back(hex_number(line.address) + line.type + std::string(line.name) + std::string(line.module_name()) +
                       (line.absolute() ? "!" : ""));
        return line.address != 0x30;
    });
    EXPECT_EQ(seen, (std::vector<std::string>{"0xffffffff81000000T_text", "0x20aabs!", "0x30ddataext4"}));
}

}  // namespace
}  // namespace sampleblk
