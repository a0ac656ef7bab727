// SPDX-License-Identifier: MIT
// Replay logs made of tables: of block requests, and of system calls.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>

#include "pattern/replay.hpp"
#include "sampleblk/descriptors.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/workload/replay_log.hpp"

namespace sampleblk::workload {

namespace {

// Beyond this no offset or length is one of a file.
constexpr std::int64_t most_bytes = std::int64_t{1} << 62;

std::int64_t to_whole(double value) {
    constexpr double most = 9.2e18;
    return static_cast<std::int64_t>(std::clamp(value, -most, most));
}

enum class Holds { numbers, strings, either };

// A column's numbers whatever their type, and its strings.
class Reader {
  public:
    Reader(const Table& table, std::string_view name, bool needed, Holds holds = Holds::numbers)
        : column_(table.find(name)) {
        if (column_ == nullptr && needed) {
            std::string have;
            for (const Column& column : table.columns()) {
                have += (have.empty() ? "" : ", ") + column.name();
            }
            throw InputError("the table has no column '" + std::string(name) + "'", "replay", 0,
                             "that column; there are " + have);
        }
        const bool strings = column_ != nullptr && column_->type() == ColumnType::string;
        if (column_ != nullptr && holds != Holds::either && strings != (holds == Holds::strings) && table.rows() > 0) {
            throw InputError(
                std::string("column '") + std::string(name) + "' holds " + (strings ? "strings" : "numbers"), "replay",
                0, strings ? "numbers" : "strings");
        }
    }

    [[nodiscard]] explicit operator bool() const { return column_ != nullptr; }

    [[nodiscard]] bool is_missing(std::size_t row) const {
        return column_ == nullptr || (column_->type() == ColumnType::f64 && std::isnan(column_->values<double>()[row]));
    }

    // Of what a call may have none of.
    [[nodiscard]] std::int64_t number_or_zero(std::size_t row) const { return is_missing(row) ? 0 : number(row); }

    [[nodiscard]] std::int64_t number(std::size_t row) const {
        switch (column_->type()) {
            case ColumnType::i8:
                return column_->values<std::int8_t>()[row];
            case ColumnType::i16:
                return column_->values<std::int16_t>()[row];
            case ColumnType::i32:
            case ColumnType::string:
                return column_->values<std::int32_t>()[row];
            case ColumnType::i64:
                return column_->values<std::int64_t>()[row];
            case ColumnType::u8:
                return column_->values<std::uint8_t>()[row];
            case ColumnType::u16:
                return column_->values<std::uint16_t>()[row];
            case ColumnType::u32:
                return column_->values<std::uint32_t>()[row];
            case ColumnType::u64:
                return static_cast<std::int64_t>(column_->values<std::uint64_t>()[row]);
            case ColumnType::f64: {
                const double value = column_->values<double>()[row];
                if (std::trunc(value) != value) {  // nor is NaN itself
                    refuse(row, value, "a whole number");
                }
                return to_whole(value);
            }
        }
        return 0;
    }

    [[nodiscard]] std::string text(std::size_t row) const {
        if (column_->type() != ColumnType::string) {
            return std::to_string(number(row));
        }
        const std::int32_t code = column_->values<std::int32_t>()[row];
        return code < 0 ? std::string() : column_->pool()->at(code);
    }

    // Nanoseconds of a time column, by its unit.
    [[nodiscard]] std::uint64_t time_ns(std::size_t row) const {
        const std::string& unit = column_->unit();
        const double factor = unit == "s" ? 1e9 : unit == "ms" ? 1e6 : unit == "us" ? 1e3 : 1;
        if (column_->type() == ColumnType::f64) {
            const double value = column_->values<double>()[row];
            if (!std::isfinite(value) || value < 0) {
                refuse(row, value, "a time, from some beginning on");
            }
            return static_cast<std::uint64_t>(to_whole(value * factor));
        }
        const std::int64_t value = number(row);
        if (value < 0) {
            refuse(row, value, "a time, from some beginning on");
        }
        return static_cast<std::uint64_t>(factor == 1 ? value : to_whole(static_cast<double>(value) * factor));
    }

  private:
    [[noreturn]] void refuse(std::size_t row, auto value, const char* expected) const {
        throw InputError(fmt::format("row {}: {} is {}", row, column_->name(), value), "replay", 0, expected);
    }

    const Column* column_;
};

void start_at_zero(ReplayLog& log) {
    std::ranges::stable_sort(log.records,
                             [](const ReplayRecord& a, const ReplayRecord& b) { return a.time_ns < b.time_ns; });
    const std::uint64_t first = log.records.empty() ? 0 : log.records.front().time_ns;
    for (ReplayRecord& record : log.records) {
        record.time_ns -= first;
    }
}

// What is known of a process's descriptor.
struct OpenFile {
    std::uint32_t file = 0;
    std::uint64_t position = 0;
};

class SyscallFollower {
  public:
    SyscallFollower(const Table& table, ReplayLog& log)
        : log_(log),
          paths_(log.paths),
          time_(table, "time", true),
          pid_(table, "pid", false),
          call_(table, "syscall", true, Holds::strings),
          fd_(table, "fd", false),
          count_(table, "count", false),
          result_(table, "ret", false),
          offset_(table, "offset", false),
          path_(table, "path", false, Holds::strings),
          advice_(table, "advice", false),
          arg1_(table, "arg1", false),
          arg2_(table, "arg2", false) {}

    // Before all follow(): each row, in order.
    void expect(std::size_t row) { files_.expect(row, time_.time_ns(row), task(row), args(row, name(row))); }

    void follow(std::size_t row) {
        const std::string call = name(row);
        const DescriptorArgs about = args(row, call);
        const std::int64_t result = about.ret;
        ReplayRecord record{.time_ns = time_.time_ns(row)};
        files_.begin(record.time_ns, task(row));
        if (result_ && result_.is_missing(row)) {
            log_.skip("calls whose end was not seen");
            return;
        }
        if (opens(about.kind)) {
            opened(row, about);
            return;
        }
        if (about.kind != DescriptorCall::none && about.kind != DescriptorCall::close) {
            if (result < 0) {
                log_.skip("calls that failed");
                return;
            }
            if (Descriptors<OpenFile>::duplicates(about)) {
                (void)file_of(row);  // what it is the duplicate of
            } else if (about.kind != DescriptorCall::close_range) {
                log_.skip("calls that are not file I/O");
            }
            files_.follow(row, task(row), about, [&](const OpenFile& file) {
                log_.records.push_back(
                    {.time_ns = record.time_ns, .file = file.file, .operation = ReplayOperation::close});
            });
            return;
        }
        static const std::set<std::string> files_only = {
            "read",    "write",    "pread64", "pwrite64",  "readv",     "writev",    "preadv", "pwritev",
            "preadv2", "pwritev2", "fsync",   "fdatasync", "fadvise64", "fallocate", "lseek",  "close"};
        if (!files_only.contains(call)) {
            log_.skip("calls that are not file I/O");
            return;
        }
        if (result < 0) {
            log_.skip("calls that failed");
            return;
        }
        const std::shared_ptr<OpenFile> shared = file_of(row);
        OpenFile& file = *shared;
        record.file = file.file;
        if (call == "lseek") {
            file.position = static_cast<std::uint64_t>(result);
            return;
        }
        if (call == "close") {
            record.operation = ReplayOperation::close;
            files_.follow(row, task(row), about, [](const OpenFile&) {});
        } else if (call == "fsync" || call == "fdatasync") {
            record.operation = call == "fsync" ? ReplayOperation::fsync : ReplayOperation::fdatasync;
        } else if (call == "fadvise64" || call == "fallocate") {
            if (call == "fallocate") {
                log_.skip("fallocate");
                return;
            }
            record.operation = ReplayOperation::fadvise;
            record.offset_bytes = offset_ ? static_cast<std::uint64_t>(offset_.number(row)) : 0;
            record.length_bytes = count_ ? static_cast<std::uint64_t>(count_.number(row)) : 0;
            record.advice = static_cast<std::int16_t>(advice_ ? advice_.number(row) : 4);
        } else if (!transfer(row, call, result, file, record)) {
            log_.skip("transfers of no length");
            return;
        } else if (record.offset_bytes > static_cast<std::uint64_t>(most_bytes) ||
                   record.length_bytes > static_cast<std::uint64_t>(most_bytes)) {
            log_.skip("transfers beyond the end of any file");
            return;
        }
        log_.records.push_back(record);
    }

  private:
    // The call's name, without what the kernel has before it.
    [[nodiscard]] std::string name(std::size_t row) const {
        std::string call = call_.text(row);
        for (const std::string_view prefix : {"sys_", "__x64_sys_", "__arm64_sys_"}) {
            if (call.starts_with(prefix)) {
                call.erase(0, prefix.size());
            }
        }
        return call;
    }

    [[nodiscard]] std::pair<std::int64_t, std::int64_t> task(std::size_t row) const {
        return {0, pid_ ? pid_.number(row) : 0};
    }

    [[nodiscard]] DescriptorArgs args(std::size_t row, const std::string& call) const {
        const auto number = [row](const Reader& column) {
            return static_cast<std::uint64_t>(column.number_or_zero(row));
        };
        return {descriptor_call(call), number(fd_), number(arg1_), number(arg2_), result_.number_or_zero(row)};
    }

    void opened(std::size_t row, const DescriptorArgs& about) {
        if (about.ret < 0) {
            log_.skip("calls that failed");
            return;
        }
        const std::string path = path_ ? path_.text(row) : std::string();
        if (path.empty()) {
            log_.skip("opens whose path is not known");
            files_.opened(task(row), about, nullptr);  // another file than what had that number
            return;
        }
        const std::uint32_t file = paths_.of(path);
        files_.opened(task(row), about, std::make_shared<OpenFile>(OpenFile{.file = file, .position = 0}));
        log_.records.push_back({.time_ns = time_.time_ns(row), .file = file, .operation = ReplayOperation::open});
    }

    // A descriptor that was open before the recording began has a name of its own.
    const std::shared_ptr<OpenFile>& file_of(std::size_t row) {
        const std::int64_t fd = fd_ ? fd_.number(row) : 0;
        std::shared_ptr<OpenFile>& known = files_.of(task(row), static_cast<std::uint64_t>(fd));
        if (known == nullptr) {
            std::string path = path_ ? path_.text(row) : std::string();
            if (path.empty()) {
                path = "fd" + std::to_string(fd);
            }
            known = std::make_shared<OpenFile>(OpenFile{.file = paths_.of(path), .position = 0});
        }
        return known;
    }

    bool transfer(std::size_t row, const std::string& call, std::int64_t result, OpenFile& file,
                  ReplayRecord& record) const {
        const bool writes = call.find("write") != std::string::npos;
        // preadv2's and pwritev2's offset may be -1: the file's own.
        const bool positioned =
            call[0] == 'p' && !((call == "preadv2" || call == "pwritev2") && offset_ && offset_.number(row) == -1);
        record.operation = writes ? ReplayOperation::write : ReplayOperation::read;
        record.length_bytes =
            result_ ? static_cast<std::uint64_t>(result) : static_cast<std::uint64_t>(count_ ? count_.number(row) : 0);
        if (record.length_bytes == 0) {
            return false;
        }
        if (positioned && offset_) {
            record.offset_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(offset_.number(row), 0));
        } else {
            record.offset_bytes = file.position;
            file.position += record.length_bytes;
        }
        return true;
    }

    ReplayLog& log_;
    ReplayPaths paths_;
    Reader time_;
    Reader pid_;
    Reader call_;
    Reader fd_;
    Reader count_;
    Reader result_;
    Reader offset_;
    Reader path_;
    Reader advice_;
    Reader arg1_;
    Reader arg2_;
    Descriptors<OpenFile> files_;
};

}  // namespace

ReplayLog replay_of_requests(const Table& table) {
    const Reader time(table, "time", true);
    const Reader kind(table, "rwbs", true, Holds::strings);
    const Reader sector(table, "sector", true);
    const Reader bytes(table, "bytes", false);
    const Reader sectors(table, "nr_sector", !bytes);
    const Reader device(table, "dev", false, Holds::either);
    ReplayLog log;
    ReplayPaths paths(log.paths);
    for (std::size_t row = 0; row < table.rows(); ++row) {
        const std::string flags = kind.text(row);
        ReplayRecord record{.time_ns = time.time_ns(row)};
        const std::int64_t start = sector.number(row);
        const std::int64_t count = bytes ? bytes.number(row) : sectors.number(row);
        if (start > most_bytes / 512 || count > most_bytes / 512) {
            log.skip("requests beyond the end of any device");
            continue;
        }
        if (flags.starts_with('Z')) {
            log.skip("operations of zones");
            continue;
        }
        const std::int64_t length = bytes ? count : count * 512;
        // F before the operation is a flush first; alone it is nothing else.
        const std::size_t operation = flags.find_first_of("RWD");
        if (operation == std::string::npos) {
            if (flags.find('F') == std::string::npos) {
                log.skip("requests that move no data");
                continue;
            }
            record.operation = ReplayOperation::fsync;
        } else if (start < 0 || length <= 0) {
            // A flush with no data is written FW or FF.
            if (flags.starts_with('F')) {
                record.operation = ReplayOperation::fsync;
            } else {
                log.skip("requests of no length");
                continue;
            }
        } else {
            record.operation = flags[operation] == 'R'   ? ReplayOperation::read
                               : flags[operation] == 'W' ? ReplayOperation::write
                                                         : ReplayOperation::trim;
            record.offset_bytes = static_cast<std::uint64_t>(start) * 512;
            record.length_bytes = static_cast<std::uint64_t>(length);
        }
        record.file = paths.of(device ? "dev" + device.text(row) : "device");
        log.records.push_back(record);
    }
    start_at_zero(log);
    return log;
}

ReplayLog replay_of_syscalls(const Table& table) {
    ReplayLog log;
    SyscallFollower follower(table, log);
    for (std::size_t row = 0; row < table.rows(); ++row) {
        follower.expect(row);
    }
    for (std::size_t row = 0; row < table.rows(); ++row) {
        follower.follow(row);
    }
    start_at_zero(log);
    return log;
}

}  // namespace sampleblk::workload
