// SPDX-License-Identifier: MIT
// Block requests joined of the block:* events of their lives.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <vector>

#include "events/sinks.hpp"
#include "file/field_reader.hpp"
#include "sampleblk/trace/block.hpp"

namespace sampleblk::trace {

// One request, or a bio of a driver without requests. Times are 0 where there was no such event.
struct BlockRequest {
    std::uint32_t dev = 0;
    std::uint64_t sector = 0;
    std::uint32_t sectors = 0;
    char operation = 'N';
    std::int32_t rwbs = -1;  // code in BlockSink::names
    std::int32_t pid = 0;
    std::int32_t issuer = -1, completer = -1;
    std::uint64_t queued = 0, gotten = 0, inserted = 0, issued = 0, completed = 0;
    std::uint32_t merges = 0;
    std::int32_t error = 0;
    std::uint32_t done = 0;  // of its sectors: drivers may complete a request in parts
    std::uint16_t buffer = 0;
    bool swallowed = false;  // merged into another: no row of its own

    // The first step that was seen, before it completed; UINT64_MAX: none.
    [[nodiscard]] std::uint64_t began() const noexcept {
        std::uint64_t first = UINT64_MAX;
        for (const std::uint64_t step : {queued, gotten, inserted, issued}) {
            first = step != 0 ? std::min(first, step) : first;
        }
        return first;
    }
    [[nodiscard]] bool only_completed() const noexcept {
        return completed != 0 && (queued | gotten | inserted | issued) == 0;
    }
};

// "major,minor" of the kernel's own dev_t: 12 bits of major, 20 of minor.
[[nodiscard]] std::string device_name(std::uint32_t dev);

class BlockSink : public PlainSink {
  public:
    explicit BlockSink(const TraceFile& file);

    // On whichever CPU: a request's steps are taken on several.
    void missed(Place place, std::uint64_t time, std::uint64_t /*count*/) {
        std::uint64_t& until = gaps_[place.buffer];
        until = std::max(until, time);
    }
    void record(const Event& event);

    std::vector<BlockRequest> requests;  // by the time of their first event
    std::shared_ptr<StringPool> names = std::make_shared<StringPool>();
    std::uint64_t plugs = 0, unplugs = 0, splits = 0, requeues = 0, merges = 0, unpaired = 0, appends = 0,
                  flush_sequences = 0, across_gaps = 0;

  private:
    enum class Action : std::uint8_t {
        queue,
        get,
        insert,
        issue,
        complete,
        bio_complete,
        merge_back,
        merge_front,
        merge_requests,
        split,
        plug,
        unplug,
        requeue
    };
    struct Role {
        Action action = Action::plug;
        std::uint32_t fixed_size = 0;
        FieldReader pid, dev, sector, sectors, new_sector, error;
        std::uint32_t rwbs_offset = 0;
        std::uint32_t rwbs_size = 0;
    };
    // Ordered by buffer, device, then sector; within a place by operation.
    using Key = std::tuple<std::uint16_t, std::uint32_t, std::uint64_t, char>;

    // Requests in work, several at one place where tasks do the same at once; of those the latest comes last.
    using Open = std::multimap<Key, std::size_t>;

    // What is left of the request.
    static Key key(const BlockRequest& request) {
        return {request.buffer, request.dev, request.sector + request.done, request.operation};
    }
    void add_role(const EventFormat& format, Action action);
    template <typename Score>
    Open::iterator best(Open& open, const Key& place, Score score);
    BlockRequest& add(Open& open, const BlockRequest& now);
    BlockRequest& waiting(const BlockRequest& now, std::uint64_t BlockRequest::* step);
    void step(Action action, const BlockRequest& now, std::uint64_t time, std::int32_t error, std::uint64_t new_sector);
    void issue(const BlockRequest& now, std::uint64_t time);
    void requeue(const BlockRequest& now);
    Open::iterator remainder(const BlockRequest& now);
    void completed_only(const BlockRequest& now, std::uint64_t time, std::int32_t error);
    void complete(Action action, const BlockRequest& now, std::uint64_t time, std::int32_t error);
    void split(const BlockRequest& now, std::uint64_t new_sector);
    void merge(Action action, const BlockRequest& now);

    bool swap_;
    std::vector<std::unique_ptr<Role>> roles_;
    Open waiting_;  // for the driver
    Open issued_;
    std::map<std::uint16_t, std::uint64_t> gaps_;  // by buffer: until when events were lost last
};

}  // namespace sampleblk::trace
