// SPDX-License-Identifier: MIT
// One zstd stream that comes in pieces, as `perf record -z` writes it.
#pragma once

#include <zstd.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sampleblk::profile {

class Inflater {
  public:
    // `path` is for messages.
    explicit Inflater(std::string path);

    // Appends to `out` what the next piece holds. The text of zstd's error, after which the stream begins anew; empty
    // when there was none.
    [[nodiscard]] std::string add(std::span<const std::byte> packed, std::vector<std::byte>& out);

  private:
    struct Free {
        void operator()(ZSTD_DStream* stream) const noexcept { ZSTD_freeDStream(stream); }
    };

    std::string path_;
    std::unique_ptr<ZSTD_DStream, Free> stream_;
};

}  // namespace sampleblk::profile
