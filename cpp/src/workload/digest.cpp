// SPDX-License-Identifier: MIT
#include "digest.hpp"

#include <bit>
#include <cstring>

#include "digest_crc.hpp"
#include "digest_sha.hpp"

namespace sampleblk::workload {

namespace {

template <typename T>
void put_le(Digest& out, T value) noexcept {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
        out.bytes[out.size++] = static_cast<std::uint8_t>(value >> (8 * i));
    }
}

std::uint32_t xxh32(std::span<const std::byte> data) noexcept {
    constexpr std::uint32_t p1 = 2654435761U;
    constexpr std::uint32_t p2 = 2246822519U;
    constexpr std::uint32_t p3 = 3266489917U;
    constexpr std::uint32_t p4 = 668265263U;
    constexpr std::uint32_t p5 = 374761393U;
    const auto word = [](const std::byte* at) {
        std::uint32_t value = 0;
        std::memcpy(&value, at, sizeof(value));
        return value;
    };
    const std::byte* at = data.data();
    std::size_t left = data.size();
    std::uint32_t hash = 0;
    if (left >= 16) {
        std::array<std::uint32_t, 4> lanes = {p1 + p2, p2, 0, 0U - p1};
        for (; left >= 16; left -= 16, at += 16) {
            for (std::size_t i = 0; i < 4; ++i) {
                lanes[i] = std::rotl(lanes[i] + word(at + 4 * i) * p2, 13) * p1;
            }
        }
        hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
    } else {
        hash = p5;
    }
    hash += static_cast<std::uint32_t>(data.size());
    for (; left >= 4; left -= 4, at += 4) {
        hash = std::rotl(hash + word(at) * p3, 17) * p4;
    }
    for (; left != 0; --left, ++at) {
        hash = std::rotl(hash + static_cast<std::uint32_t>(*at) * p5, 11) * p1;
    }
    hash = (hash ^ (hash >> 15)) * p2;
    hash = (hash ^ (hash >> 13)) * p3;
    return hash ^ (hash >> 16);
}

}  // namespace

std::size_t digest_size(Verify kind) noexcept {
    switch (kind) {
        case Verify::md5:
            return 16;
        case Verify::crc64:
            return 8;
        case Verify::crc32:
        case Verify::crc32c:
        case Verify::xxhash:
            return 4;
        case Verify::crc16:
            return 2;
        case Verify::crc7:
            return 1;
        case Verify::sha1:
            return 20;
        case Verify::sha256:
        case Verify::sha3_256:
            return 32;
        case Verify::sha512:
        case Verify::sha3_512:
            return 64;
        case Verify::sha3_224:
            return 28;
        case Verify::sha3_384:
            return 48;
        default:
            return 0;
    }
}

Digest digest_of(Verify kind, std::span<const std::byte> data) noexcept {
    Digest out;
    switch (kind) {
        case Verify::crc32c:
            put_le(out, crc32c(data));
            break;
        case Verify::crc32:
            put_le(out, crc32(data));
            break;
        case Verify::crc64:
            put_le(out, crc64(data));
            break;
        case Verify::crc16:
            put_le(out, crc16(data));
            break;
        case Verify::crc7:
            put_le(out, crc7(data));
            break;
        case Verify::xxhash:
            put_le(out, xxh32(data));
            break;
        case Verify::md5:
            md5(data, out.bytes.data());
            break;
        case Verify::sha1:
            sha1(data, out.bytes.data());
            break;
        case Verify::sha256:
            sha256(data, out.bytes.data());
            break;
        case Verify::sha512:
            sha512(data, out.bytes.data());
            break;
        case Verify::sha3_224:
        case Verify::sha3_256:
        case Verify::sha3_384:
        case Verify::sha3_512:
            sha3(data, out.bytes.data(), digest_size(kind));
            break;
        default:
            break;
    }
    out.size = digest_size(kind);
    return out;
}

}  // namespace sampleblk::workload
