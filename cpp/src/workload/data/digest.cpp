// SPDX-License-Identifier: MIT
#include "data/digest.hpp"

#include <openssl/evp.h>
#include <zlib.h>

#include <cstring>
#include <memory>

#include "sampleblk/crc.hpp"
#include "sampleblk/error.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace sampleblk::workload {

namespace {

struct Algorithm {
    std::size_t size = 0;
    const char* name = nullptr;  // libcrypto's; null: not by libcrypto
    EVP_MD* loaded = nullptr;    // never freed: jobs use it until they end
};

// In the order of Verify.
Algorithm algorithms[] = {
    {},  // none
    {.size = 16, .name = "MD5"},
    {.size = 8},  // crc64
    {.size = 4},  // crc32
    {.size = 4},  // crc32c
    {.size = 2},  // crc16
    {.size = 1},  // crc7
    {.size = 4},  // xxhash
    {.size = 20, .name = "SHA1"},
    {.size = 32, .name = "SHA256"},
    {.size = 64, .name = "SHA512"},
    {.size = 28, .name = "SHA3-224"},
    {.size = 32, .name = "SHA3-256"},
    {.size = 48, .name = "SHA3-384"},
    {.size = 64, .name = "SHA3-512"},
    {},  // pattern
    {},  // pattern_hdr
    {},  // header_only
    {},  // null
};

Algorithm& algorithm_of(Verify kind) noexcept {
    return algorithms[static_cast<std::size_t>(kind)];
}

// fio makes them the same way.
constexpr auto crc16_table = make_crc_table<std::uint16_t>(0xa001U);
constexpr auto crc64_table = make_crc_table<std::uint64_t>(0xc96c5795d7870f42U);

// CRC-7 is not reflected; shifted up by one bit it is a CRC-8 of polynomial 0x12.
std::uint8_t crc7(std::span<const std::byte> data) noexcept {
    unsigned value = 0;
    for (const std::byte byte : data) {
        value ^= static_cast<unsigned>(byte);
        for (int bit = 0; bit < 8; ++bit) {
            value = (value << 1) ^ ((value & 0x80) != 0 ? 0x112U : 0);
        }
    }
    return static_cast<std::uint8_t>(value >> 1 & 0x7f);
}

void by_libcrypto(Digest& out, const EVP_MD* algorithm, std::span<const std::byte> data) noexcept {
    thread_local const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(::EVP_MD_CTX_new(),
                                                                                  ::EVP_MD_CTX_free);
    unsigned size = 0;
    if (context == nullptr || ::EVP_DigestInit_ex2(context.get(), algorithm, nullptr) != 1 ||
        ::EVP_DigestUpdate(context.get(), data.data(), data.size()) != 1 ||
        ::EVP_DigestFinal_ex(context.get(), out.bytes.data(), &size) != 1) {
        std::abort();  // out of memory: a digest that is not one would be a wrong answer
    }
}

template <typename T>
void put_le(Digest& out, T value) noexcept {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
        out.bytes[i] = static_cast<std::uint8_t>(value >> (8 * i));
    }
}

}  // namespace

std::size_t digest_size(Verify kind) noexcept {
    return algorithm_of(kind).size;
}

void load_digest(Verify kind) {
    Algorithm& algorithm = algorithm_of(kind);
    if (algorithm.name != nullptr && algorithm.loaded == nullptr) {
        algorithm.loaded = ::EVP_MD_fetch(nullptr, algorithm.name, nullptr);
        if (algorithm.loaded == nullptr) {
            throw UnsupportedError(std::string("verify by ") + algorithm.name, "libcrypto does not have it");
        }
    }
}

Digest digest_of(Verify kind, std::span<const std::byte> data) noexcept {
    Digest out;
    const Algorithm& algorithm = algorithm_of(kind);
    out.size = algorithm.size;
    switch (kind) {
        case Verify::crc32c:
            put_le(out, crc32c(data));
            break;
        case Verify::crc32:
            put_le(out,
                   static_cast<std::uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size())));
            break;
        case Verify::crc64:
            put_le(out, ~reflected_crc(crc64_table, ~std::uint64_t{0}, data));
            break;
        case Verify::crc16:
            put_le(out, reflected_crc(crc16_table, std::uint16_t{0}, data));
            break;
        case Verify::crc7:
            put_le(out, crc7(data));
            break;
        case Verify::xxhash:
            put_le(out, static_cast<std::uint32_t>(XXH32(data.data(), data.size(), 0)));
            break;
        default:
            if (algorithm.name != nullptr) {
                by_libcrypto(out, algorithm.loaded, data);
            }
    }
    return out;
}

}  // namespace sampleblk::workload
