// SPDX-License-Identifier: MIT
// System calls joined of their enter and exit events, of syscalls:* and raw_syscalls:*.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "events/sinks.hpp"
#include "file/field_reader.hpp"
#include "sampleblk/trace/syscalls.hpp"

namespace sampleblk::trace {

constexpr std::uint32_t kSyscallArgs = 6;

// One call on its way to a table.
struct SyscallRow {
    std::uint64_t time = 0;
    std::uint64_t duration = 0;
    std::int64_t ret = 0;
    std::array<std::uint64_t, kSyscallArgs> args{};
    std::int32_t pid = 0;
    std::int32_t name = 0;  // code in SyscallSink::names()
    Place place;            // of the enter
    bool raw = false;       // of raw_syscalls
};

// What an event id means to SyscallSink.
struct SyscallRole {
    enum class Kind : std::uint8_t { enter, exit, fork } kind = Kind::fork;
    bool raw = false;
    std::int32_t name = 0;
    std::uint32_t count = 0;  // arguments
    std::uint32_t fixed_size = 0;
    FieldReader pid;
    std::array<FieldReader, kSyscallArgs> args;
    FieldReader id;     // of raw events; the child of a fork
    FieldReader value;  // what the call returned
};

// The roles of a file's events, and the names of their calls.
class SyscallRoles {
  public:
    explicit SyscallRoles(const TraceFile& file);

    // nullptr for what is not an event of a call.
    [[nodiscard]] const SyscallRole* of(std::uint16_t id) const noexcept { return roles_[id].get(); }
    [[nodiscard]] std::int32_t raw_name(std::uint64_t number);
    [[nodiscard]] const std::shared_ptr<StringPool>& names() const noexcept { return names_; }

  private:
    void add(const EventFormat& format);

    bool swap_;
    std::string machine_;
    std::vector<std::unique_ptr<SyscallRole>> roles_;
    std::shared_ptr<StringPool> names_ = std::make_shared<StringPool>();
    std::unordered_map<std::uint64_t, std::int32_t> raw_names_;
};

// Calls `take` with each SyscallRow, by the time of its exit.
template <typename Take>
class SyscallSink : public PlainSink {
  public:
    SyscallSink(const TraceFile& file, const SyscallRequest& request, Take take)
        : PlainSink(file),
          swap_(swap_needed(file.big_endian())),
          pids_(request.pids.begin(), request.pids.end()),
          children_(request.children),
          all_(request.pids.empty()),
          roles_(file),
          take_(std::move(take)),
          seen_(file.select(request.selection.buffer).size()) {}

    void missed(Place place, std::uint64_t time, std::uint64_t /*count*/) { gaps_.add(place, time); }
    void record(const Event& event) {
        if (!whole(event, kTypeSize)) [[unlikely]] {
            return;
        }
        const SyscallRole* role = roles_.of(load<std::uint16_t>(event.data, swap_));
        if (role == nullptr || !whole(event, role->fixed_size)) {
            return;
        }
        const auto pid = static_cast<std::int32_t>(role->pid.get(event.data));
        if (role->kind == SyscallRole::Kind::fork) {
            if (children_ && pids_.contains(pid)) {
                pids_.insert(static_cast<std::int32_t>(role->id.get(event.data)));
            }
            return;
        }
        seen_[event.place.buffer].at(role->raw ? 1 : 0) = true;
        if (!all_ && !pids_.contains(pid)) {
            return;
        }
        const std::uint64_t id = role->raw ? role->id.get(event.data) : 0;
        // rt_sigreturn() ends without a number, where the signal came. To the events of each call it has no end.
        const bool unnumbered =
            role->raw && role->kind == SyscallRole::Kind::exit && static_cast<std::int64_t>(id) == -1;
        const std::int32_t name = !role->raw ? role->name : unnumbered ? -1 : roles_.raw_name(id);
        // Each buffer has the calls of its own events, and so has each of the two systems.
        const std::uint64_t task = std::uint64_t{event.place.buffer} << 33U |
                                   (role->raw ? std::uint64_t{1} << 32U : 0) | static_cast<std::uint32_t>(pid);
        if (role->kind == SyscallRole::Kind::enter) {
            Open& open = open_[task];
            Counts& counts = counts_[event.place.buffer << 1U | (role->raw ? 1U : 0U)];
            counts.unfinished += open.live ? 1 : 0;
            open.live = true;
            open.call.time = event.time;
            open.call.place = event.place;
            open.call.pid = pid;
            open.call.name = name;
            open.call.raw = role->raw;
            open.call.args.fill(0);
            for (std::uint32_t i = 0; i < role->count; ++i) {
                open.call.args[i] = role->args[i].get(event.data, role->raw ? i : 0);
            }
            return;
        }
        const auto found = open_.find(task);
        if (found == open_.end() || !found->second.live || (found->second.call.name != name && !unnumbered)) {
            ++counts_[event.place.buffer << 1U | (role->raw ? 1U : 0U)].unpaired;
            return;
        }
        found->second.live = false;
        SyscallRow& call = found->second.call;
        // Of a damaged page, whose time nobody can tell.
        if (event.time < call.time) [[unlikely]] {
            Counts& counts = counts_[event.place.buffer << 1U | (role->raw ? 1U : 0U)];
            ++counts.unpaired;
            ++counts.unfinished;
            return;
        }
        if (gaps_.since(call.time, call.place) || gaps_.since(call.time, event.place)) [[unlikely]] {
            ++counts_[event.place.buffer << 1U | (role->raw ? 1U : 0U)].across_gaps;
        }
        call.duration = event.time - call.time;
        call.ret = static_cast<std::int64_t>(role->value.get(event.data));
        take_(call);
    }

    // Whether a row counts: where a buffer has both systems' events, the calls must not count twice.
    [[nodiscard]] bool counts(std::uint16_t buffer, bool raw) const { return !raw || !seen_.at(buffer)[0]; }
    // Whether some rows do not.
    [[nodiscard]] bool mixed() const {
        for (const auto& seen : seen_) {
            if (seen[0] && seen[1]) {
                return true;
            }
        }
        return false;
    }
    [[nodiscard]] bool any() const {
        for (const auto& seen : seen_) {
            if (seen[0] || seen[1]) {
                return true;
            }
        }
        return false;
    }
    [[nodiscard]] const std::shared_ptr<StringPool>& names() const noexcept { return roles_.names(); }
    // Adds the counts of calls that have no row.
    void describe(std::map<std::string, std::string>& metadata) const {
        std::uint64_t unpaired = 0;
        std::uint64_t unfinished = 0;
        std::uint64_t across_gaps = 0;
        for (const auto& [key, value] : counts_) {
            if (counts(static_cast<std::uint16_t>(key >> 1U), (key & 1U) != 0)) {
                unpaired += value.unpaired;
                unfinished += value.unfinished;
                across_gaps += value.across_gaps;
            }
        }
        for (const auto& [key, open] : open_) {
            unfinished += open.live && counts(open.call.place.buffer, open.call.raw) ? 1 : 0;
        }
        if (unpaired != 0) {
            metadata["unpaired"] = std::to_string(unpaired);
        }
        if (across_gaps != 0) {
            metadata["across_gaps"] = std::to_string(across_gaps);
        }
        if (unfinished != 0) {
            metadata["unfinished"] = std::to_string(unfinished);
        }
    }

  private:
    struct Open {
        SyscallRow call;
        bool live = false;
    };
    struct Counts {
        std::uint64_t unpaired = 0;
        std::uint64_t unfinished = 0;
        std::uint64_t across_gaps = 0;
    };

    bool swap_;
    std::unordered_set<std::int32_t> pids_;
    bool children_;
    bool all_;
    SyscallRoles roles_;
    Take take_;
    std::vector<std::array<bool, 2>> seen_;  // of each buffer: events of syscalls, of raw_syscalls
    std::unordered_map<std::uint64_t, Open> open_;
    std::map<std::uint32_t, Counts> counts_;  // by buffer and system
    Gaps gaps_;
};

}  // namespace sampleblk::trace
