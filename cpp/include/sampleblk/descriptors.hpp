// SPDX-License-Identifier: MIT
// The open files behind descriptors, followed through recorded system calls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

namespace sampleblk {

enum class DescriptorCall : std::uint8_t {
    none,
    open,
    openat,
    openat2,
    creat,
    close,
    close_range,
    exec,
    dup,
    dup3,
    fcntl,
    fork,
    clone,
    clone3,
    unshare
};

// What a call does with descriptors, by its name.
[[nodiscard]] DescriptorCall descriptor_call(std::string_view name);

// Whether it opens a file by its name.
[[nodiscard]] constexpr bool opens(DescriptorCall kind) {
    return kind == DescriptorCall::open || kind == DescriptorCall::openat || kind == DescriptorCall::openat2 ||
           kind == DescriptorCall::creat;
}

// Of a call that opens a file: whether its flags have the bits. Those of openat2 are in the caller's memory, and may.
[[nodiscard]] bool opens_with(DescriptorCall kind, std::uint64_t arg1, std::uint64_t arg2, std::uint64_t bits);

// Linux's generic flags of open(2), see include/uapi/asm-generic/fcntl.h.
inline constexpr std::uint64_t kOpenAppend = 02000;
inline constexpr std::uint64_t kOpenCloexec = 02000000;

struct DescriptorArgs {
    DescriptorCall kind = DescriptorCall::none;
    std::uint64_t arg0 = 0, arg1 = 0, arg2 = 0;
    std::int64_t ret = 0;
};

// `File` is what is known of an open file; descriptors that dup(2) and fork(2) made share it. Tasks that were there
// before the first call are taken for processes of their own.
template <typename File>
class Descriptors {
  public:
    using Task = std::pair<std::int64_t, std::int64_t>;  // whose recording, and the task's id

    // Whether its result is a descriptor of the file that its first argument is of.
    static bool duplicates(const DescriptorArgs& call) {
        return call.kind == DescriptorCall::dup || call.kind == DescriptorCall::dup3 ||
               (call.kind == DescriptorCall::fcntl && (call.arg1 == kDup || call.arg1 == kDupCloexec));
    }

    // Before the first follow(): of all calls, in their order, those that make tasks or execute a program; others
    // change nothing. A child may run before the call that made it ends, and of vfork(2) always does.
    void expect(std::size_t row, std::uint64_t time, const Task& task, const DescriptorArgs& call) {
        if (call.kind == DescriptorCall::exec) {
            execute_.insert(task);
        } else if (is_fork(call)) {
            coming_.emplace(Task{task.first, call.ret}, Fork{row, time, task, call});
        }
    }

    // A call of the task begins. To be called for each.
    void begin(std::uint64_t time, const Task& task) {
        const auto made = coming_.find(task);
        if (made != coming_.end() && made->second.time <= time) {
            inherit(made);
        }
    }

    // The open file behind a number; null where none is known.
    std::shared_ptr<File>& of(const Task& task, std::uint64_t number) { return table(task)[to_number(number)].file; }

    // The same, of whatever number: none is taken for a descriptor that was not one before.
    [[nodiscard]] const File* find(const Task& task, std::uint64_t number) const {
        const auto own = tables_.find(task);
        if (own == tables_.end()) {
            return nullptr;
        }
        const auto found = own->second->find(to_number(number));
        return found == own->second->end() ? nullptr : found->second.file.get();
    }

    void opened(const Task& task, const DescriptorArgs& call, std::shared_ptr<File> file) {
        table(task)[to_number(static_cast<std::uint64_t>(call.ret))] = {
            std::move(file), opens_with(call.kind, call.arg1, call.arg2, kOpenCloexec)};
    }

    // What such a call changes, but for one that opens; it calls `gone` for each file that a number was of.
    template <typename Gone>
    void follow(std::size_t row, const Task& task, const DescriptorArgs& call, Gone gone) {
        switch (call.kind) {
            case DescriptorCall::close:
                if (call.ret != kNoSuchFile) {
                    each(task, call.arg0, call.arg0, gone, [](Descriptor&) { return true; });
                }
                return;
            case DescriptorCall::close_range:
                if ((call.arg2 & kRangeUnshare) != 0) {
                    unshare(task);
                }
                each(task, call.arg0, call.arg1, gone, [&](Descriptor& one) {
                    one.cloexec = true;
                    return (call.arg2 & kRangeCloexec) == 0;
                });
                return;
            case DescriptorCall::exec:
                unshare(task);
                each(task, 0, kMostFd, gone, [](const Descriptor& one) { return one.cloexec; });
                return;
            case DescriptorCall::unshare:
                if ((call.arg0 & kCloneFiles) != 0) {
                    unshare(task);
                }
                return;
            case DescriptorCall::fcntl:
                if (call.arg1 == kSetFd) {
                    table(task)[to_number(call.arg0)].cloexec = (call.arg2 & kFdCloexec) != 0;
                }
                break;
            default:
                break;
        }
        if (duplicates(call)) {
            const bool cloexec = call.kind == DescriptorCall::fcntl
                                     ? call.arg1 == kDupCloexec
                                     : call.kind == DescriptorCall::dup3 && (call.arg2 & kOpenCloexec) != 0;
            const Descriptor made{of(task, call.arg0), cloexec};
            table(task)[to_number(static_cast<std::uint64_t>(call.ret))] = made;
        }
        if (is_fork(call)) {
            const auto [first, last] = coming_.equal_range(Task{task.first, call.ret});
            const auto made = std::find_if(first, last, [&](const auto& one) { return one.second.row == row; });
            if (made != last) {
                inherit(made);
            }
        }
    }

  private:
    struct Descriptor {
        std::shared_ptr<File> file;
        bool cloexec = false;
    };
    using Table = std::map<std::int32_t, Descriptor>;
    struct Fork {
        std::size_t row;
        std::uint64_t time;
        Task parent;
        DescriptorArgs call;
    };
    using Coming = std::multimap<Task, Fork>;

    static constexpr std::int64_t kNoSuchFile = -9;  // EBADF: what close(2) says where it closed nothing
    static constexpr std::uint64_t kMostFd = INT32_MAX;
    // Commands of fcntl(2) (include/uapi/asm-generic/fcntl.h, linux/fcntl.h).
    static constexpr std::uint64_t kDup = 0, kSetFd = 2, kDupCloexec = 1030, kFdCloexec = 1;
    static constexpr std::uint64_t kRangeUnshare = 2, kRangeCloexec = 4;  // include/uapi/linux/close_range.h
    static constexpr std::uint64_t kCloneFiles = 0x400;                   // include/uapi/linux/sched.h

    static std::int32_t to_number(std::uint64_t number) { return static_cast<std::int32_t>(number); }

    static bool is_fork(const DescriptorArgs& call) {
        return call.ret > 0 && (call.kind == DescriptorCall::fork || call.kind == DescriptorCall::clone ||
                                call.kind == DescriptorCall::clone3);
    }

    // clone3's flags are in the caller's memory: it makes threads, and processes that execute a program
    // (posix_spawn(3)).
    bool shares(const Task& child, const DescriptorArgs& call) const {
        return call.kind == DescriptorCall::clone    ? (call.arg0 & kCloneFiles) != 0
               : call.kind == DescriptorCall::clone3 ? !execute_.contains(child)
                                                     : false;
    }

    std::shared_ptr<Table>& shared(const Task& task) {
        std::shared_ptr<Table>& found = tables_[task];
        if (found == nullptr) {
            found = std::make_shared<Table>();
        }
        return found;
    }

    Table& table(const Task& task) { return *shared(task); }

    void unshare(const Task& task) { shared(task) = std::make_shared<Table>(table(task)); }

    void inherit(typename Coming::iterator made) {
        const auto [child, fork] = *made;
        coming_.erase(made);
        begin(fork.time, fork.parent);
        const std::shared_ptr<Table> parent = shared(fork.parent);
        // An id that was another's before is one again, or that of another namespace: of its files nothing is known.
        tables_[child] = tables_.contains(child)    ? std::make_shared<Table>()
                         : shares(child, fork.call) ? parent
                                                    : std::make_shared<Table>(*parent);
    }

    template <typename Gone, typename Leaves>
    void each(const Task& task, std::uint64_t first, std::uint64_t last, Gone gone, Leaves leaves) {
        Table& all = table(task);
        auto at = all.lower_bound(to_number(std::min(first, kMostFd)));
        while (at != all.end() && static_cast<std::uint64_t>(at->first) <= last) {
            if (!leaves(at->second)) {
                ++at;
                continue;
            }
            if (at->second.file != nullptr) {
                gone(*at->second.file);
            }
            at = all.erase(at);
        }
    }

    std::map<Task, std::shared_ptr<Table>> tables_;
    Coming coming_;
    std::set<Task> execute_;
};

}  // namespace sampleblk
