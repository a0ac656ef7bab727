// SPDX-License-Identifier: MIT
#include <fcntl.h>

#include "language/key_tables.hpp"
#include "language/setters.hpp"

namespace sampleblk::workload {

namespace {

using namespace setters;

constexpr char fallocate_words[] = "none|0 native posix|1 keep truncate";
constexpr char sync_words[] = "none|0 sync|1 dsync";

void set_fadvise_hint(JobOptions& options, std::string_view text) {
    options.fadvise_hint = static_cast<FadviseHint>(pick("0 1 random sequential", text.empty() ? "1" : text));
}

void set_filesize(JobOptions& options, std::string_view text) {
    options.filesize = parse_range(text, options.kb_base);
    if (options.filesize.lower == 0) {
        throw InputError("'" + std::string(text) + "' is not the size of a file", {}, 0, "at least 1 byte");
    }
}

// "roundrobin", "random:8" (8 I/Os on a file before the next), "zipf:1.2".
void set_file_service(JobOptions& options, std::string_view text) {
    const std::size_t colon = text.find(':');
    options.file_service =
        static_cast<FileService>(pick("roundrobin sequential random zipf pareto normal|gauss", text.substr(0, colon)));
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
                static_cast<std::uint32_t>(parse_bounded(rest, options.kb_base, 1, UINT32_MAX));
    }
}

// "wait_before,write:8": the flags, and every how many writes.
void set_sync_file_range(JobOptions& options, std::string_view text) {
    constexpr unsigned flags[] = {SYNC_FILE_RANGE_WAIT_BEFORE, SYNC_FILE_RANGE_WRITE, SYNC_FILE_RANGE_WAIT_AFTER};
    const std::size_t colon = text.rfind(':');
    options.sync_file_range_flags = 0;
    for (const std::string_view word : split(text.substr(0, colon), ',')) {
        options.sync_file_range_flags |= flags[pick("wait_before write wait_after", word)];
    }
    options.sync_file_range_every = colon == std::string_view::npos ? 1 : parse_unsigned(text.substr(colon + 1));
}

void set_buffered(JobOptions& options, std::string_view text) {
    options.direct = !parse_bool(text);
}

void set_write_hint(JobOptions& options, std::string_view text) {
    options.write_hint = 1 + pick("none short medium long extreme", text);
}

void set_replay_skip(JobOptions& options, std::string_view text) {
    options.replay_skip = 0;
    for (const std::string_view word : split(text, ',')) {
        options.replay_skip |= 1U << pick("read write trim sync", word);
    }
}

constexpr Key table[] = {
    key("filename", "str[:str…]", "", "files or devices, separated by colons", text_value<&JobOptions::filename>),
    key("directory", "str", "", "below which the files are, absolute names too", text_value<&JobOptions::directory>),
    key("filename_format", "str", "$jobname.$jobnum.$filenum", "names of files that filename does not give",
        text_value<&JobOptions::filename_format>),
    key("opendir", "str", "", "take all files below this directory", text_value<&JobOptions::opendir>),
    key("nrfiles nr_files", "int", "1", "number of files", number<&JobOptions::nrfiles, 1, 1'000'000>),
    key("openfiles", "int", "nrfiles", "files open at a time", number<&JobOptions::openfiles>),
    key("file_service_type", "roundrobin|sequential|random|zipf|pareto|normal[:n]", "roundrobin", "which file is next",
        set_file_service),
    key("size", "size or percent", "", "bytes of I/O of a job, and size of its files",
        size_or_percent<&JobOptions::size>),
    key("io_size io_limit", "size or percent", "size", "bytes of I/O, where it is not the size of the files",
        size_or_percent<&JobOptions::io_size>),
    key("filesize", "size or range", "", "size of each file", set_filesize),
    key("file_append", "bool", "0", "write behind the end of the files", flag<&JobOptions::file_append>),
    key("fill_device fill_fs", "bool", "0", "write until no space is left", flag<&JobOptions::fill_device>),
    key("offset", "size or percent", "0", "where in the files to begin", size_or_percent<&JobOptions::offset>),
    key("offset_align", "size", "bs", "alignment of an offset in percent", number<&JobOptions::offset_align>),
    key("offset_increment", "size or percent", "0", "added to the offset once for each copy",
        size_or_percent<&JobOptions::offset_increment>),
    key("number_ios", "int", "0", "end after so many I/Os", number<&JobOptions::number_ios>),
    key("fallocate", "none|native|posix|keep|truncate", "native", "preallocation of new files",
        choice<&JobOptions::fallocate, fallocate_words>),
    key("fadvise_hint", "bool|random|sequential", "1", "tell the kernel the pattern by fadvise", set_fadvise_hint),
    key("write_hint", "none|short|medium|long|extreme", "", "life time hint of the writes", set_write_hint),
    key("invalidate", "bool", "1", "drop the files from the page cache when opened", flag<&JobOptions::invalidate>),
    key("pre_read", "bool", "0", "read the files into the cache first", flag<&JobOptions::pre_read>),
    key("overwrite", "bool", "0", "lay the files out in full before writing", flag<&JobOptions::overwrite>),
    key("create_fsync", "bool", "1", "fsync files that were laid out", flag<&JobOptions::create_fsync>),
    key("create_on_open", "bool", "0", "create files when the job opens them", flag<&JobOptions::create_on_open>),
    key("create_only", "bool", "0", "lay the files out and stop", flag<&JobOptions::create_only>),
    key("allow_file_create", "bool", "1", "whether files may be created", flag<&JobOptions::allow_file_create>),
    key("allow_mounted_write", "bool", "0", "whether a mounted device may be written",
        flag<&JobOptions::allow_mounted_write>),
    key("unlink", "bool", "0", "remove the files that the job created", flag<&JobOptions::unlink>),
    key("unlink_each_loop", "bool", "0", "the same after every loop", flag<&JobOptions::unlink_each_loop>),
    key("direct", "bool", "0", "O_DIRECT", flag<&JobOptions::direct>),
    key("buffered", "bool", "1", "the opposite of direct", set_buffered),
    key("sync", "none|sync|dsync", "none", "O_SYNC or O_DSYNC", choice<&JobOptions::sync, sync_words>),
    key("fsync", "int", "0", "fsync after so many writes", number<&JobOptions::fsync_every>),
    key("fdatasync", "int", "0", "fdatasync after so many writes", number<&JobOptions::fdatasync_every>),
    key("sync_file_range", "flags:int", "", "sync_file_range after so many writes", set_sync_file_range),
    key("end_fsync", "bool", "0", "fsync at the end of each loop", flag<&JobOptions::end_fsync>),
    key("fsync_on_close", "bool", "0", "fsync before each close", flag<&JobOptions::fsync_on_close>),
    key("read_iolog", "str", "", "replay this fio iolog or blktrace file", text_value<&JobOptions::read_iolog>),
    key("replay_no_stall", "bool", "0", "replay without the recorded pauses", flag<&JobOptions::replay_no_stall>),
    key("replay_redirect", "str", "", "replay everything onto this file or device",
        text_value<&JobOptions::replay_redirect>),
    key("replay_scale", "int", "1", "divide recorded offsets by this", number<&JobOptions::replay_scale, 1>),
    key("replay_time_scale", "percent", "100", "speed of the replay: 200 halves the recorded pauses",
        number<&JobOptions::replay_time_scale, 1>),
    key("replay_skip", "read,write,trim,sync", "", "leave these operations out", set_replay_skip),
    key("replay_align", "size", "0", "align recorded offsets down to this", number<&JobOptions::replay_align>),
};

}  // namespace

std::span<const Key> file_keys() {
    return table;
}

}  // namespace sampleblk::workload
