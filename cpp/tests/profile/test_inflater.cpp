// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include "perf/inflater.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"

namespace sampleblk::profile {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kMiB = std::size_t{1} << 20U;

// A frame that holds that many zeros, and is far smaller.
Bytes packed(std::size_t zeros) {
    const Bytes plain(zeros);
    Bytes out(ZSTD_compressBound(plain.size()));
    out.resize(ZSTD_compress(out.data(), out.size(), plain.data(), plain.size(), 1));
    return out;
}

TEST(Inflater, ItsLimitIsThatOfAllPieces) {
    const Bytes piece = packed(kMiB);
    Inflater inflater("made up", 3 * kMiB);
    for (int i = 0; i < 3; ++i) {
        Bytes out(5);  // the beginning of a record, from the piece before: it does not count again
        EXPECT_EQ(inflater.add(piece, out), "");
        EXPECT_EQ(out.size(), kMiB + 5);
    }
    Bytes out;
    EXPECT_THROW((void)inflater.add(piece, out), FormatError);
}

struct Interrupted : std::runtime_error {
    Interrupted() : std::runtime_error("interrupted") {}
};

TEST(Inflater, AnInterruptEndsAPieceThatHoldsMuch) {
    static int left = 0;
    left = 8;  // of the 16 or more steps that 16 MiB take
    set_interrupt_check([] {
        if (--left == 0) {
            throw Interrupted();
        }
    });
    Inflater inflater("made up");
    Bytes out;
    EXPECT_THROW((void)inflater.add(packed(16 * kMiB), out), Interrupted);
    set_interrupt_check(nullptr);
    EXPECT_LT(out.size(), 16 * kMiB);
}

}  // namespace
}  // namespace sampleblk::profile
