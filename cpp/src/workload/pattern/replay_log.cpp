// SPDX-License-Identifier: MIT
#include "sampleblk/workload/replay_log.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "pattern/replay.hpp"
#include "sampleblk/blktrace.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/mapping.hpp"
#include "sampleblk/workload/values.hpp"

namespace sampleblk::workload {

namespace {

constexpr std::string_view iolog_2 = "fio version 2 iolog";
constexpr std::string_view iolog_3 = "fio version 3 iolog";

constexpr std::uint64_t sector_bytes = 512;

std::vector<std::string_view> words_of(std::string_view line) {
    std::vector<std::string_view> words;
    while (!(line = trim(line)).empty()) {
        const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
        words.push_back(line.substr(0, end));
        line.remove_prefix(end);
    }
    return words;
}

bool parse_u64(std::string_view text, std::uint64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
}

bool operation_of(std::string_view word, ReplayOperation& operation) {
    constexpr std::pair<std::string_view, ReplayOperation> known[] = {
        {"read", ReplayOperation::read},   {"write", ReplayOperation::write},        {"trim", ReplayOperation::trim},
        {"sync", ReplayOperation::fsync},  {"datasync", ReplayOperation::fdatasync}, {"open", ReplayOperation::open},
        {"close", ReplayOperation::close},
    };
    for (const auto& [name, value] : known) {
        if (name == word) {
            operation = value;
            return true;
        }
    }
    return false;
}

// One line of an iolog behind its time stamp: "file action [offset length]".
bool parse_action(const std::vector<std::string_view>& words, std::size_t at, ReplayPaths& paths, ReplayLog& log,
                  std::uint64_t time_ns) {
    if (words.size() < at + 2) {
        return false;
    }
    if (words[at + 1] == "add") {
        (void)paths.of(std::string(words[at]));
        return true;
    }
    ReplayRecord record{.time_ns = time_ns};
    if (!operation_of(words[at + 1], record.operation)) {
        return false;
    }
    record.file = paths.of(std::string(words[at]));
    const bool moves = record.operation == ReplayOperation::read || record.operation == ReplayOperation::write ||
                       record.operation == ReplayOperation::trim;
    if (moves) {
        // Up to where the end of each fits into a file offset.
        constexpr std::uint64_t most = std::uint64_t{1} << 62;
        if (words.size() < at + 4 || !parse_u64(words[at + 2], record.offset_bytes) ||
            !parse_u64(words[at + 3], record.length_bytes) || record.length_bytes > most ||
            record.offset_bytes > most) {
            return false;
        }
        if (record.length_bytes == 0) {
            log.skip("transfers of no length");
            return true;
        }
    }
    log.records.push_back(record);
    return true;
}

}  // namespace

void ReplayLog::skip(std::string_view reason, std::uint64_t times) {
    for (auto& [known, count] : skipped) {
        if (known == reason) {
            count += times;
            return;
        }
    }
    skipped.emplace_back(reason, times);
}

ReplayLog parse_iolog(std::string_view text, const std::string& path) {
    const bool stamped = text.starts_with(iolog_3);
    if (!stamped && !text.starts_with(iolog_2)) {
        throw FormatError(path, 0, "\"fio version 2 iolog\" or \"fio version 3 iolog\"");
    }
    ReplayLog log;
    ReplayPaths paths(log.paths);
    std::uint64_t now_ns = 0;
    std::uint64_t last_stamp = UINT64_MAX;
    std::size_t offset = 0;
    bool first = true;
    while (offset < text.size()) {
        const std::size_t end = std::min(text.find('\n', offset), text.size());
        const std::vector<std::string_view> words = words_of(text.substr(offset, end - offset));
        const std::size_t line = offset;
        offset = end + 1;
        if (first || words.empty()) {
            first = false;
            continue;
        }
        std::uint64_t micros = 0;
        if (stamped) {
            // As in fio: pauses lie between lines, so none is before the first, nor where logs that were joined meet.
            const bool is_number = parse_u64(words[0], micros);
            const std::uint64_t pause = is_number && micros > last_stamp ? micros - last_stamp : 0;
            last_stamp = micros;
            if (!is_number || pause > (UINT64_MAX - now_ns) / 1000 ||
                !parse_action(words, 1, paths, log, now_ns + pause * 1000)) {
                throw FormatError(path, line, "\"microseconds file action [offset length]\"");
            }
            now_ns += pause * 1000;
        } else if (words.size() >= 3 && words[1] == "wait") {
            if (!parse_u64(words[2], micros) || micros > (UINT64_MAX - now_ns) / 1000) {
                throw FormatError(path, line, "\"file wait microseconds\"");
            }
            now_ns += micros * 1000;
        } else if (!parse_action(words, 0, paths, log, now_ns)) {
            throw FormatError(path, line, "\"file action [offset length]\"");
        }
    }
    return log;
}

ReplayLog parse_blktrace(std::span<const std::byte> bytes, const std::string& path) {
    ReplayLog log;
    ReplayPaths paths(log.paths);
    std::uint64_t first_ns = UINT64_MAX;
    blktrace::Reader reader(bytes, path);
    for (blktrace::Record raw; reader.next(raw);) {
        // What was asked of the device, as it was queued: merges and splits come out of that again.
        if ((raw.categories & blktrace::category_notify) != 0 || raw.action != blktrace::queue) {
            continue;
        }
        ReplayRecord record{
            .time_ns = raw.time_ns, .offset_bytes = raw.sector * sector_bytes, .length_bytes = raw.bytes};
        if (raw.sector > (std::uint64_t{1} << 53)) {
            log.skip("requests beyond the end of any device");
            continue;
        }
        if ((raw.categories & blktrace::category_discard) != 0) {
            record.operation = ReplayOperation::trim;
        } else if (record.length_bytes == 0) {
            if ((raw.categories & (blktrace::category_flush | blktrace::category_write)) == 0) {
                log.skip("requests of no length");
                continue;
            }
            record.operation = ReplayOperation::fsync;
        } else {
            record.operation =
                (raw.categories & blktrace::category_write) != 0 ? ReplayOperation::write : ReplayOperation::read;
        }
        // Kernel device numbers: twelve bits major, twenty minor.
        record.file =
            paths.of("/dev/block/" + std::to_string(raw.device >> 20) + ":" + std::to_string(raw.device & 0xfffff));
        first_ns = std::min(first_ns, raw.time_ns);
        log.records.push_back(record);
    }
    if (reader.cut_off()) {
        log.skip("a record cut off at the end of the file");
    }
    if (reader.gaps() != 0) {
        log.skip("places where records are missing or in another order", reader.gaps());
    }
    for (ReplayRecord& record : log.records) {
        record.time_ns -= first_ns;
    }
    // blktrace writes one file per CPU; joined by blkparse they are in order, concatenated they are not.
    std::ranges::stable_sort(log.records,
                             [](const ReplayRecord& a, const ReplayRecord& b) { return a.time_ns < b.time_ns; });
    return log;
}

ReplayLog read_replay_log(const std::string& path) {
    const MappedFile file(path);
    const auto bytes = file.bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    ReplayLog log;
    read_checked([&] { log = text.starts_with("fio version") ? parse_iolog(text, path) : parse_blktrace(bytes, path); },
                 [&file] { file.check(); });
    if (log.empty()) {
        throw FormatError(path, bytes.size(), "at least one read, write, trim or sync");
    }
    return log;
}

}  // namespace sampleblk::workload
