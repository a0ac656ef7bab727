// SPDX-License-Identifier: MIT
// The walk itself, a template, since what is done with an event is compiled into it. Memory is bounded: pages of a
// mapped file are given back behind it, compressed chunks are unpacked one per CPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "file/bytes.hpp"
#include "file/page.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/trace/walk.hpp"

namespace sampleblk::trace {

// The pages of one CPU, one after the other.
class PageSource {
  public:
    PageSource(const TraceFile& file, const BufferData& buffer, const CpuData& cpu);

    // Goes on to the next page; false after the last. What earlier pages pointed at may be gone afterwards when
    // invalidates() was true before.
    [[nodiscard]] bool next(std::span<const std::byte>& page);
    [[nodiscard]] bool invalidates() const noexcept;
    // Skips the pages that end before `from`.
    void seek(std::uint64_t from, const TimeConversion& time, bool swap);
    // Of the page last given, in bytes of the file; of its chunk where that is compressed.
    [[nodiscard]] std::uint64_t file_offset() const noexcept { return offset_; }
    [[nodiscard]] Damage& damage() noexcept { return damage_; }

  private:
    const TraceFile& file_;
    const BufferData& buffer_;
    const CpuData& cpu_;
    std::span<const std::byte> window_;  // pages still to come: of the file, or of one chunk
    std::vector<std::byte> chunk_;
    std::size_t next_chunk_ = 0;
    std::uint64_t offset_ = 0;
    std::uint64_t given_back_ = 0;  // in the file: up to where the mapping was told that we are done
    Damage damage_;
};

namespace detail {

// One side of the merge: a CPU of a buffer.
template <bool Swap>
struct Lane {
    PageSource source;
    const BufferData* buffer;
    Place place;
    PageWalker<Swap> walker{};
    RawRecord record{};
};

// Goes on to the lane's next event inside the window; false at its end.
template <bool Swap, typename Sink>
[[nodiscard]] inline bool advance(Lane<Swap>& lane, const TraceFile& file, const TimeConversion& time,
                                  const Selection& selection, Sink& sink, WalkStats& stats, std::uint64_t& pages) {
    for (;;) {
        while (lane.walker.next(lane.record)) [[likely]] {
            if (!time.identity()) [[unlikely]] {
                lane.record.time = time.apply(lane.record.time);
            }
            if (lane.record.time < selection.from) [[unlikely]] {
                continue;
            }
            return lane.record.time < selection.to;
        }
        if (lane.walker.fault() != PageFault::none) {
            const std::uint64_t at = lane.source.file_offset() + (lane.buffer->compressed ? 0 : lane.walker.position());
            const auto error = [&] { return FormatError(file.path(), at, expected_by(lane.walker.fault())); };
            if (file.on_error() == OnError::strict) {
                sink.flush();
                file.check_length();
                throw error();
            }
            ++stats.damage.pages;
            stats.damage.bytes += lane.walker.unread();
            stats.damage.note(error().what());
        }
        if (lane.source.invalidates()) {
            sink.flush();
        }
        std::span<const std::byte> page;
        if (!lane.source.next(page)) {
            return false;
        }
        if ((++pages & 0xff) == 0) {
            check_interrupt();
            if (selection.cancelled != nullptr && selection.cancelled->load(std::memory_order_relaxed)) {
                return false;
            }
        }
        lane.walker.begin(page, lane.buffer->layout);
        // A page that began before the window is looked at for its later events; what it missed is not the window's.
        if ((lane.walker.missed() || lane.walker.out_of_order()) && time.apply(lane.walker.time()) >= selection.from) {
            ++stats.missed_spots;
            stats.missed += lane.walker.missed_count();
            sink.missed(lane.place, time.apply(lane.walker.time()), lane.walker.missed_count());
        }
    }
}

template <bool Swap, typename Sink>
WalkStats walk(const TraceFile& file, const Selection& selection, Sink& sink) {
    WalkStats stats;
    std::uint64_t pages = 0;
    const TimeConversion conversion = file.time();
    std::vector<Lane<Swap>> lanes;
    const auto buffers = file.select(selection.buffer);
    for (std::size_t number = 0; number < buffers.size(); ++number) {
        for (const CpuData& cpu : buffers[number]->cpus) {
            const bool wanted =
                selection.cpus.empty() || std::ranges::find(selection.cpus, cpu.cpu) != selection.cpus.end();
            if (!wanted || cpu.size == 0) {
                continue;
            }
            const Place place{static_cast<std::uint16_t>(cpu.cpu), static_cast<std::uint16_t>(number)};
            lanes.push_back({PageSource(file, *buffers[number], cpu), buffers[number], place});
            if (selection.from != 0) {
                lanes.back().source.seek(selection.from, conversion, Swap);
            }
        }
    }
    // A heap of lanes by the time of their next event; of equal times the earlier buffer goes first, and of it the
    // lower CPU, as in trace-cmd.
    std::vector<std::uint32_t> heap;
    const auto before = [&lanes](std::uint32_t a, std::uint32_t b) {
        return lanes[a].record.time < lanes[b].record.time || (lanes[a].record.time == lanes[b].record.time && a < b);
    };
    const auto later = [&before](std::uint32_t a, std::uint32_t b) { return before(b, a); };
    for (std::uint32_t i = 0; i < lanes.size(); ++i) {
        if (advance(lanes[i], file, conversion, selection, sink, stats, pages)) {
            heap.push_back(i);
        }
    }
    std::make_heap(heap.begin(), heap.end(), later);
    while (!heap.empty()) {
        const std::uint32_t index = heap.front();
        Lane<Swap>& lane = lanes[index];
        // This lane goes on until the first event of any other.
        std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
        if (heap.size() > 1) {
            std::uint32_t second = heap[1];
            if (heap.size() > 2 && before(heap[2], second)) {
                second = heap[2];
            }
            const std::uint64_t time = lanes[second].record.time;
            limit = index < second ? time : time - 1;  // time > 0 whenever a lower lane ties with it
        }
        bool more = true;
        do {
            ++stats.events;
            sink.record(Event{lane.record.time, lane.record.data, lane.record.size, lane.place});
            more = advance(lane, file, conversion, selection, sink, stats, pages);
        } while (more && lane.record.time <= limit);
        // Down to its place again.
        std::size_t hole = 0;
        if (!more) {
            heap.front() = heap.back();
            heap.pop_back();
            if (heap.empty()) {
                break;
            }
        }
        const std::uint32_t moving = heap.front();
        for (;;) {
            std::size_t child = 2 * hole + 1;
            if (child >= heap.size()) {
                break;
            }
            if (child + 1 < heap.size() && before(heap[child + 1], heap[child])) {
                ++child;
            }
            if (!before(heap[child], moving)) {
                break;
            }
            heap[hole] = heap[child];
            hole = child;
        }
        heap[hole] = moving;
    }
    sink.flush();
    file.check_length();
    for (Lane<Swap>& lane : lanes) {
        stats.damage.add(lane.source.damage());
    }
    return stats;
}

}  // namespace detail

// Calls sink.record(const Event&) for each event of the selection in time order, sink.missed(place, time, count) where
// events were lost before a page, and sink.flush() before memory that earlier events point at goes away, and at the
// end.
template <typename Sink>
WalkStats walk(const TraceFile& file, const Selection& selection, Sink& sink) {
    return swap_needed(file.big_endian()) ? detail::walk<true>(file, selection, sink)
                                          : detail::walk<false>(file, selection, sink);
}

}  // namespace sampleblk::trace
