// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/digest.hpp"

namespace sampleblk::workload {
namespace {

std::string hex_of(Verify kind, const std::string& text) {
    load_digest(kind);
    const Digest digest = digest_of(kind, std::as_bytes(std::span(text)));
    EXPECT_EQ(digest.size, digest_size(kind));
    std::string out;
    for (std::size_t i = 0; i < digest.size; ++i) {
        constexpr const char* digits = "0123456789abcdef";
        out += digits[digest.bytes[i] >> 4];
        out += digits[digest.bytes[i] & 15];
    }
    return out;
}

// The check values of the catalogue of parametrised CRC algorithms (Greg Cook), little-endian: CRC-32/ISCSI,
// CRC-32/ISO-HDLC, CRC-64/XZ, CRC-16/ARC, CRC-7/MMC.
TEST(Digest, CrcsHaveTheirCheckValues) {
    const std::string check = "123456789";
    EXPECT_EQ(hex_of(Verify::crc32c, check), "839206e3");
    EXPECT_EQ(hex_of(Verify::crc32, check), "2639f4cb");
    EXPECT_EQ(hex_of(Verify::crc64, check), "fa3919dfbbc95d99");
    EXPECT_EQ(hex_of(Verify::crc16, check), "3dbb");
    EXPECT_EQ(hex_of(Verify::crc7, check), "75");
}

// RFC 1321, FIPS 180-4 and 202 for "abc"; the xxHash specification's "sanity check" of no bytes.
TEST(Digest, HashesHaveTheirPublishedValues) {
    const std::string abc = "abc";
    EXPECT_EQ(hex_of(Verify::md5, abc), "900150983cd24fb0d6963f7d28e17f72");
    EXPECT_EQ(hex_of(Verify::sha1, abc), "a9993e364706816aba3e25717850c26c9cd0d89d");
    EXPECT_EQ(hex_of(Verify::sha256, abc), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(hex_of(Verify::sha512, abc).substr(0, 32), "ddaf35a193617abacc417349ae204131");
    EXPECT_EQ(hex_of(Verify::sha3_224, abc), "e642824c3f8cf24ad09234ee7d3c766fc9a3a5168d0c94ad73b46fdf");
    EXPECT_EQ(hex_of(Verify::sha3_256, abc), "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532");
    EXPECT_EQ(hex_of(Verify::sha3_384, abc).substr(0, 32), "ec01498288516fc926459f58e2c6ad8d");
    EXPECT_EQ(hex_of(Verify::sha3_512, abc).substr(0, 32), "b751850b1a57168a5693cd924b6b096e");
    EXPECT_EQ(hex_of(Verify::xxhash, ""), "055dcc02");
}

TEST(Digest, KindsWithoutOneAreEmpty) {
    for (const Verify kind : {Verify::none, Verify::pattern, Verify::pattern_hdr, Verify::header_only, Verify::null}) {
        EXPECT_EQ(hex_of(kind, "abc"), "");
    }
}

}  // namespace
}  // namespace sampleblk::workload
