// SPDX-License-Identifier: MIT
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/trace/block.hpp"

namespace sampleblk::trace {

namespace {

enum class Call : std::uint8_t {
    other,
    open,
    openat,
    openat2,
    creat,
    close,
    close_range,
    exec,
    read,
    write,
    pread,
    pwrite,
    pwritev2,
    seek,
    dup,
    dup3,
    fcntl,
    sendfile,
    copy
};

Call call_of(std::string_view name) {
    static const std::map<std::string_view, Call> calls = {
        {"open", Call::open},
        {"openat", Call::openat},
        {"openat2", Call::openat2},
        {"creat", Call::creat},
        {"close", Call::close},
        {"close_range", Call::close_range},
        {"execve", Call::exec},
        {"execveat", Call::exec},
        {"sendfile64", Call::sendfile},
        {"sendfile", Call::sendfile},
        {"copy_file_range", Call::copy},
        {"splice", Call::copy},
        {"dup", Call::dup},
        {"dup2", Call::dup},
        {"dup3", Call::dup3},
        {"read", Call::read},
        {"readv", Call::read},
        {"write", Call::write},
        {"writev", Call::write},
        {"pread64", Call::pread},
        {"preadv", Call::pread},
        {"preadv2", Call::pread},
        {"pwrite64", Call::pwrite},
        {"pwritev", Call::pwrite},
        {"pwritev2", Call::pwritev2},
        {"lseek", Call::seek},
        {"fcntl", Call::fcntl},
    };
    const auto found = calls.find(name);
    return found == calls.end() ? Call::other : found->second;
}

struct Position {
    std::uint64_t offset = 0;
    bool known = false;
    bool appends = false;  // writes go to the file's end, wherever that is

    void pass(std::uint64_t bytes, bool writes) {
        known = known && !(writes && appends);
        offset += bytes;
    }
};

struct Descriptor {
    std::shared_ptr<Position> position;
    bool cloexec = false;
};

// Linux's generic flags of open(2) and commands of fcntl(2) (include/uapi/asm-generic/fcntl.h, linux/fcntl.h).
constexpr std::uint64_t kAppend = 02000, kCloexec = 02000000;
constexpr std::uint64_t kDup = 0, kSetFd = 2, kDupCloexec = 1030;
constexpr std::uint64_t kFdCloexec = 1;
constexpr std::uint64_t kRangeCloexec = 4;  // of close_range (include/uapi/linux/close_range.h)
constexpr std::int64_t kNoSuchFile = -9;    // EBADF: what close(2) says where it closed nothing
constexpr std::uint64_t kRwfAppend = 0x10;  // of pwritev2 (include/uapi/linux/fs.h)
constexpr std::uint64_t kMostFd = INT32_MAX;
// As preadv2's and pwritev2's offset: the file's own.
constexpr std::uint64_t kOwnOffset = UINT64_MAX;

// A column of any table that a caller may give us.
template <typename T>
const T* column(const Table& table, std::string_view name, ColumnType type = column_type_of<T>()) {
    const Column* found = table.find(name);
    if (found == nullptr) {
        throw InputError("no column '" + std::string(name) + "'", {}, 0, "a system-call table");
    }
    if (found->type() != type) {
        throw InputError("column '" + std::string(name) + "' of type " + std::string(type_name(found->type())), {}, 0,
                         std::string(type_name(type)) + ", as in a system-call table");
    }
    return found->values<T>();
}

}  // namespace

Table offset_table(const Table& calls) {
    const auto* time = column<std::uint64_t>(calls, "time");
    const auto* duration = column<std::uint64_t>(calls, "duration");
    const auto* pid = column<std::int32_t>(calls, "pid");
    const auto* name = column<std::int32_t>(calls, "syscall", ColumnType::string);
    const bool several = calls.find("buffer") != nullptr;
    const auto* buffer = several ? column<std::int32_t>(calls, "buffer", ColumnType::string) : nullptr;
    const auto* arg0 = column<std::uint64_t>(calls, "arg0");
    const auto* arg1 = column<std::uint64_t>(calls, "arg1");
    const auto* arg2 = column<std::uint64_t>(calls, "arg2");
    const auto* arg3 = column<std::uint64_t>(calls, "arg3");
    const auto* arg5 = column<std::uint64_t>(calls, "arg5");
    const auto* ret = column<std::int64_t>(calls, "ret");
    const StringPool& names = *calls.find("syscall")->pool();
    std::vector<Call> kinds;
    kinds.reserve(names.size());
    for (std::size_t code = 0; code < names.size(); ++code) {
        kinds.push_back(call_of(names.at(static_cast<std::int32_t>(code))));
    }
    // By buffer, task and number: each buffer has the calls of its own events. Those of dup() share a position.
    std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, Descriptor> descriptors;
    std::vector<std::uint64_t> out_time, out_duration, out_offset, out_size;
    std::vector<std::int32_t> out_pid, out_fd, out_operation, out_buffer;
    std::vector<std::uint8_t> out_known;
    std::uint64_t unknown = 0;
    auto operations = std::make_shared<StringPool>();
    const std::int32_t reads = operations->intern("read");
    const std::int32_t writes = operations->intern("write");
    for (std::size_t row = 0; row < calls.rows(); ++row) {
        if ((row & 0xffff) == 0) {
            check_interrupt();
        }
        const Call kind = name[row] < 0 ? Call::other : kinds[static_cast<std::size_t>(name[row])];
        const bool closes = kind == Call::close && ret[row] != kNoSuchFile;
        if (kind == Call::other || (ret[row] < 0 && !closes)) {
            continue;
        }
        const auto fd = static_cast<std::int32_t>(arg0[row]);
        const std::int32_t of = several ? buffer[row] : 0;
        const auto result = static_cast<std::uint64_t>(ret[row]);
        const auto descriptor = [&](std::uint64_t number) -> Descriptor& {
            Descriptor& one = descriptors[{of, pid[row], static_cast<std::int32_t>(number)}];
            if (one.position == nullptr) {
                one.position = std::make_shared<Position>();
            }
            return one;
        };
        const auto position = [&]() -> const std::shared_ptr<Position>& { return descriptor(arg0[row]).position; };
        // Of the task's, those from `first` to `last`.
        const auto each = [&](std::uint64_t first, std::uint64_t last, const auto& done) {
            auto at = descriptors.lower_bound({of, pid[row], static_cast<std::int32_t>(std::min(first, kMostFd))});
            while (at != descriptors.end() && std::get<0>(at->first) == of && std::get<1>(at->first) == pid[row] &&
                   static_cast<std::uint64_t>(std::get<2>(at->first)) <= last) {
                at = done(at->second) ? descriptors.erase(at) : std::next(at);
            }
        };
        const auto made = std::tuple(of, pid[row], static_cast<std::int32_t>(result));
        switch (kind) {
            case Call::open:
            case Call::openat:
            case Call::openat2:
            case Call::creat: {
                // Those of openat2 are in the caller's memory, and may have it.
                const std::uint64_t flags = kind == Call::open      ? arg1[row]
                                            : kind == Call::openat  ? arg2[row]
                                            : kind == Call::openat2 ? kAppend | kCloexec
                                                                    : 0;
                descriptors[made] = {std::make_shared<Position>(Position{0, true, (flags & kAppend) != 0}),
                                     (flags & kCloexec) != 0};
                continue;
            }
            case Call::close:
                descriptors.erase({of, pid[row], fd});
                continue;
            case Call::close_range:
                each(arg0[row], arg1[row], [&](Descriptor& one) {
                    one.cloexec = true;
                    return (arg2[row] & kRangeCloexec) == 0;
                });
                continue;
            case Call::exec:
                each(0, kMostFd, [](const Descriptor& one) { return one.cloexec; });
                continue;
            case Call::sendfile:
                if (arg2[row] == 0) {
                    descriptor(arg1[row]).position->pass(result, false);
                }
                position()->pass(result, true);
                continue;
            case Call::copy:
                if (arg1[row] == 0) {
                    position()->pass(result, false);
                }
                if (arg3[row] == 0) {
                    descriptor(arg2[row]).position->pass(result, true);
                }
                continue;
            case Call::seek:
                *position() = {result, true, position()->appends};
                continue;
            case Call::fcntl:
                if (arg1[row] == kSetFd) {
                    descriptor(arg0[row]).cloexec = (arg2[row] & kFdCloexec) != 0;
                }
                if (arg1[row] != kDup && arg1[row] != kDupCloexec) {
                    continue;
                }
                [[fallthrough]];
            case Call::dup:
            case Call::dup3: {
                const std::shared_ptr<Position> shared = position();
                descriptors[made] = {shared, kind == Call::dup3 ? (arg2[row] & kCloexec) != 0
                                                                : kind == Call::fcntl && arg1[row] == kDupCloexec};
                continue;
            }
            default:
                break;
        }
        Position& own = *position();
        const bool writes_it = kind == Call::write || kind == Call::pwrite || kind == Call::pwritev2;
        const bool appends = writes_it && (own.appends || (kind == Call::pwritev2 && (arg5[row] & kRwfAppend) != 0));
        Position at{arg3[row], !appends};
        if (kind == Call::read || kind == Call::write || arg3[row] == kOwnOffset) {
            own.known = own.known && !appends;
            at = own;
            own.offset += result;
        }
        out_time.push_back(time[row]);
        out_duration.push_back(duration[row]);
        out_pid.push_back(pid[row]);
        out_buffer.push_back(of);
        out_fd.push_back(fd);
        out_operation.push_back(writes_it ? writes : reads);
        out_offset.push_back(at.offset);
        out_size.push_back(result);
        out_known.push_back(at.known ? 1 : 0);
        unknown += at.known ? 0 : 1;
    }
    std::vector<Column> columns;
    columns.emplace_back("time", std::move(out_time), calls.find("time")->unit());
    columns.emplace_back("duration", std::move(out_duration), calls.find("duration")->unit());
    columns.emplace_back("pid", std::move(out_pid));
    columns.emplace_back("fd", std::move(out_fd));
    columns.emplace_back("operation", std::move(out_operation), std::move(operations));
    columns.emplace_back("offset", std::move(out_offset), "bytes");
    columns.emplace_back("size", std::move(out_size), "bytes");
    columns.emplace_back("known", std::move(out_known));
    if (several) {
        columns.emplace_back("buffer", std::move(out_buffer), calls.find("buffer")->pool());
    }
    auto metadata = calls.metadata();
    if (unknown != 0) {
        metadata["unknown_offsets"] = std::to_string(unknown);
    }
    return Table(std::move(columns), std::move(metadata));
}

}  // namespace sampleblk::trace
