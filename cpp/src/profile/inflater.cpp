// SPDX-License-Identifier: MIT
#include "inflater.hpp"

#include <new>
#include <utility>

#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"

namespace sampleblk::profile {

namespace {

// More than this out of one file is no profile but an attempt on the memory.
constexpr std::size_t kMaxInflated = std::size_t{32} << 30;

}  // namespace

Inflater::Inflater(std::string path) : path_(std::move(path)), stream_(ZSTD_createDStream()) {
    if (!stream_) {
        throw std::bad_alloc();
    }
    ZSTD_initDStream(stream_.get());
}

std::string Inflater::add(std::span<const std::byte> packed, std::vector<std::byte>& out) {
    std::string error;
    ZSTD_inBuffer in{packed.data(), packed.size(), 0};
    std::size_t filled = out.size();
    while (in.pos < in.size) {
        out.resize(filled + ZSTD_DStreamOutSize());
        ZSTD_outBuffer to{out.data() + filled, out.size() - filled, 0};
        const std::size_t code = ZSTD_decompressStream(stream_.get(), &to, &in);
        filled += to.pos;
        if (ZSTD_isError(code) != 0) {
            error = ZSTD_getErrorName(code);
            ZSTD_initDStream(stream_.get());
            break;
        }
        if (filled > kMaxInflated) {
            throw FormatError(path_, 0, "at most 32 GiB of decompressed records");
        }
        check_interrupt();
    }
    // A full output buffer may hide more.
    while (filled == out.size() && !out.empty()) {
        out.resize(filled + ZSTD_DStreamOutSize());
        ZSTD_outBuffer to{out.data() + filled, out.size() - filled, 0};
        const std::size_t code = ZSTD_decompressStream(stream_.get(), &to, &in);
        if (ZSTD_isError(code) != 0 || to.pos == 0) {
            break;
        }
        filled += to.pos;
    }
    out.resize(filled);
    return error;
}

}  // namespace sampleblk::profile
