// SPDX-License-Identifier: MIT
#include "file/walker.hpp"

#include <sys/mman.h>

namespace sampleblk::trace {

namespace {

// How much of a mapping stays resident behind a walk, a CPU: enough that small recordings are not read twice.
constexpr std::uint64_t kKeep = 16U << 20;

// Bytes of the page after the one that is walked.
constexpr std::size_t kPrefetch = 512;

}  // namespace

PageSource::PageSource(const TraceFile& file, const BufferData& buffer, const CpuData& cpu)
    : file_(file), buffer_(buffer), cpu_(cpu), offset_(cpu.offset), given_back_(cpu.offset) {
    if (!buffer_.compressed) {
        window_ = file.bytes().subspan(static_cast<std::size_t>(cpu.offset), static_cast<std::size_t>(cpu.size));
    }
}

bool PageSource::invalidates() const noexcept {
    if (buffer_.compressed) {
        return window_.empty();
    }
    return file_.mapped() && offset_ >= given_back_ + kKeep;
}

bool PageSource::next(std::span<const std::byte>& page) {
    while (window_.empty()) {
        if (next_chunk_ >= cpu_.chunks.size()) {
            return false;
        }
        const Chunk& chunk = cpu_.chunks[next_chunk_++];
        offset_ = chunk.offset;
        try {
            chunk_ = file_.unpack(chunk.offset, chunk.packed, chunk.size);
        } catch (const FormatError& error) {
            if (file_.on_error() == OnError::strict) {
                throw;
            }
            damage_.pages += (chunk.size + buffer_.layout.page_size - 1) / buffer_.layout.page_size;
            damage_.bytes += chunk.packed;
            damage_.note(error.what());
            continue;
        }
        window_ = chunk_;
    }
    const std::size_t size = std::min<std::size_t>(buffer_.layout.page_size, window_.size());
    page = window_.first(size);
    window_ = window_.subspan(size);
    // The processor's own prefetching stops at page ends.
    for (std::size_t ahead = 0; ahead < kPrefetch && ahead < window_.size(); ahead += 64) {
        __builtin_prefetch(window_.data() + ahead);
    }
    if (!buffer_.compressed) {
        offset_ = static_cast<std::uint64_t>(page.data() - file_.bytes().data());
        if (file_.mapped() && offset_ >= given_back_ + kKeep) {
            // Advice only: dropped pages of a read-only mapping come back from the file when touched again.
            const auto system_page = static_cast<std::uintptr_t>(4096);
            const auto first =
                (reinterpret_cast<std::uintptr_t>(file_.bytes().data() + given_back_) + system_page - 1) &
                ~(system_page - 1);
            const auto last = reinterpret_cast<std::uintptr_t>(page.data()) & ~(system_page - 1);
            if (last > first) {
                (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
            }
            given_back_ = offset_;
        }
    }
    return true;
}

void PageSource::seek(std::uint64_t from, const TimeConversion& time, bool swap) {
    if (buffer_.compressed) {
        return;  // chunks carry no times; the walk passes over what is too early
    }
    const std::size_t page = buffer_.layout.page_size;
    const auto begins = [&](std::size_t index) {
        return time.apply(load<std::uint64_t>(window_.data() + index * page, swap));
    };
    // The last page that begins at or before `from`, so that no event after it is missed.
    std::size_t low = 0;
    std::size_t high = window_.size() / page;
    while (high - low > 1) {
        const std::size_t middle = low + (high - low) / 2;
        (begins(middle) <= from ? low : high) = middle;
    }
    window_ = window_.subspan(low * page);
}

WalkStats walk(const TraceFile& file, const Selection& selection, EventSink& sink) {
    return swap_needed(file.big_endian()) ? detail::walk<true>(file, selection, sink)
                                          : detail::walk<false>(file, selection, sink);
}

}  // namespace sampleblk::trace
