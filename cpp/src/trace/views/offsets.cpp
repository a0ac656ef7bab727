// SPDX-License-Identifier: MIT
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
    read,
    write,
    pread,
    pwrite,
    pwritev2,
    seek,
    dup,
    fcntl
};

Call call_of(std::string_view name) {
    if (name == "open") {
        return Call::open;
    }
    if (name == "openat") {
        return Call::openat;
    }
    if (name == "openat2") {
        return Call::openat2;
    }
    if (name == "creat") {
        return Call::creat;
    }
    if (name == "close") {
        return Call::close;
    }
    if (name == "read" || name == "readv") {
        return Call::read;
    }
    if (name == "write" || name == "writev") {
        return Call::write;
    }
    if (name == "pread64" || name == "preadv" || name == "preadv2") {
        return Call::pread;
    }
    if (name == "pwrite64" || name == "pwritev") {
        return Call::pwrite;
    }
    if (name == "pwritev2") {
        return Call::pwritev2;
    }
    if (name == "lseek") {
        return Call::seek;
    }
    if (name == "fcntl") {
        return Call::fcntl;
    }
    return name == "dup" || name == "dup2" || name == "dup3" ? Call::dup : Call::other;
}

struct Position {
    std::uint64_t offset = 0;
    bool known = false;
    bool appends = false;  // writes go to the file's end, wherever that is
};

// Linux's generic flags of open(2) and commands of fcntl(2) (include/uapi/asm-generic/fcntl.h, linux/fcntl.h).
constexpr std::uint64_t kAppend = 02000;
constexpr std::uint64_t kDup = 0, kDupCloexec = 1030;
constexpr std::uint64_t kRwfAppend = 0x10;  // of pwritev2 (include/uapi/linux/fs.h)
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
    // By buffer, task and descriptor: each buffer has the calls of its own events. Those of dup() share one.
    std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::shared_ptr<Position>> positions;
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
        if (kind == Call::other || ret[row] < 0) {
            continue;
        }
        const auto fd = static_cast<std::int32_t>(arg0[row]);
        const std::int32_t of = several ? buffer[row] : 0;
        const auto result = static_cast<std::uint64_t>(ret[row]);
        const auto position = [&]() -> const std::shared_ptr<Position>& {
            auto& place = positions[{of, pid[row], fd}];
            if (place == nullptr) {
                place = std::make_shared<Position>();
            }
            return place;
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
                                            : kind == Call::openat2 ? kAppend
                                                                    : 0;
                positions[made] = std::make_shared<Position>(Position{0, true, (flags & kAppend) != 0});
                continue;
            }
            case Call::close:
                positions.erase({of, pid[row], fd});
                continue;
            case Call::seek:
                *position() = {result, true, position()->appends};
                continue;
            case Call::fcntl:
                if (arg1[row] != kDup && arg1[row] != kDupCloexec) {
                    continue;
                }
                [[fallthrough]];
            case Call::dup: {
                const std::shared_ptr<Position> shared = position();
                positions[made] = shared;
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
