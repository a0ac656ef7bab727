// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "sampleblk/printable.hpp"

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

}  // namespace
}  // namespace sampleblk
