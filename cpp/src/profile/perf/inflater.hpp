// SPDX-License-Identifier: MIT
// One zstd stream that comes in pieces, as `perf record -z` writes it.
#pragma once

#include <zstd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sampleblk::profile {

class Inflater {
  public:
    // More than this out of one file is no profile but an attempt on the memory.
    static constexpr std::uint64_t kMost = std::uint64_t{32} << 30U;

    // `path` is for messages; `most` limits the bytes of all pieces together.
    explicit Inflater(std::string path, std::uint64_t most = kMost);

    // Appends to `out` what the next piece holds. The text of zstd's error, after which the stream begins anew; empty
    // when there was none. Throws FormatError past the limit.
    [[nodiscard]] std::string add(std::span<const std::byte> packed, std::vector<std::byte>& out);

  private:
    struct Free {
        void operator()(ZSTD_DStream* stream) const noexcept { ZSTD_freeDStream(stream); }
    };

    std::string path_;
    std::uint64_t most_;
    std::uint64_t inflated_ = 0;
    std::unique_ptr<ZSTD_DStream, Free> stream_;
};

}  // namespace sampleblk::profile
