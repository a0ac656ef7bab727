// SPDX-License-Identifier: MIT
// The scheduler's switches of a profile, replayed: which thread was on a CPU, which was off it, and since when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "sampleblk/profile/profile.hpp"

namespace sampleblk::profile {

class Switches {
  public:
    struct Off {
        std::int32_t tid = 0;
        std::uint64_t since = 0;
        std::uint64_t woken = 0;  // 0: nobody is seen to wake it
        std::uint64_t until = 0;
        std::uint32_t sample = 0;  // the switch out
        bool preempted = false;
        bool finished = true;     // false: off until the recording's end
        bool across_gap = false;  // records were lost meanwhile: perhaps it ran, and this is two stretches
    };
    struct On {
        std::int32_t tid = 0;
        std::uint64_t since = 0;
        std::uint64_t until = 0;
        std::uint32_t sample =
            0;  // the switch out that ends it; where the recording does, the thread's last of any event
    };

    // None without sched:sched_switch in the recording. Throws FormatError when its format lacks a field needed.
    [[nodiscard]] static std::optional<Switches> find(const Profile& profile);

    // Each stretch as it ends. A thread that died is off no more. Returns how often a switch in was missing from the
    // recording, seen from the thread's next switch out (lost records, and kernels whose idle thread does not trace on
    // every CPU): the thread then counts as running since it was woken, or, with no waking either, as off all along.
    std::size_t replay(const std::function<void(const Off&)>& off, const std::function<void(const On&)>& on) const;

  private:
    class Field {  // a number of a trace point's record
      public:
        Field(const trace::EventFormat& format, std::string_view name);
        [[nodiscard]] bool known() const noexcept { return size_ != 0; }
        [[nodiscard]] std::int64_t of(std::span<const std::byte> raw) const noexcept;

      private:
        std::size_t offset_ = 0;
        std::size_t size_ = 0;
    };

    struct Wake {
        std::size_t event;
        Field pid;
    };

    Switches(const Profile& profile, std::size_t event);

    const Profile& profile_;
    std::size_t event_;
    Field prev_pid_;
    Field prev_state_;
    Field next_pid_;
    std::optional<Wake> wake_;
};

}  // namespace sampleblk::profile
