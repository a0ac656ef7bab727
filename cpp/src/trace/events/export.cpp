// SPDX-License-Identifier: MIT
// Any trace.dat, or a part of one, as a version 6 file.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "events/sinks.hpp"
#include "file/text.hpp"
#include "file/walker.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/trace/decode.hpp"
#include "sampleblk/trace/writer.hpp"

namespace sampleblk::trace {

namespace {

// Which events occur, and which symbols their words may point at.
struct UseSink : PlainSink {
    explicit UseSink(const TraceFile& file) : PlainSink(file), swap(swap_needed(file.big_endian())) {}

    void record(const Event& event) {
        if (event.size < kTypeSize) {
            return;
        }
        ids.insert(load<std::uint16_t>(event.data, swap));
        // Any word that looks like a kernel address counts; a few too many do no harm.
        for (std::uint32_t at = 0; at + 8 <= event.size; at += 4) {
            const auto word = load<std::uint64_t>(event.data + at, swap);
            if (word >> 63 != 0 && seen.insert(word).second) {
                if (const Symbol* symbol = file().symbols().find(word)) {
                    symbols.insert({symbol->address, symbol});
                }
            }
        }
    }

    bool swap;
    std::set<std::uint16_t> ids;
    std::set<std::uint64_t> seen;
    std::map<std::uint64_t, const Symbol*> symbols;
};

// A file of our own that goes away with us.
class Scratch {
  public:
    explicit Scratch(std::string path) : path_(std::move(path)) {}
    Scratch(Scratch&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    Scratch& operator=(Scratch&&) = delete;
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() {
        if (!path_.empty()) {
            (void)unlink(path_.c_str());
        }
    }
    [[nodiscard]] const std::string& path() const noexcept { return path_; }

  private:
    std::string path_;
};

// Whether nothing of a page can be read.
PageFault fault_of(std::span<const std::byte> page, const PageLayout& layout, bool swap) {
    const auto begin = [&](auto walker) {
        walker.begin(page, layout);
        return walker.fault();
    };
    return swap ? begin(PageWalker<true>{}) : begin(PageWalker<false>{});
}

SpoolFile spool_pages(const TraceFile& file, const BufferData& buffer, const CpuData& cpu, const ExportRequest& request,
                      const std::string& path) {
    const bool swap = swap_needed(file.big_endian());
    SpoolFile out{cpu.cpu, path, 0};
    const Fd fd = open_file(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    PageSource source(file, buffer, cpu);
    if (request.from != 0) {
        source.seek(request.from, file.time(), swap);
    }
    std::span<const std::byte> page;
    while (source.next(page)) {
        // First of all: of what is no page the time means nothing.
        if (const PageFault fault = fault_of(page, buffer.layout, swap); fault != PageFault::none) {
            if (file.on_error() == OnError::strict) {
                file.check_length();
                throw FormatError(file.path(), source.file_offset(), expected_by(fault));
            }
            continue;
        }
        if (file.time().apply(load<std::uint64_t>(page.data(), swap)) >= request.to) {
            break;
        }
        try {
            write_full(fd.get(), page, path);
            // A compressed chunk may end within a page, of which nothing is missing. Without its rest, the page after
            // it would be read as that.
            write_full(fd.get(), std::vector<std::byte>(buffer.layout.page_size - page.size()), path);
        } catch (const SystemError&) {
            file.check_length();  // write(2) says EFAULT of a page that is gone
            throw;
        }
        out.bytes += buffer.layout.page_size;
    }
    file.check_length();
    return out;
}

// A buffer's loss counts in the form of its statistics files; "Buffer: " says whose they are.
void add_losses(const TraceFile& file, const BufferData& buffer, std::vector<std::string>& stats) {
    bool named = buffer.name.empty();
    for (const CpuLoss& loss : file.losses()) {
        if (loss.buffer != buffer.name) {
            continue;
        }
        if (!named) {
            stats.push_back("\nBuffer: " + buffer.name + "\n\n");
            named = true;
        }
        stats.push_back(
            "CPU: " + std::to_string(loss.cpu) + "\nentries: " + std::to_string(loss.entries) +
            "\noverrun: " + std::to_string(loss.overrun) + "\ncommit overrun: " + std::to_string(loss.commit_overrun) +
            "\ndropped events: " + std::to_string(loss.dropped) + "\nread events: " + std::to_string(loss.read) + "\n");
    }
}

}  // namespace

void export_trace_file(const TraceFile& file, const std::string& path, const ExportRequest& request) {
    file.check_length();
    const auto buffers = file.select(request.buffer);
    TraceHeader header;
    header.big_endian = file.big_endian();
    header.long_size = file.long_size();
    header.page_size = file.page_size();
    header.header_page = std::string(file.texts().header_page);
    header.header_event = std::string(file.texts().header_event);
    header.printk_formats = std::string(file.texts().printk_formats);
    header.command_lines = std::string(file.texts().command_lines);
    header.clock = "[" + file.clock(request.buffer) + "]";
    header.uname = file.uname();
    header.writer = file.writer();
    for (const FileOption& option : file.time_options()) {
        header.time_options.emplace_back(option.id, as_text(option.bytes));
    }
    const std::uint32_t page_size =
        parse_page_layout(header.header_page, file.big_endian(), file.long_size(), file.page_size(), file.path(), 0)
            .page_size;
    for (const BufferData* buffer : buffers) {
        if (buffer->layout.page_size != page_size) {
            throw UnsupportedError("exporting buffer '" + buffer->name + "' of " + file.path(),
                                   "its sub-buffers have " + std::to_string(buffer->layout.page_size) +
                                       " bytes, and version 6 takes only those of the header, " +
                                       std::to_string(page_size),
                                   "keep the recording as it is");
        }
        add_losses(file, *buffer, header.cpu_stats);
    }
    UseSink use(file);
    if (request.prune) {
        // Of the whole buffers: the pages that are kept reach beyond the window.
        Selection selection;
        selection.buffer = request.buffer;
        (void)walk(file, selection, use);
        // trace-cmd finds an address between two symbols, so that one of the last would have no name.
        if (const Symbol* last = file.symbols().find(~0ULL); last != nullptr && !use.symbols.empty()) {
            use.symbols.insert({last->address, last});
        }
        for (const auto& [address, symbol] : use.symbols) {
            header.kallsyms += hex_number(address).substr(2) + " t " + std::string(symbol->name) +
                               (symbol->module.empty() ? "" : "\t[" + std::string(symbol->module) + "]") + "\n";
        }
    } else {
        header.kallsyms = std::string(file.texts().kallsyms);
    }
    std::map<std::string, std::vector<std::string>> systems;
    for (const EventFormat& format : file.formats()) {
        if (request.prune && !use.ids.contains(static_cast<std::uint16_t>(format.id))) {
            continue;
        }
        if (format.system == "ftrace") {
            header.ftrace_formats.emplace_back(format.text);
        } else {
            systems[format.system].emplace_back(format.text);
        }
    }
    header.event_formats.assign(systems.begin(), systems.end());
    std::vector<Scratch> scratch;
    std::vector<BufferSpool> spools;
    for (const BufferData* buffer : buffers) {
        BufferSpool& spool = spools.emplace_back();
        spool.name = buffer->name;
        for (const CpuData& cpu : buffer->cpus) {
            if (cpu.size != 0) {
                scratch.emplace_back(path + "." + std::to_string(spools.size()) + ".cpu" + std::to_string(cpu.cpu));
                spool.cpus.push_back(spool_pages(file, *buffer, cpu, request, scratch.back().path()));
            }
        }
        std::ranges::sort(spool.cpus, {}, &SpoolFile::cpu);
    }
    write_trace_file(path, header, spools);
}

}  // namespace sampleblk::trace
