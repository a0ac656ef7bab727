// SPDX-License-Identifier: MIT
#include "compress.hpp"

#include <zlib.h>
#include <zstd.h>

namespace sampleblk::trace {

std::optional<std::vector<std::byte>> decompress(Compression how, std::span<const std::byte> source,
                                                 std::uint32_t size) {
    std::vector<std::byte> out(size);
    std::size_t got = 0;
    if (how == Compression::zstd) {
        got = ZSTD_decompress(out.data(), out.size(), source.data(), source.size());
        if (ZSTD_isError(got) != 0) {
            return std::nullopt;
        }
    } else if (how == Compression::zlib) {
        uLongf length = size;
        if (uncompress(reinterpret_cast<Bytef*>(out.data()), &length, reinterpret_cast<const Bytef*>(source.data()),
                       static_cast<uLong>(source.size())) != Z_OK) {
            return std::nullopt;
        }
        got = length;
    } else {
        return std::nullopt;
    }
    if (got != size) {
        return std::nullopt;
    }
    return out;
}

}  // namespace sampleblk::trace
