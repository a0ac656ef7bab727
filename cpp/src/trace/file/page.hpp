// SPDX-License-Identifier: MIT
// The walker of ring-buffer pages (sub-buffers): kernel/trace/ring_buffer.c, include/linux/ring_buffer.h. It is inline
// and does nothing but move on, because every event of every recording goes through it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "file/bytes.hpp"
#include "sampleblk/trace/format.hpp"

namespace sampleblk::trace {

// Why a page could not be walked to its end.
enum class PageFault : std::uint8_t { none, short_page, commit_too_long, record_too_long };

[[nodiscard]] constexpr const char* expected_by(PageFault fault) noexcept {
    switch (fault) {
        case PageFault::short_page:
            return "a whole page header";
        case PageFault::commit_too_long:
            return "a commit length that fits in its page";
        case PageFault::record_too_long:
            return "a record that ends inside its page's committed data";
        case PageFault::none:
            break;
    }
    return "";
}

// One record as it lies in the buffer: `data` begins with common_type.
struct RawRecord {
    std::uint64_t time = 0;
    const std::byte* data = nullptr;
    std::uint32_t size = 0;
};

// Goes through the records of one page at a time.
template <bool Swap>
class PageWalker {
  public:
    // Begins a page. `time` of the page before is kept for absolute stamps, which carry only 59 bits.
    void begin(std::span<const std::byte> page, const PageLayout& layout) noexcept {
        start_ = page.data();
        fault_ = PageFault::none;
        missed_ = false;
        missed_count_ = 0;
        out_of_order_ = false;
        at_ = end_ = start_;
        if (page.size() < layout.data_offset || page.size() < layout.commit_offset + layout.commit_size) {
            fault_ = PageFault::short_page;
            return;
        }
        const auto time = load<std::uint64_t, Swap>(start_);
        out_of_order_ = time < begun_ || (time == begun_ && time_ > begun_);
        begun_ = time_ = time;
        const std::uint64_t commit = layout.commit_size == 8 ? load<std::uint64_t, Swap>(start_ + layout.commit_offset)
                                                             : load<std::uint32_t, Swap>(start_ + layout.commit_offset);
        const std::size_t length = commit & kCommitMask;
        at_ = start_ + layout.data_offset;
        if (length > page.size() - layout.data_offset) {
            fault_ = PageFault::commit_too_long;
            end_ = at_;
            return;
        }
        end_ = at_ + length;
        missed_ = (commit & kMissedEvents) != 0;
        if (missed_ && (commit & kMissedStored) != 0) {
            // How many were missed is stored after the data, as a long.
            const std::size_t room = page.size() - layout.data_offset - length;
            if (room >= layout.commit_size) {
                missed_count_ =
                    layout.commit_size == 8 ? load<std::uint64_t, Swap>(end_) : load<std::uint32_t, Swap>(end_);
            }
        }
    }

    // The next record of the page; false at its end, and where the page is broken (see fault()).
    [[nodiscard]] bool next(RawRecord& out) noexcept {
        while (end_ - at_ >= 4) {
            const auto head = load<std::uint32_t, Swap>(at_);
            // Bit fields are laid out from the other end on big-endian machines.
            std::uint32_t type = head & 31;
            std::uint32_t delta = head >> 5;
            if (big_) {
                type = head >> 27;
                delta = head & kDeltaMask;
            }
            if (type != 0 && type <= kTypeDataMax) {
                // Where the next record lies is known only when this one has come from memory: one miss a record.
                // An address past the page's end is the next page's, or is ignored.
                __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(at_) + kPrefetch));
                time_ += delta;
                const std::uint32_t size = type * 4;
                if (size > static_cast<std::size_t>(end_ - at_) - 4) [[unlikely]] {
                    break;
                }
                out.time = time_;
                out.data = at_ + 4;
                out.size = size;
                at_ += 4 + size;
                return true;
            }
            if (type == kTypePadding && delta == 0) {
                at_ = end_;  // the rest of the page is empty
                return false;
            }
            if (end_ - at_ < 8) {
                break;
            }
            const auto word = load<std::uint32_t, Swap>(at_ + 4);
            if (type == kTypeTimeExtend) {
                time_ += (static_cast<std::uint64_t>(word) << kDeltaBits) + delta;
                at_ += 8;
                continue;
            }
            if (type == kTypeTimeStamp) {
                std::uint64_t stamp = (static_cast<std::uint64_t>(word) << kDeltaBits) + delta;
                const std::uint64_t before = time_ & kStampTop;
                stamp |= before;
                if (before != 0 && stamp < time_) {
                    stamp += kStampWrap;  // the 59 bits went round
                }
                time_ = stamp;
                at_ += 8;
                continue;
            }
            // Padding with a delta is a discarded event; otherwise the word is the length with itself in it.
            time_ += delta;
            if (word > static_cast<std::size_t>(end_ - at_) - 4 || word < 4) {
                break;
            }
            const std::byte* data = at_ + 8;
            const std::size_t whole = (static_cast<std::size_t>(word) + 3) & ~std::size_t{3};
            if (whole > static_cast<std::size_t>(end_ - at_) - 4) {
                break;
            }
            at_ += 4 + whole;
            if (type == 0) {
                out.time = time_;
                out.data = data;
                out.size = word - 4;
                return true;
            }
        }
        if (at_ != end_) {
            fault_ = PageFault::record_too_long;
        }
        return false;
    }

    [[nodiscard]] std::uint64_t time() const noexcept { return time_; }
    [[nodiscard]] PageFault fault() const noexcept { return fault_; }
    // Bytes from the start of the page.
    [[nodiscard]] std::size_t position() const noexcept { return static_cast<std::size_t>(at_ - start_); }
    // What could not be read after a fault, in bytes.
    [[nodiscard]] std::size_t unread() const noexcept { return static_cast<std::size_t>(end_ - at_); }
    // Whether events were lost before this page, and how many where the kernel stored that.
    [[nodiscard]] bool missed() const noexcept { return missed_; }
    [[nodiscard]] std::uint64_t missed_count() const noexcept { return missed_count_; }
    // Whether this page begins before the one that was walked before it, or is that page once more: pages that were
    // exchanged or duplicated, or a clock that was set.
    [[nodiscard]] bool out_of_order() const noexcept { return out_of_order_; }

    static constexpr std::uint64_t kCommitMask = (1U << 27) - 1;
    static constexpr std::uint64_t kMissedEvents = 1ULL << 31;
    static constexpr std::uint64_t kMissedStored = 1ULL << 30;

  private:
    static constexpr std::size_t kPrefetch = 512;  // bytes ahead
    static constexpr std::uint32_t kTypeDataMax = 28;
    static constexpr std::uint32_t kTypePadding = 29;
    static constexpr std::uint32_t kTypeTimeExtend = 30;
    static constexpr std::uint32_t kTypeTimeStamp = 31;
    static constexpr unsigned kDeltaBits = 27;
    static constexpr std::uint32_t kDeltaMask = (1U << kDeltaBits) - 1;
    static constexpr std::uint64_t kStampTop = 0xf8ULL << 56;
    static constexpr std::uint64_t kStampWrap = 1ULL << 59;
    // The recording's order, not ours.
    static constexpr bool big_ = Swap != (std::endian::native == std::endian::big);

    const std::byte* start_ = nullptr;
    const std::byte* at_ = nullptr;
    const std::byte* end_ = nullptr;
    std::uint64_t time_ = 0;
    std::uint64_t begun_ = 0;  // the page, by its own stamp
    std::uint64_t missed_count_ = 0;
    PageFault fault_ = PageFault::none;
    bool missed_ = false;
    bool out_of_order_ = false;
};

}  // namespace sampleblk::trace
