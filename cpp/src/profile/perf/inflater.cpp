// SPDX-License-Identifier: MIT
#include "perf/inflater.hpp"

#include <new>
#include <utility>

#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"

namespace sampleblk::profile {

Inflater::Inflater(std::string path, std::uint64_t most)
    : path_(std::move(path)), most_(most), stream_(ZSTD_createDStream()) {
    if (!stream_) {
        throw std::bad_alloc();
    }
    ZSTD_initDStream(stream_.get());
}

std::string Inflater::add(std::span<const std::byte> packed, std::vector<std::byte>& out) {
    std::string error;
    ZSTD_inBuffer in{packed.data(), packed.size(), 0};
    std::size_t filled = out.size();
    bool more = !packed.empty();
    while (more) {
        out.resize(filled + ZSTD_DStreamOutSize());
        ZSTD_outBuffer to{out.data() + filled, out.size() - filled, 0};
        const std::size_t code = ZSTD_decompressStream(stream_.get(), &to, &in);
        filled += to.pos;
        inflated_ += to.pos;
        if (ZSTD_isError(code) != 0) {
            error = ZSTD_getErrorName(code);
            ZSTD_initDStream(stream_.get());
            break;
        }
        if (inflated_ > most_) {
            throw FormatError(path_, 0, "at most " + std::to_string(most_) + " bytes of decompressed records");
        }
        check_interrupt();
        more = in.pos < in.size || to.pos == to.size;  // a full output buffer may hide more
    }
    out.resize(filled);
    return error;
}

}  // namespace sampleblk::profile
