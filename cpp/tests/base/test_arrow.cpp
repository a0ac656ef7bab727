// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstring>

#include "sampleblk/arrow.hpp"

namespace sampleblk {
namespace {

Table sample() {
    auto pool = std::make_shared<StringPool>();
    std::vector<std::int32_t> codes = {pool->intern("write"), -1, pool->intern("read"), 0};
    return Table({Column("ns", std::vector<std::uint64_t>{1, 2, 3, 4}, "ns"), Column("name", std::move(codes), pool)},
                 {{"lost", "7"}});
}

TEST(Arrow, SchemaFollowsTheSpecification) {
    ArrowSchema schema{};
    export_schema(sample(), &schema);
    EXPECT_STREQ(schema.format, "+s");
    ASSERT_EQ(schema.n_children, 2);
    EXPECT_STREQ(schema.children[0]->format, "L");
    EXPECT_STREQ(schema.children[1]->format, "i");
    EXPECT_STREQ(schema.children[1]->dictionary->format, "u");
    const char expected[] =
        "\1\0\0\0\4\0\0\0lost\1\0\0\0"
        "7";
    EXPECT_EQ(std::memcmp(schema.metadata, expected, sizeof(expected) - 1), 0);
    schema.release(&schema);
    EXPECT_EQ(schema.release, nullptr);
}

TEST(Arrow, BatchSharesDataAndMarksMissingStrings) {
    const Table table = sample();
    ArrowArray array{};
    export_batch(table, &array);
    EXPECT_EQ(array.length, 4);
    EXPECT_EQ(array.children[0]->buffers[1], table.columns()[0].data().get());
    EXPECT_EQ(array.children[1]->null_count, 1);
    EXPECT_EQ(static_cast<const std::uint8_t*>(array.children[1]->buffers[0])[0], 0b1101);
    const ArrowArray* words = array.children[1]->dictionary;
    EXPECT_EQ(words->length, 2);
    EXPECT_EQ(std::string_view(static_cast<const char*>(words->buffers[2]), 9), "writeread");
    array.release(&array);
}

TEST(Arrow, AChildMovedOutOutlivesItsParent) {
    ArrowArray array{};
    export_batch(sample(), &array);
    ArrowArray child = *array.children[0];
    array.children[0]->release = nullptr;  // how the specification says a consumer moves one
    array.release(&array);
    EXPECT_EQ(static_cast<const std::uint64_t*>(child.buffers[1])[3], 4U);
    child.release(&child);
}

TEST(Arrow, AColumnIsAnArrayByItself) {
    ArrowSchema schema{};
    ArrowArray array{};
    {
        const Table table = sample();
        export_schema(table.columns()[1], &schema);
        export_batch(table.columns()[1], &array);
    }
    EXPECT_STREQ(schema.format, "i");
    EXPECT_STREQ(schema.name, "name");
    EXPECT_STREQ(schema.dictionary->format, "u");
    EXPECT_EQ(array.length, 4);
    EXPECT_EQ(array.null_count, 1);
    EXPECT_EQ(static_cast<const std::int32_t*>(array.buffers[1])[3], 0);
    EXPECT_EQ(array.dictionary->length, 2);
    array.release(&array);
    schema.release(&schema);
    EXPECT_EQ(array.release, nullptr);
}

TEST(Arrow, StreamEndsAfterOneBatch) {
    ArrowArrayStream stream{};
    export_stream(sample(), &stream);
    ArrowArray array{};
    ASSERT_EQ(stream.get_next(&stream, &array), 0);
    ASSERT_NE(array.release, nullptr);
    array.release(&array);
    ASSERT_EQ(stream.get_next(&stream, &array), 0);
    EXPECT_EQ(array.release, nullptr);
    stream.release(&stream);
}

}  // namespace
}  // namespace sampleblk
