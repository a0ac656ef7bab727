// SPDX-License-Identifier: MIT
#include <cstdlib>
#include <span>

#include "file/page.hpp"
#include "fuzz_trace.hpp"

namespace sampleblk::fuzz {

namespace {

template <bool Swap>
void walk_page(std::span<const std::byte> page, const trace::PageLayout& layout) {
    trace::PageWalker<Swap> walker;
    walker.begin(page, layout);
    trace::RawRecord record;
    while (walker.next(record)) {
        const bool inside = record.data >= page.data() && record.data + record.size <= page.data() + page.size();
        if (!inside) {
            std::abort();
        }
    }
    if (walker.position() > page.size()) {
        std::abort();
    }
}

}  // namespace

int trace_page(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    trace::PageLayout layout;
    layout.big_endian = (data[0] & 1) != 0;
    layout.commit_size = (data[0] & 2) != 0 ? 4 : 8;
    layout.data_offset = 8 + static_cast<std::uint32_t>(layout.commit_size);
    const std::span page(reinterpret_cast<const std::byte*>(data + 1), size - 1);
    if (trace::swap_needed(layout.big_endian)) {
        walk_page<true>(page, layout);
    } else {
        walk_page<false>(page, layout);
    }
    return 0;
}

}  // namespace sampleblk::fuzz
