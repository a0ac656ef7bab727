// SPDX-License-Identifier: MIT
#include "digest_sha.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace sampleblk::workload {

namespace {

template <typename T, bool BigEndian>
T load(const std::uint8_t* at) noexcept {
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
        value |= static_cast<T>(static_cast<T>(at[i]) << (8 * (BigEndian ? sizeof(T) - 1 - i : i)));
    }
    return value;
}

template <typename T, bool BigEndian>
void store(T value, std::uint8_t* at) noexcept {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
        at[i] = static_cast<std::uint8_t>(value >> (8 * (BigEndian ? sizeof(T) - 1 - i : i)));
    }
}

// Merkle-Damgard: whole blocks, then 0x80, zeroes and the length in bits.
template <std::size_t Block, std::size_t LengthBytes, bool BigEndian, typename Step>
void absorb(std::span<const std::byte> data, Step step) noexcept {
    const auto* at = reinterpret_cast<const std::uint8_t*>(data.data());
    std::size_t left = data.size();
    for (; left >= Block; left -= Block, at += Block) {
        step(at);
    }
    std::array<std::uint8_t, 2 * Block> tail{};
    std::memcpy(tail.data(), at, left);
    tail[left] = 0x80;
    const std::size_t size = left + 1 + LengthBytes <= Block ? Block : 2 * Block;
    const std::uint64_t bits = static_cast<std::uint64_t>(data.size()) * 8;
    // The upper half of a 128-bit length stays zero.
    store<std::uint64_t, BigEndian>(bits, tail.data() + size - (BigEndian ? 8 : LengthBytes));
    step(tail.data());
    if (size == 2 * Block) {
        step(tail.data() + Block);
    }
}

// floor(2^32 * |sin(i + 1)|), RFC 1321.
constexpr std::array<std::uint32_t, 64> md5_constants = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};
constexpr std::array<int, 16> md5_shifts = {7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21};

void md5_block(std::array<std::uint32_t, 4>& state, const std::uint8_t* block) noexcept {
    std::array<std::uint32_t, 16> words{};
    for (std::size_t i = 0; i < 16; ++i) {
        words[i] = load<std::uint32_t, false>(block + 4 * i);
    }
    auto [a, b, c, d] = state;
    for (std::size_t i = 0; i < 64; ++i) {
        std::uint32_t mixed = 0;
        std::size_t word = 0;
        switch (i / 16) {
            case 0:
                mixed = (b & c) | (~b & d);
                word = i;
                break;
            case 1:
                mixed = (d & b) | (~d & c);
                word = (5 * i + 1) % 16;
                break;
            case 2:
                mixed = b ^ c ^ d;
                word = (3 * i + 5) % 16;
                break;
            default:
                mixed = c ^ (b | ~d);
                word = (7 * i) % 16;
        }
        const std::uint32_t next =
            b + std::rotl(a + mixed + md5_constants[i] + words[word], md5_shifts[(i / 16) * 4 + i % 4]);
        a = d;
        d = c;
        c = b;
        b = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

void sha1_block(std::array<std::uint32_t, 5>& state, const std::uint8_t* block) noexcept {
    std::array<std::uint32_t, 80> words{};
    for (std::size_t i = 0; i < 16; ++i) {
        words[i] = load<std::uint32_t, true>(block + 4 * i);
    }
    for (std::size_t i = 16; i < 80; ++i) {
        words[i] = std::rotl(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
    }
    auto [a, b, c, d, e] = state;
    for (std::size_t i = 0; i < 80; ++i) {
        constexpr std::array<std::uint32_t, 4> constants = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
        const std::uint32_t mixed = i < 20   ? (b & c) | (~b & d)
                                    : i < 40 ? b ^ c ^ d
                                    : i < 60 ? (b & c) | (b & d) | (c & d)
                                             : b ^ c ^ d;
        const std::uint32_t next = std::rotl(a, 5) + mixed + e + constants[i / 20] + words[i];
        e = d;
        d = c;
        c = std::rotl(b, 30);
        b = a;
        a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

// Fractional parts of the cube roots of the first 80 primes, FIPS 180-4; SHA-256 uses the upper half
// of the first 64.
constexpr std::array<std::uint64_t, 80> sha2_constants = {
    0x428a2f98d728ae22, 0x7137449123ef65cd, 0xb5c0fbcfec4d3b2f, 0xe9b5dba58189dbbc, 0x3956c25bf348b538,
    0x59f111f1b605d019, 0x923f82a4af194f9b, 0xab1c5ed5da6d8118, 0xd807aa98a3030242, 0x12835b0145706fbe,
    0x243185be4ee4b28c, 0x550c7dc3d5ffb4e2, 0x72be5d74f27b896f, 0x80deb1fe3b1696b1, 0x9bdc06a725c71235,
    0xc19bf174cf692694, 0xe49b69c19ef14ad2, 0xefbe4786384f25e3, 0x0fc19dc68b8cd5b5, 0x240ca1cc77ac9c65,
    0x2de92c6f592b0275, 0x4a7484aa6ea6e483, 0x5cb0a9dcbd41fbd4, 0x76f988da831153b5, 0x983e5152ee66dfab,
    0xa831c66d2db43210, 0xb00327c898fb213f, 0xbf597fc7beef0ee4, 0xc6e00bf33da88fc2, 0xd5a79147930aa725,
    0x06ca6351e003826f, 0x142929670a0e6e70, 0x27b70a8546d22ffc, 0x2e1b21385c26c926, 0x4d2c6dfc5ac42aed,
    0x53380d139d95b3df, 0x650a73548baf63de, 0x766a0abb3c77b2a8, 0x81c2c92e47edaee6, 0x92722c851482353b,
    0xa2bfe8a14cf10364, 0xa81a664bbc423001, 0xc24b8b70d0f89791, 0xc76c51a30654be30, 0xd192e819d6ef5218,
    0xd69906245565a910, 0xf40e35855771202a, 0x106aa07032bbd1b8, 0x19a4c116b8d2d0c8, 0x1e376c085141ab53,
    0x2748774cdf8eeb99, 0x34b0bcb5e19b48a8, 0x391c0cb3c5c95a63, 0x4ed8aa4ae3418acb, 0x5b9cca4f7763e373,
    0x682e6ff3d6b2b8a3, 0x748f82ee5defb2fc, 0x78a5636f43172f60, 0x84c87814a1f0ab72, 0x8cc702081a6439ec,
    0x90befffa23631e28, 0xa4506cebde82bde9, 0xbef9a3f7b2c67915, 0xc67178f2e372532b, 0xca273eceea26619c,
    0xd186b8c721c0c207, 0xeada7dd6cde0eb1e, 0xf57d4f7fee6ed178, 0x06f067aa72176fba, 0x0a637dc5a2c898a6,
    0x113f9804bef90dae, 0x1b710b35131c471b, 0x28db77f523047d84, 0x32caab7b40c72493, 0x3c9ebe0a15c9bebc,
    0x431d67c49c100d4c, 0x4cc5d4becb3e42b6, 0x597f299cfc657e2a, 0x5fcb6fab3ad6faec, 0x6c44198c4a475817};

template <typename T>
struct Sha2;
template <>
struct Sha2<std::uint32_t> {
    static constexpr std::size_t rounds = 64;
    static constexpr std::array<int, 12> turns = {2, 13, 22, 6, 11, 25, 7, 18, 3, 17, 19, 10};
    static constexpr std::uint32_t constant(std::size_t i) {
        return static_cast<std::uint32_t>(sha2_constants[i] >> 32);
    }
};
template <>
struct Sha2<std::uint64_t> {
    static constexpr std::size_t rounds = 80;
    static constexpr std::array<int, 12> turns = {28, 34, 39, 14, 18, 41, 1, 8, 7, 19, 61, 6};
    static constexpr std::uint64_t constant(std::size_t i) { return sha2_constants[i]; }
};

template <typename T>
void sha2_block(std::array<T, 8>& state, const std::uint8_t* block) noexcept {
    using Parameters = Sha2<T>;
    constexpr auto& r = Parameters::turns;
    std::array<T, Parameters::rounds> words{};
    for (std::size_t i = 0; i < 16; ++i) {
        words[i] = load<T, true>(block + sizeof(T) * i);
    }
    for (std::size_t i = 16; i < Parameters::rounds; ++i) {
        const T w15 = words[i - 15];
        const T w2 = words[i - 2];
        words[i] = words[i - 16] + (std::rotr(w15, r[6]) ^ std::rotr(w15, r[7]) ^ (w15 >> r[8])) + words[i - 7] +
                   (std::rotr(w2, r[9]) ^ std::rotr(w2, r[10]) ^ (w2 >> r[11]));
    }
    std::array<T, 8> s = state;
    for (std::size_t i = 0; i < Parameters::rounds; ++i) {
        const T one = s[7] + (std::rotr(s[4], r[3]) ^ std::rotr(s[4], r[4]) ^ std::rotr(s[4], r[5])) +
                      ((s[4] & s[5]) ^ (~s[4] & s[6])) + Parameters::constant(i) + words[i];
        const T two = (std::rotr(s[0], r[0]) ^ std::rotr(s[0], r[1]) ^ std::rotr(s[0], r[2])) +
                      ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        s = {static_cast<T>(one + two), s[0], s[1], s[2], static_cast<T>(s[3] + one), s[4], s[5], s[6]};
    }
    for (std::size_t i = 0; i < 8; ++i) {
        state[i] += s[i];
    }
}

void keccak(std::array<std::uint64_t, 25>& a) noexcept {
    // FIPS 202, 3.2. The round constants and rotations follow from its LFSR and its walk.
    std::uint8_t lfsr = 1;
    for (int round = 0; round < 24; ++round) {
        std::array<std::uint64_t, 5> c{};
        for (std::size_t x = 0; x < 5; ++x) {
            c[x] = a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20];
        }
        for (std::size_t x = 0; x < 5; ++x) {
            const std::uint64_t d = c[(x + 4) % 5] ^ std::rotl(c[(x + 1) % 5], 1);
            for (std::size_t y = 0; y < 25; y += 5) {
                a[x + y] ^= d;
            }
        }
        std::size_t x = 1;
        std::size_t y = 0;
        std::uint64_t current = a[1];
        for (int t = 0; t < 24; ++t) {
            const std::size_t next_y = (2 * x + 3 * y) % 5;
            x = y;
            y = next_y;
            const std::uint64_t kept = a[x + 5 * y];
            a[x + 5 * y] = std::rotl(current, ((t + 1) * (t + 2) / 2) % 64);
            current = kept;
        }
        for (std::size_t row = 0; row < 25; row += 5) {
            const std::array<std::uint64_t, 5> b = {a[row], a[row + 1], a[row + 2], a[row + 3], a[row + 4]};
            for (std::size_t i = 0; i < 5; ++i) {
                a[row + i] = b[i] ^ (~b[(i + 1) % 5] & b[(i + 2) % 5]);
            }
        }
        for (int j = 0; j < 7; ++j) {
            if ((lfsr & 1) != 0) {
                a[0] ^= std::uint64_t{1} << ((1 << j) - 1);
            }
            lfsr = static_cast<std::uint8_t>((lfsr << 1) ^ ((lfsr & 0x80) != 0 ? 0x71 : 0));
        }
    }
}

}  // namespace

void md5(std::span<const std::byte> data, std::uint8_t* out) noexcept {
    std::array<std::uint32_t, 4> state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    absorb<64, 8, false>(data, [&](const std::uint8_t* block) { md5_block(state, block); });
    for (std::size_t i = 0; i < state.size(); ++i) {
        store<std::uint32_t, false>(state[i], out + 4 * i);
    }
}

void sha1(std::span<const std::byte> data, std::uint8_t* out) noexcept {
    std::array<std::uint32_t, 5> state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    absorb<64, 8, true>(data, [&](const std::uint8_t* block) { sha1_block(state, block); });
    for (std::size_t i = 0; i < state.size(); ++i) {
        store<std::uint32_t, true>(state[i], out + 4 * i);
    }
}

void sha256(std::span<const std::byte> data, std::uint8_t* out) noexcept {
    std::array<std::uint32_t, 8> state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    absorb<64, 8, true>(data, [&](const std::uint8_t* block) { sha2_block(state, block); });
    for (std::size_t i = 0; i < state.size(); ++i) {
        store<std::uint32_t, true>(state[i], out + 4 * i);
    }
}

void sha512(std::span<const std::byte> data, std::uint8_t* out) noexcept {
    std::array<std::uint64_t, 8> state = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                          0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
                                          0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
    absorb<128, 16, true>(data, [&](const std::uint8_t* block) { sha2_block(state, block); });
    for (std::size_t i = 0; i < state.size(); ++i) {
        store<std::uint64_t, true>(state[i], out + 8 * i);
    }
}

void sha3(std::span<const std::byte> data, std::uint8_t* out, std::size_t size) noexcept {
    const std::size_t rate = 200 - 2 * size;
    std::array<std::uint64_t, 25> state{};
    const auto absorb_block = [&](const std::uint8_t* block) {
        for (std::size_t i = 0; i < rate / 8; ++i) {
            state[i] ^= load<std::uint64_t, false>(block + 8 * i);
        }
        keccak(state);
    };
    const auto* at = reinterpret_cast<const std::uint8_t*>(data.data());
    std::size_t left = data.size();
    for (; left >= rate; left -= rate, at += rate) {
        absorb_block(at);
    }
    std::array<std::uint8_t, 200> tail{};
    std::memcpy(tail.data(), at, left);
    tail[left] = 0x06;
    tail[rate - 1] |= 0x80;
    absorb_block(tail.data());
    std::array<std::uint8_t, 200> squeezed{};
    for (std::size_t i = 0; i < 25; ++i) {
        store<std::uint64_t, false>(state[i], squeezed.data() + 8 * i);
    }
    std::memcpy(out, squeezed.data(), size);
}

}  // namespace sampleblk::workload
