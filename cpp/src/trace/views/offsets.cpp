// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sampleblk/descriptors.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/trace/block.hpp"

namespace sampleblk::trace {

namespace {

enum class Call : std::uint8_t { other, read, write, pread, pwrite, pwritev2, seek, sendfile, copy };

Call call_of(std::string_view name) {
    static const std::map<std::string_view, Call> calls = {
        {"sendfile64", Call::sendfile}, {"sendfile", Call::sendfile}, {"copy_file_range", Call::copy},
        {"splice", Call::copy},         {"read", Call::read},         {"readv", Call::read},
        {"write", Call::write},         {"writev", Call::write},      {"pread64", Call::pread},
        {"preadv", Call::pread},        {"preadv2", Call::pread},     {"pwrite64", Call::pwrite},
        {"pwritev", Call::pwrite},      {"pwritev2", Call::pwritev2}, {"lseek", Call::seek},
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

constexpr std::uint64_t kSetFlags = 4;      // F_SETFL of fcntl (include/uapi/asm-generic/fcntl.h)
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

// What a system-call table tells of descriptors. Each buffer has the calls of its own events.
struct Calls {
    explicit Calls(const Table& calls)
        : rows(calls.rows()),
          time(column<std::uint64_t>(calls, "time")),
          arg0(column<std::uint64_t>(calls, "arg0")),
          arg1(column<std::uint64_t>(calls, "arg1")),
          arg2(column<std::uint64_t>(calls, "arg2")),
          ret(column<std::int64_t>(calls, "ret")),
          pid(column<std::int32_t>(calls, "pid")),
          name(column<std::int32_t>(calls, "syscall", ColumnType::string)),
          buffer(calls.find("buffer") == nullptr ? nullptr
                                                 : column<std::int32_t>(calls, "buffer", ColumnType::string)) {
        const StringPool& names = *calls.find("syscall")->pool();
        for (std::size_t code = 0; code < names.size(); ++code) {
            const std::string_view call = names.at(static_cast<std::int32_t>(code));
            kinds_.emplace_back(call_of(call), descriptor_call(call));
        }
    }

    [[nodiscard]] std::pair<Call, DescriptorCall> kinds(std::size_t row) const {
        return name[row] < 0 ? std::pair(Call::other, DescriptorCall::none)
                             : kinds_[static_cast<std::size_t>(name[row])];
    }
    [[nodiscard]] std::pair<std::int64_t, std::int64_t> task(std::size_t row) const {
        return {buffer == nullptr ? 0 : buffer[row], pid[row]};
    }
    [[nodiscard]] DescriptorArgs args(std::size_t row) const {
        return {kinds(row).second, arg0[row], arg1[row], arg2[row], ret[row]};
    }
    template <typename File>
    [[nodiscard]] Descriptors<File> descriptors() const {
        Descriptors<File> followed;
        for (std::size_t row = 0; row < rows; ++row) {
            followed.expect(row, time[row], task(row), args(row));
        }
        return followed;
    }

    std::size_t rows;
    const std::uint64_t *time, *arg0, *arg1, *arg2;
    const std::int64_t* ret;
    const std::int32_t *pid, *name, *buffer;

  private:
    std::vector<std::pair<Call, DescriptorCall>> kinds_;
};

// Whether calls may be missing among those that there are, by which descriptors became other files', or these moved.
bool lacks_calls(const Table& calls) {
    const auto& metadata = calls.metadata();
    const auto lost = metadata.find("lost_events");
    return (lost != metadata.end() && lost->second != "0") ||
           std::ranges::any_of(std::array{"gaps", "unread", "unread_lines", "omitted_spots"},
                               [&metadata](const char* name) { return metadata.contains(name); });
}

}  // namespace

Table opened_table(const Table& calls) {
    const Calls all(calls);
    const bool lacking = lacks_calls(calls);
    auto descriptors = all.descriptors<std::int64_t>();
    std::array<std::vector<std::int64_t>, 3> out;
    for (std::size_t row = 0; row < all.rows; ++row) {
        if ((row & 0xffff) == 0) {
            check_interrupt();
        }
        const DescriptorArgs call = all.args(row);
        const auto task = all.task(row);
        descriptors.begin(all.time[row], task);
        const std::array<std::uint64_t, 3> numbers = {call.arg0, call.arg1, call.arg2};
        for (std::size_t i = 0; i < out.size(); ++i) {
            const std::int64_t* opened = descriptors.find(task, numbers[i]);
            out[i].push_back(opened == nullptr || lacking ? -1 : *opened);
        }
        if (opens(call.kind) && call.ret >= 0) {
            descriptors.opened(task, call, std::make_shared<std::int64_t>(row));
        } else if (call.kind == DescriptorCall::close || call.ret >= 0) {
            descriptors.follow(row, task, call, [](std::int64_t) {});
        }
    }
    std::vector<Column> columns;
    for (std::size_t i = 0; i < out.size(); ++i) {
        columns.emplace_back("arg" + std::to_string(i), std::move(out[i]));
    }
    return Table(std::move(columns), {});
}

Table offset_table(const Table& calls) {
    const Calls all(calls);
    const bool several = all.buffer != nullptr;
    const bool lacking = lacks_calls(calls);
    const auto* duration = column<std::uint64_t>(calls, "duration");
    const auto* arg3 = column<std::uint64_t>(calls, "arg3");
    const auto* arg5 = column<std::uint64_t>(calls, "arg5");
    auto descriptors = all.descriptors<Position>();
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
        const Call kind = all.kinds(row).first;
        const DescriptorArgs call = all.args(row);
        const auto task = all.task(row);
        descriptors.begin(all.time[row], task);
        const bool closes = call.kind == DescriptorCall::close;
        if ((kind == Call::other && call.kind == DescriptorCall::none) || (call.ret < 0 && !closes)) {
            continue;
        }
        if (opens(call.kind)) {
            const bool appends = opens_with(call.kind, call.arg1, call.arg2, kOpenAppend);
            descriptors.opened(task, call, std::make_shared<Position>(Position{0, true, appends}));
            continue;
        }
        const auto position_of = [&](std::uint64_t number) -> Position& {
            std::shared_ptr<Position>& one = descriptors.of(task, number);
            if (one == nullptr) {
                one = std::make_shared<Position>();
            }
            return *one;
        };
        const auto position = [&]() -> Position& { return position_of(call.arg0); };
        if (call.kind != DescriptorCall::none) {
            if (Descriptors<Position>::duplicates(call)) {
                (void)position();  // what it is the duplicate of
            } else if (call.kind == DescriptorCall::fcntl && call.arg1 == kSetFlags) {
                position().appends = (call.arg2 & kOpenAppend) != 0;
            }
            descriptors.follow(row, task, call, [](const Position&) {});
            continue;
        }
        const auto result = static_cast<std::uint64_t>(call.ret);
        switch (kind) {
            case Call::sendfile:
                if (call.arg2 == 0) {
                    position_of(call.arg1).pass(result, false);
                }
                position().pass(result, true);
                continue;
            case Call::copy:
                if (call.arg1 == 0) {
                    position().pass(result, false);
                }
                if (arg3[row] == 0) {
                    position_of(call.arg2).pass(result, true);
                }
                continue;
            case Call::seek:
                position() = {result, true, position().appends};
                continue;
            default:
                break;
        }
        Position& own = position();
        const bool writes_it = kind == Call::write || kind == Call::pwrite || kind == Call::pwritev2;
        const bool appends = writes_it && (own.appends || (kind == Call::pwritev2 && (arg5[row] & kRwfAppend) != 0));
        Position at{arg3[row], !appends};
        if (kind == Call::read || kind == Call::write || arg3[row] == kOwnOffset) {
            own.known = own.known && !appends && !lacking;
            at = own;
            own.offset += result;
        }
        out_time.push_back(all.time[row]);
        out_duration.push_back(duration[row]);
        out_pid.push_back(all.pid[row]);
        out_buffer.push_back(several ? all.buffer[row] : 0);
        out_fd.push_back(static_cast<std::int32_t>(call.arg0));
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
