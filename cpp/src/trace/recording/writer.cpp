// SPDX-License-Identifier: MIT
#include "sampleblk/trace/writer.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>

#include "file/bytes.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/trace/tracefs.hpp"

namespace sampleblk::trace {

namespace {

enum : std::uint8_t {
    kOptionDone = 0,
    kOptionCpuStat = 2,
    kOptionBuffer = 3,
    kOptionClock = 4,
    kOptionUname = 5,
    kOptionVersion = 9
};

// Builds the header in memory: a few megabytes, most of them kallsyms.
class Builder {
  public:
    explicit Builder(bool big_endian) : swap_(swap_needed(big_endian)) {}

    template <typename T>
    void number(T value) {
        if (swap_) {
            value = byte_swap(value);
        }
        char raw[sizeof(T)];
        std::memcpy(raw, &value, sizeof(T));
        out_.append(raw, sizeof(T));
    }
    void bytes(std::string_view text) { out_ += text; }
    void text(std::string_view text) {
        out_ += text;
        out_ += '\0';
    }
    void sized(std::string_view text) {
        number<std::uint64_t>(text.size());
        out_ += text;
    }
    void option_bytes(std::uint16_t id, std::string_view bytes) {
        number<std::uint16_t>(id);
        number<std::uint32_t>(static_cast<std::uint32_t>(bytes.size()));
        out_ += bytes;
    }
    void option(std::uint16_t id, std::string_view text) {
        number<std::uint16_t>(id);
        number<std::uint32_t>(static_cast<std::uint32_t>(text.size() + 1));
        this->text(text);
    }
    [[nodiscard]] std::string& out() noexcept { return out_; }

  private:
    bool swap_;
    std::string out_;
};

std::string read_optional(const std::string& path) {
    try {
        return read_file(path);
    } catch (const SystemError&) {
        return {};
    }
}

std::vector<std::string> subdirectories(const std::string& path) {
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(path.c_str()), &closedir);
    if (!dir) {
        throw_errno("opendir", path);
    }
    std::vector<std::string> out;
    while (const dirent* entry = readdir(dir.get())) {
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            out.emplace_back(entry->d_name);
        }
    }
    std::ranges::sort(out);
    return out;
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
    return (value + to - 1) / to * to;
}

void copy_file(const WholeFile& out, const SpoolFile& file) {
    const Fd in = open_file(file.path, O_RDONLY);
    if (lseek(in.get(), static_cast<off_t>(file.offset), SEEK_SET) < 0) {
        throw_errno("lseek", file.path);
    }
    std::uint64_t left = file.bytes;
    while (left != 0) {
        check_interrupt();
        constexpr std::uint64_t kStep = 16U << 20;
        const ssize_t moved =
            copy_file_range(in.get(), nullptr, out.get(), nullptr, static_cast<std::size_t>(std::min(left, kStep)), 0);
        if (moved > 0) {
            left -= static_cast<std::uint64_t>(moved);
            continue;
        }
        if (moved < 0 && errno == EINTR) {
            continue;
        }
        break;  // across file systems, or not supported: below
    }
    std::vector<std::byte> buffer(std::size_t{1} << 20);
    while (left != 0) {
        check_interrupt();
        const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(left, buffer.size()));
        const std::size_t got = read_full(in.get(), std::span(buffer).first(want), file.path);
        if (got == 0) {
            throw SystemError("read", file.path, EIO, std::to_string(left) + " bytes are missing at its end");
        }
        write_full(out.get(), std::span<const std::byte>(buffer).first(got), out.path());
        left -= got;
    }
}

}  // namespace

TraceHeader gather_header(const std::string& instance_dir, const HeaderOptions& options) {
    const std::string& top = tracefs_dir();
    TraceHeader out;
    out.big_endian = std::endian::native == std::endian::big;
    out.long_size = sizeof(long);
    out.page_size = static_cast<std::uint32_t>(sysconf(_SC_PAGESIZE));
    out.header_page = read_file(top + "/events/header_page");
    out.header_event = read_file(top + "/events/header_event");
    for (const std::string& event : subdirectories(top + "/events/ftrace")) {
        std::string path = top;
        path.append("/events/ftrace/").append(event).append("/format");
        out.ftrace_formats.push_back(read_optional(path));
    }
    std::map<std::string, std::vector<std::string>> systems;
    for (const std::string& event : options.events) {
        const auto colon = event.find(':');
        const std::string system = event.substr(0, colon);
        // Events of modules and probes live in the instance too; either place has the same text.
        std::string path = instance_dir;
        path.append("/events/").append(system).append("/").append(event.substr(colon + 1)).append("/format");
        systems[system].push_back(read_file(path));
    }
    out.event_formats.assign(systems.begin(), systems.end());
    if (options.kallsyms) {
        out.kallsyms = read_file("/proc/kallsyms");
    }
    out.printk_formats = read_optional(top + "/printk_formats");
    out.command_lines = read_optional(top + "/saved_cmdlines");
    out.clock = read_optional(instance_dir + "/trace_clock");
    utsname names{};
    if (uname(&names) == 0) {
        out.uname = std::string(names.sysname) + " " + names.nodename + " " + names.release + " " + names.machine;
    }
    out.writer = "sampleblk-lab";
    for (std::uint32_t cpu = 0;; ++cpu) {
        const std::string stats = read_optional(instance_dir + "/per_cpu/cpu" + std::to_string(cpu) + "/stats");
        if (stats.empty()) {
            break;
        }
        out.cpu_stats.push_back("CPU: " + std::to_string(cpu) + "\n" + stats);
    }
    return out;
}

void write_trace_file(const std::string& path, const TraceHeader& header, const std::vector<BufferSpool>& buffers) {
    Builder builder(header.big_endian);
    builder.bytes(std::string_view("\x17\x08\x44tracing", 10));
    builder.text("6");
    builder.number<std::uint8_t>(header.big_endian ? 1 : 0);
    builder.number<std::uint8_t>(header.long_size);
    builder.number<std::uint32_t>(header.page_size);
    builder.text("header_page");
    builder.sized(header.header_page);
    builder.text("header_event");
    builder.sized(header.header_event);
    builder.number<std::uint32_t>(static_cast<std::uint32_t>(header.ftrace_formats.size()));
    for (const std::string& format : header.ftrace_formats) {
        builder.sized(format);
    }
    builder.number<std::uint32_t>(static_cast<std::uint32_t>(header.event_formats.size()));
    for (const auto& [system, formats] : header.event_formats) {
        builder.text(system);
        builder.number<std::uint32_t>(static_cast<std::uint32_t>(formats.size()));
        for (const std::string& format : formats) {
            builder.sized(format);
        }
    }
    builder.number<std::uint32_t>(static_cast<std::uint32_t>(header.kallsyms.size()));
    builder.bytes(header.kallsyms);
    builder.number<std::uint32_t>(static_cast<std::uint32_t>(header.printk_formats.size()));
    builder.bytes(header.printk_formats);
    builder.sized(header.command_lines);
    // The top level has its table in any case; its place is the first.
    static const BufferSpool none;
    std::vector<const BufferSpool*> order = {&none};
    std::uint32_t count = 0;  // CPUs are counted, not listed: one without data still has its place
    std::uint64_t options = 0;
    for (const BufferSpool& buffer : buffers) {
        if (buffer.name.empty()) {
            order.front() = &buffer;
        } else {
            order.push_back(&buffer);
            options += 6 + 8 + buffer.name.size() + 1;
        }
        count = std::max(count, buffer.cpus.empty() ? 0 : buffer.cpus.back().cpu + 1);
    }
    builder.number<std::uint32_t>(count);
    builder.bytes(std::string_view("options  \0", 10));
    for (const auto& [id, bytes] : header.time_options) {
        builder.option_bytes(id, bytes);
    }
    for (const std::string& stats : header.cpu_stats) {
        builder.option(kOptionCpuStat, stats);
    }
    builder.option(kOptionClock, header.clock);
    builder.option(kOptionUname, header.uname);
    builder.option(kOptionVersion, header.writer);
    const std::uint64_t table_bytes = 10 + std::uint64_t{16} * count;
    const std::uint64_t tables = builder.out().size() + options + sizeof(std::uint16_t);
    for (std::size_t i = 1; i < order.size(); ++i) {
        builder.number<std::uint16_t>(kOptionBuffer);
        builder.number<std::uint32_t>(static_cast<std::uint32_t>(8 + order[i]->name.size() + 1));
        builder.number<std::uint64_t>(tables + table_bytes * i);
        builder.text(order[i]->name);
    }
    builder.number<std::uint16_t>(kOptionDone);
    std::uint64_t at = round_up(tables + table_bytes * order.size(), header.page_size);
    std::vector<std::pair<const SpoolFile*, std::uint64_t>> places;
    for (const BufferSpool* buffer : order) {
        builder.bytes(std::string_view("flyrecord\0", 10));
        auto file = buffer->cpus.begin();
        for (std::uint32_t cpu = 0; cpu < count; ++cpu) {
            const bool has = file != buffer->cpus.end() && file->cpu == cpu;
            const std::uint64_t bytes = has ? file->bytes : 0;
            builder.number<std::uint64_t>(at);
            builder.number<std::uint64_t>(bytes);
            if (has) {
                places.emplace_back(&*file, at);
                ++file;
            }
            at = round_up(at + bytes, header.page_size);
        }
    }
    WholeFile out(path);
    write_full(out.get(), builder.out(), path);
    for (const auto& [file, offset] : places) {
        if (file->bytes == 0) {
            continue;
        }
        if (lseek(out.get(), static_cast<off_t>(offset), SEEK_SET) < 0) {
            throw_errno("lseek", path);
        }
        copy_file(out, *file);
    }
    // The last CPU's table entry may point at the page after the end.
    struct stat info{};
    if (fstat(out.get(), &info) == 0 && static_cast<std::uint64_t>(info.st_size) < at &&
        ftruncate(out.get(), static_cast<off_t>(at)) != 0) {
        throw_errno("ftruncate", path);
    }
    out.finish();
}

}  // namespace sampleblk::trace
