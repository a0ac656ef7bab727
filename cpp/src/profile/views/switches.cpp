// SPDX-License-Identifier: MIT
#include "views/switches.hpp"

#include <unordered_map>

#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"

namespace sampleblk::profile {

namespace {

// sched_switch's prev_state (include/trace/events/sched.h): S D T t X Z P I; 0 and the bit above them are R.
constexpr std::int64_t kBlockedStates = 0xff;
constexpr std::int64_t kDeadStates = 0x10 | 0x20;

std::optional<std::size_t> trace_point(const Profile& profile, std::string_view name) {
    const auto& events = profile.file().events();
    for (std::size_t i = 0; i < events.size(); ++i) {
        if (events[i].name == name && events[i].attr.type == PERF_TYPE_TRACEPOINT &&
            profile.file().formats().contains(events[i].attr.config)) {
            return i;
        }
    }
    return std::nullopt;
}

const trace::EventFormat& format_of(const Profile& profile, std::size_t event) {
    return profile.file().formats().at(profile.file().events()[event].attr.config);
}

}  // namespace

Switches::Field::Field(const trace::EventFormat& format, std::string_view name) {
    if (const trace::Field* field = format.find(name); field != nullptr) {
        offset_ = field->offset;
        size_ = field->size;
    }
}

std::int64_t Switches::Field::of(std::span<const std::byte> raw) const noexcept {
    if (offset_ > raw.size() || size_ > raw.size() - offset_) {
        return -1;
    }
    switch (size_) {
        case 4:
            return load<std::int32_t>(raw.data() + offset_);
        case 8:
            return load<std::int64_t>(raw.data() + offset_);
        case 2:
            return load<std::int16_t>(raw.data() + offset_);
        default:
            return -1;
    }
}

std::optional<Switches> Switches::find(const Profile& profile) {
    const auto event = trace_point(profile, "sched:sched_switch");
    return event ? std::optional(Switches(profile, *event)) : std::nullopt;
}

Switches::Switches(const Profile& profile, std::size_t event)
    : profile_(profile),
      event_(event),
      prev_pid_(format_of(profile, event), "prev_pid"),
      prev_state_(format_of(profile, event), "prev_state"),
      next_pid_(format_of(profile, event), "next_pid") {
    if (!prev_pid_.known() || !prev_state_.known() || !next_pid_.known()) {
        throw FormatError(profile.file().path(), 0, "prev_pid, prev_state and next_pid in sched_switch's format");
    }
    auto wake = trace_point(profile, "sched:sched_waking");
    if (!wake) {
        wake = trace_point(profile, "sched:sched_wakeup");
    }
    if (wake) {
        wake_ = Wake{*wake, Field(format_of(profile, *wake), "pid")};
    }
}

std::size_t Switches::replay(const std::function<void(const Off&)>& off,
                             const std::function<void(const On&)>& on) const {
    struct Running {
        std::int32_t tid = 0;
        std::uint64_t since = 0;
    };
    std::unordered_map<std::int32_t, Off> waiting;         // by thread
    std::unordered_map<std::uint32_t, Running> running;    // by CPU
    std::unordered_map<std::int32_t, std::uint32_t> last;  // sample of each thread
    std::size_t missed = 0;
    auto gap = profile_.gaps().begin();
    std::uint64_t lost = 0;  // until when records were lost last, on whichever CPU: a thread runs on several
    const auto end = [&](Off& was, std::uint64_t until) {
        was.until = until > was.since ? until : was.since;
        was.across_gap = lost > was.since;
        off(was);
    };
    for (std::uint32_t i = 0; i < profile_.size(); ++i) {
        if (i % 1048576 == 0) {
            check_interrupt();
        }
        const std::size_t event = profile_.events()[i];
        const std::uint64_t now = profile_.times()[i];
        for (; gap != profile_.gaps().end() && *gap <= now; ++gap) {
            lost = *gap;
        }
        last[profile_.tids()[i]] = i;
        if (event == event_) {
            const auto raw = profile_.raw(i);
            const auto next = static_cast<std::int32_t>(next_pid_.of(raw));
            const auto prev = static_cast<std::int32_t>(prev_pid_.of(raw));
            const std::int64_t state = prev_state_.of(raw);
            Running& here = running[profile_.cpus()[i]];
            if (prev > 0) {
                if (const auto found = waiting.find(prev); found != waiting.end()) {
                    ++missed;
                    const std::uint64_t until = found->second.woken != 0 ? found->second.woken : now;
                    end(found->second, until);
                    here = {prev, until};
                    waiting.erase(found);
                }
                if (here.tid == prev && now > here.since) {
                    on({prev, here.since, now, i});
                }
                if ((state & kDeadStates) == 0) {
                    waiting[prev] = {
                        .tid = prev, .since = now, .sample = i, .preempted = (state & kBlockedStates) == 0};
                }
            }
            if (const auto found = waiting.find(next); next > 0 && found != waiting.end()) {
                end(found->second, now);
                waiting.erase(found);
            }
            here = {next, now};
        } else if (wake_ && event == wake_->event) {
            const auto found = waiting.find(static_cast<std::int32_t>(wake_->pid.of(profile_.raw(i))));
            if (found != waiting.end() && found->second.woken == 0) {
                found->second.woken = now;
            }
        }
    }
    for (auto& [tid, was] : waiting) {
        was.finished = false;
        end(was, profile_.times().back());
    }
    for (const auto& [cpu, here] : running) {
        // Of a thread without any sample nobody can say what it is of; one seen elsewhere since is here no more.
        const auto found = last.find(here.tid);
        if (here.tid > 0 && found != last.end() && profile_.times().back() > here.since &&
            (profile_.cpus()[found->second] == cpu || profile_.times()[found->second] <= here.since)) {
            on({here.tid, here.since, profile_.times().back(), found->second});
        }
    }
    profile_.file().check_length();
    return missed;
}

}  // namespace sampleblk::profile
