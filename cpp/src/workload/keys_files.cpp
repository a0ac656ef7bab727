// SPDX-License-Identifier: MIT
#include <fcntl.h>

#include <array>

#include "key_setters.hpp"
#include "key_tables.hpp"

namespace sampleblk::workload {

namespace {

using namespace setters;

constexpr std::array<Word<Fallocate>, 7> fallocate_words = {{{"none", Fallocate::none},
                                                             {"native", Fallocate::native},
                                                             {"posix", Fallocate::posix},
                                                             {"keep", Fallocate::keep},
                                                             {"truncate", Fallocate::truncate},
                                                             {"0", Fallocate::none},
                                                             {"1", Fallocate::posix}}};
constexpr std::array<Word<FadviseHint>, 4> hint_words = {{{"0", FadviseHint::none},
                                                          {"1", FadviseHint::by_pattern},
                                                          {"random", FadviseHint::random},
                                                          {"sequential", FadviseHint::sequential}}};
constexpr std::array<Word<SyncMode>, 5> sync_words = {{{"none", SyncMode::none},
                                                       {"0", SyncMode::none},
                                                       {"sync", SyncMode::sync},
                                                       {"1", SyncMode::sync},
                                                       {"dsync", SyncMode::dsync}}};
constexpr std::array<Word<FileService>, 7> service_words = {{{"roundrobin", FileService::round_robin},
                                                             {"sequential", FileService::sequential},
                                                             {"random", FileService::random},
                                                             {"zipf", FileService::zipf},
                                                             {"pareto", FileService::pareto},
                                                             {"normal", FileService::normal},
                                                             {"gauss", FileService::normal}}};

void set_fadvise_hint(JobOptions& options, std::string_view text) {
    options.fadvise_hint = text.empty() ? FadviseHint::by_pattern : pick(hint_words, text);
}

void set_nrfiles(JobOptions& options, std::string_view text) {
    number<&JobOptions::nrfiles, 1, 1'000'000>(options, text);
    options.nrfiles_given = true;
}

void set_filesize(JobOptions& options, std::string_view text) {
    options.filesize = parse_range(text, options.kb_base);
    if (options.filesize.lower == 0) {
        throw InputError("'" + std::string(text) + "' is no size for a file", {}, 0, "at least 1 byte");
    }
}

// "roundrobin", "random:8" (8 I/Os on a file before the next), "zipf:1.2".
void set_file_service(JobOptions& options, std::string_view text) {
    const std::size_t colon = text.find(':');
    options.file_service = pick(service_words, text.substr(0, colon));
    if (colon == std::string_view::npos) {
        return;
    }
    const std::string_view rest = text.substr(colon + 1);
    switch (options.file_service) {
        case FileService::zipf:
        case FileService::pareto:
        case FileService::normal:
            options.file_service_parameter = parse_float(rest);
            break;
        default:
            options.file_service_count =
                static_cast<std::uint32_t>(std::min<std::uint64_t>(parse_unsigned(rest), UINT32_MAX));
    }
}

// "wait_before,write:8": the flags, and every how many writes.
void set_sync_file_range(JobOptions& options, std::string_view text) {
    constexpr std::array<Word<unsigned>, 3> words = {{{"wait_before", SYNC_FILE_RANGE_WAIT_BEFORE},
                                                      {"write", SYNC_FILE_RANGE_WRITE},
                                                      {"wait_after", SYNC_FILE_RANGE_WAIT_AFTER}}};
    const std::size_t colon = text.rfind(':');
    options.sync_file_range_flags = 0;
    for (const std::string_view word : split(text.substr(0, colon), ',')) {
        options.sync_file_range_flags |= pick(words, word);
    }
    options.sync_file_range_every = colon == std::string_view::npos ? 1 : parse_unsigned(text.substr(colon + 1));
}

void set_buffered(JobOptions& options, std::string_view text) {
    options.direct = !parse_bool(text);
}

void set_write_hint(JobOptions& options, std::string_view text) {
    constexpr std::array<Word<int>, 5> words = {
        {{"none", 0}, {"short", 1}, {"medium", 2}, {"long", 3}, {"extreme", 4}}};
    (void)pick(words, text);
    options.write_hint = std::string(trim(text));
}

void set_replay_skip(JobOptions& options, std::string_view text) {
    constexpr std::array<Word<Direction>, 4> words = {
        {{"read", Direction::read}, {"write", Direction::write}, {"trim", Direction::trim}, {"sync", Direction::sync}}};
    options.replay_skip = 0;
    for (const std::string_view word : split(text, ',')) {
        options.replay_skip |= 1U << index_of(pick(words, word));
    }
}

constexpr Key table[] = {
    {"filename", "", "str[:str…]", "", Effect::result, Support::full, "files or devices, parted by colons",
     text_value<&JobOptions::filename>},
    {"directory", "", "str", "", Effect::result, Support::full, "where the files are",
     text_value<&JobOptions::directory>},
    {"filename_format", "", "str", "$jobname.$jobnum.$filenum", Effect::result, Support::full,
     "names of files that filename does not give", text_value<&JobOptions::filename_format>},
    {"unique_filename", "", "bool", "1", Effect::result, Support::accepted, "concerns fio's network clients only",
     nullptr},
    {"opendir", "", "str", "", Effect::result, Support::full, "take all files below this directory",
     text_value<&JobOptions::opendir>},
    {"lockfile", "", "str", "none", Effect::result, Support::refused, "files are not locked between jobs", nullptr},
    {"nrfiles", "nr_files", "int", "1", Effect::result, Support::full, "number of files", set_nrfiles},
    {"openfiles", "", "int", "nrfiles", Effect::result, Support::full, "files open at a time",
     number<&JobOptions::openfiles>},
    {"file_service_type", "", "roundrobin|sequential|random|zipf|pareto|normal[:n]", "roundrobin", Effect::result,
     Support::full, "which file is next", set_file_service},
    {"size", "", "size or percent", "", Effect::result, Support::full, "bytes of I/O of a job, and size of its files",
     size_or_percent<&JobOptions::size>},
    {"io_size", "io_limit", "size or percent", "size", Effect::result, Support::full,
     "bytes of I/O, where it is not the size of the files", size_or_percent<&JobOptions::io_size>},
    {"filesize", "", "size or range", "", Effect::result, Support::full, "size of each file", set_filesize},
    {"file_append", "", "bool", "0", Effect::result, Support::full, "write behind the end of the files",
     flag<&JobOptions::file_append>},
    {"fill_device", "fill_fs", "bool", "0", Effect::result, Support::full, "write until no space is left",
     flag<&JobOptions::fill_device>},
    {"offset", "", "size or percent", "0", Effect::result, Support::full, "where in the files to begin",
     size_or_percent<&JobOptions::offset>},
    {"offset_align", "", "size", "bs", Effect::result, Support::full, "alignment of an offset in percent",
     number<&JobOptions::offset_align>},
    {"offset_increment", "", "size or percent", "0", Effect::result, Support::full,
     "added to the offset once for each copy", size_or_percent<&JobOptions::offset_increment>},
    {"number_ios", "", "int", "0", Effect::result, Support::full, "end after so many I/Os",
     number<&JobOptions::number_ios>},
    {"fallocate", "", "none|native|posix|keep|truncate", "native", Effect::result, Support::full,
     "preallocation of new files", choice<&JobOptions::fallocate, fallocate_words>},
    {"fadvise_hint", "", "bool|random|sequential", "1", Effect::result, Support::full,
     "tell the kernel the pattern by fadvise", set_fadvise_hint},
    {"write_hint", "", "none|short|medium|long|extreme", "", Effect::result, Support::full,
     "life time hint of the writes", set_write_hint},
    {"invalidate", "", "bool", "1", Effect::result, Support::full, "drop the files from the page cache when opened",
     flag<&JobOptions::invalidate>},
    {"pre_read", "", "bool", "0", Effect::result, Support::full, "read the files into the cache first",
     flag<&JobOptions::pre_read>},
    {"overwrite", "", "bool", "0", Effect::result, Support::full, "lay the files out in full before writing",
     flag<&JobOptions::overwrite>},
    {"create_serialize", "", "bool", "1", Effect::result, Support::accepted, "files are always laid out one by one",
     nullptr},
    {"create_fsync", "", "bool", "1", Effect::result, Support::full, "fsync files that were laid out",
     flag<&JobOptions::create_fsync>},
    {"create_on_open", "", "bool", "0", Effect::result, Support::full, "create files when the job opens them",
     flag<&JobOptions::create_on_open>},
    {"create_only", "", "bool", "0", Effect::result, Support::full, "lay the files out and stop",
     flag<&JobOptions::create_only>},
    {"allow_file_create", "", "bool", "1", Effect::result, Support::full, "whether files may be created",
     flag<&JobOptions::allow_file_create>},
    {"allow_mounted_write", "", "bool", "0", Effect::result, Support::full, "whether a mounted device may be written",
     flag<&JobOptions::allow_mounted_write>},
    {"unlink", "", "bool", "0", Effect::result, Support::full, "remove the files that the job created",
     flag<&JobOptions::unlink>},
    {"unlink_each_loop", "", "bool", "0", Effect::result, Support::full, "the same after every loop",
     flag<&JobOptions::unlink_each_loop>},
    {"direct", "", "bool", "0", Effect::result, Support::full, "O_DIRECT", flag<&JobOptions::direct>},
    {"buffered", "", "bool", "1", Effect::result, Support::full, "the opposite of direct", set_buffered},
    {"atomic", "", "bool", "0", Effect::result, Support::refused, "O_ATOMIC never came to Linux", nullptr},
    {"sync", "", "none|sync|dsync", "none", Effect::result, Support::full, "O_SYNC or O_DSYNC",
     choice<&JobOptions::sync, sync_words>},
    {"fsync", "", "int", "0", Effect::result, Support::full, "fsync after so many writes",
     number<&JobOptions::fsync_every>},
    {"fdatasync", "", "int", "0", Effect::result, Support::full, "fdatasync after so many writes",
     number<&JobOptions::fdatasync_every>},
    {"sync_file_range", "", "flags:int", "", Effect::result, Support::full, "sync_file_range after so many writes",
     set_sync_file_range},
    {"end_fsync", "", "bool", "0", Effect::result, Support::full, "fsync at the end of each loop",
     flag<&JobOptions::end_fsync>},
    {"fsync_on_close", "", "bool", "0", Effect::result, Support::full, "fsync before each close",
     flag<&JobOptions::fsync_on_close>},
    {"write_barrier", "barrier", "int", "0", Effect::result, Support::accepted,
     "Linux has had no write barriers since 2.6.37", nullptr},
    {"read_iolog", "", "str", "", Effect::result, Support::full, "replay this fio iolog or blktrace file",
     text_value<&JobOptions::read_iolog>},
    {"replay_no_stall", "", "bool", "0", Effect::result, Support::full, "replay without the recorded pauses",
     flag<&JobOptions::replay_no_stall>},
    {"replay_redirect", "", "str", "", Effect::result, Support::full, "replay everything onto this file or device",
     text_value<&JobOptions::replay_redirect>},
    {"replay_scale", "", "int", "1", Effect::result, Support::full, "divide recorded offsets by this",
     number<&JobOptions::replay_scale, 1>},
    {"replay_time_scale", "", "percent", "100", Effect::result, Support::full, "stretch or shrink recorded pauses",
     number<&JobOptions::replay_time_scale, 1>},
    {"replay_skip", "", "read,write,trim,sync", "", Effect::result, Support::full, "leave these operations out",
     set_replay_skip},
    {"read_iolog_chunked", "", "bool", "0", Effect::result, Support::accepted, "logs are read whole", nullptr},
    {"write_iolog", "", "str", "", Effect::report, Support::refused, "use io_log_entries, whose table can be replayed",
     nullptr},
    {"merge_blktrace_file", "", "str", "", Effect::result, Support::refused, "traces are not merged", nullptr},
    {"merge_blktrace_scalars", "", "list", "", Effect::result, Support::refused, "traces are not merged", nullptr},
    {"merge_blktrace_iters", "", "list", "", Effect::result, Support::refused, "traces are not merged", nullptr},
    {"replay_align", "", "size", "0", Effect::result, Support::full, "align recorded offsets down to this",
     number<&JobOptions::replay_align>},
};

}  // namespace

std::span<const Key> file_keys() {
    return table;
}

}  // namespace sampleblk::workload
