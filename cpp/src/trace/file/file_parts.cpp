// SPDX-License-Identifier: MIT
#include "file/file_parts.hpp"

#include <zlib.h>
#include <zstd.h>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace sampleblk::trace {

namespace {

// Exactly `size` bytes out of `source`; nullopt when that is not what it holds.
std::optional<std::vector<std::byte>> decompress(Compression how, std::span<const std::byte> source,
                                                 std::uint32_t size) {
    std::vector<std::byte> out(size);
    std::size_t got = 0;
    if (how == Compression::zstd) {
        got = ZSTD_decompress(out.data(), out.size(), source.data(), source.size());
        if (ZSTD_isError(got) != 0) {
            return std::nullopt;
        }
    } else if (how == Compression::zlib) {
        uLongf length = size;
        if (uncompress(reinterpret_cast<Bytef*>(out.data()), &length, reinterpret_cast<const Bytef*>(source.data()),
                       static_cast<uLong>(source.size())) != Z_OK) {
            return std::nullopt;
        }
        got = length;
    } else {
        return std::nullopt;
    }
    if (got != size) {
        return std::nullopt;
    }
    return out;
}

// Larger than any header section or chunk that is written; a claim beyond it is a corrupt length.
constexpr std::uint32_t kMaxUnpacked = 256U << 20;

void chunk_table(FileContents& file, CpuData& cpu) {
    // The size that trace-cmd gives leaves out the four bytes of the count, so the file's end is the bound.
    ByteReader reader = reader_at(file, cpu.offset);
    try {
        const auto count = reader.number<std::uint32_t>("chunk count");
        for (std::uint32_t i = 0; i < count; ++i) {
            Chunk chunk;
            chunk.packed = reader.number<std::uint32_t>("compressed size of a chunk");
            chunk.size = reader.number<std::uint32_t>("size of a chunk");
            if (chunk.size > kMaxUnpacked) {
                reader.fail("a chunk of at most 256 MiB");
            }
            chunk.offset = reader.offset();
            (void)reader.take(chunk.packed, "chunk");
            cpu.chunks.push_back(chunk);
        }
    } catch (const FormatError& error) {
        if (file.on_error == OnError::strict) {
            throw;
        }
        file.damage.bytes += file.bytes.size() - error.offset();
        file.damage.note(error.what());
    }
}

}  // namespace

void add_buffer(FileContents& file, BufferData buffer) {
    if (file.buffers.size() >= kMaxBuffers) {
        throw FormatError(file.path, 0, "at most 65536 buffers");
    }
    file.buffers.push_back(std::move(buffer));
}

void add_cpu(FileContents& file, BufferData& buffer, CpuData cpu) {
    const std::uint64_t end = file.bytes.size();
    if (cpu.size != 0 && (cpu.offset > end || cpu.size > end - cpu.offset)) {
        const std::string expected = "CPU " + std::to_string(cpu.cpu) + "'s " + std::to_string(cpu.size) +
                                     " bytes of data; the file ends at " + std::to_string(end);
        if (file.on_error == OnError::strict) {
            throw FormatError(file.path, cpu.offset, expected);
        }
        const std::uint64_t there = cpu.offset > end ? 0 : end - cpu.offset;
        file.damage.bytes += cpu.size - there;
        file.damage.note("at byte " + std::to_string(cpu.offset) + ": expected " + expected);
        cpu.size = there;
    }
    if (buffer.compressed && cpu.size != 0) {
        chunk_table(file, cpu);
    }
    buffer.cpus.push_back(std::move(cpu));
}

ByteReader reader_at(const FileContents& file, std::uint64_t offset) {
    if (offset > file.bytes.size()) {
        throw FormatError(file.path, offset,
                          "a section inside the file's " + std::to_string(file.bytes.size()) + " bytes");
    }
    return {file.bytes.subspan(static_cast<std::size_t>(offset)), file.path, offset, file.big_endian};
}

std::vector<std::byte> unpack(const FileContents& file, std::uint64_t offset, std::uint32_t packed,
                              std::uint32_t size) {
    if (offset > file.bytes.size() || packed > file.bytes.size() - offset) {
        throw FormatError(file.path, offset, std::to_string(packed) + " compressed bytes");
    }
    if (size > kMaxUnpacked) {
        throw FormatError(file.path, offset, "at most 256 MiB in one compressed piece");
    }
    const auto source = file.bytes.subspan(static_cast<std::size_t>(offset), packed);
    auto out = decompress(file.compression, source, size);
    if (!out) {
        throw FormatError(file.path, offset,
                          std::to_string(size) + " bytes out of " + std::to_string(packed) + " compressed ones");
    }
    return std::move(*out);
}

std::string selected_clock(std::string_view text) {
    const auto open = text.find('[');
    const auto close = text.find(']');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
        const auto end = text.find_last_not_of(" \n");
        return printable(end == std::string_view::npos ? std::string_view{} : text.substr(0, end + 1));
    }
    return printable(text.substr(open + 1, close - open - 1));
}

void OptionReader::read(std::uint16_t id, ByteReader& data) {
    if (id == kDate || id == kOffset || id == kTsc2Nsec) {
        file_.time_options.push_back({id, data.rest()});
    }
    switch (id) {
        case kDate:
        case kOffset:
            time_offset(id, data);
            break;
        case kCpuStat:
            cpu_stat(up_to_nul(as_text(data.take(data.left(), "CPU statistics"))));
            break;
        case kTraceClock:
            file_.clock = selected_clock(up_to_nul(as_text(data.take(data.left(), "clock"))));
            break;
        case kUname:
            file_.uname = printable(up_to_nul(as_text(data.take(data.left(), "uname"))));
            break;
        case kVersion:
            file_.writer = printable(up_to_nul(as_text(data.take(data.left(), "version"))));
            break;
        case kCpuCount:
            cpu_count_ = data.number<std::uint32_t>("CPU count");
            if (cpu_count_ > kMaxCpus) {
                data.fail("at most 65536 CPUs");
            }
            break;
        case kTsc2Nsec:
            file_.time.mult = data.number<std::uint32_t>("TSC multiplier");
            file_.time.shift = data.number<std::uint32_t>("TSC shift");
            // Its offset is not added: trace-cmd report does not either.
            (void)data.number<std::uint64_t>("TSC offset");
            if (file_.time.shift > 63) {
                data.fail("a shift below 64");
            }
            file_.time.scaled = true;
            break;
        default:
            break;  // what the format says to skip
    }
}

void OptionReader::time_offset(std::uint16_t id, ByteReader& data) {
    const std::string text(up_to_nul(as_text(data.take(data.left(), "offset"))));
    const long long value = std::strtoll(text.c_str(), nullptr, 0);
    // DATE is in microseconds; a value that would overflow is malformed.
    const long long scale = id == kDate ? 1000 : 1;
    if (value > std::numeric_limits<std::int64_t>::max() / 4096 ||
        value < std::numeric_limits<std::int64_t>::min() / 4096) {
        data.fail("a time offset");
    }
    file_.time.offset += value * scale;
}

void OptionReader::cpu_stat(std::string_view text) {
    const auto value = [](std::string_view line) {
        std::uint64_t out = 0;
        const auto colon = line.find(": ");
        if (colon != std::string_view::npos) {
            const auto digits = line.substr(colon + 2);
            std::from_chars(digits.data(), digits.data() + digits.size(), out);
        }
        return out;
    };
    while (!text.empty()) {
        const auto line = take_line(text);
        if (line.starts_with("Buffer: ")) {
            stat_buffer_ = printable(line.substr(8));
        } else if (line.starts_with("CPU: ")) {
            CpuLoss loss;
            loss.buffer = stat_buffer_;
            loss.cpu = static_cast<std::uint32_t>(value(line));
            file_.losses.push_back(loss);
        } else if (!file_.losses.empty()) {
            CpuLoss& loss = file_.losses.back();
            if (line.starts_with("entries:")) {
                loss.entries = value(line);
            } else if (line.starts_with("overrun:")) {
                loss.overrun = value(line);
            } else if (line.starts_with("commit overrun:")) {
                loss.commit_overrun = value(line);
            } else if (line.starts_with("dropped events:")) {
                loss.dropped = value(line);
            } else if (line.starts_with("read events:")) {
                loss.read = value(line);
            }
        }
    }
}

namespace {

void header_info(ByteReader& reader, FileContents& file) {
    if (reader.text("header_page") != "header_page") {
        reader.fail("\"header_page\"");
    }
    const auto page_bytes = reader.number<std::uint64_t>("size of header_page");
    const std::uint64_t at = reader.offset();
    const auto page = as_text(reader.take(page_bytes, "header_page"));
    file.texts.header_page = page;
    file.layout = parse_page_layout(page, file.big_endian, file.long_size, file.page_size, file.path, at);
    if (reader.text("header_event") != "header_event") {
        reader.fail("\"header_event\"");
    }
    const auto event_bytes = reader.number<std::uint64_t>("size of header_event");
    file.texts.header_event = as_text(reader.take(event_bytes, "header_event"));
}

void add_format(std::span<const std::byte> text, std::string_view system, std::uint64_t at, FileContents& file) {
    try {
        file.formats.push_back(parse_event_format(as_text(text), system, file.path, at));
    } catch (const FormatError& error) {
        if (file.on_error == OnError::strict) {
            throw;
        }
        file.damage.note(error.what());
    }
}

void ftrace_formats(ByteReader& reader, FileContents& file) {
    const auto count = reader.number<std::uint32_t>("number of ftrace formats");
    for (std::uint32_t i = 0; i < count; ++i) {
        const auto size = reader.number<std::uint64_t>("size of a format");
        const std::uint64_t at = reader.offset();
        add_format(reader.take(size, "format"), "ftrace", at, file);
    }
}

void event_formats(ByteReader& reader, FileContents& file) {
    const auto systems = reader.number<std::uint32_t>("number of event systems");
    for (std::uint32_t i = 0; i < systems; ++i) {
        const auto system = reader.text("name of an event system");
        const auto count = reader.number<std::uint32_t>("number of events");
        for (std::uint32_t j = 0; j < count; ++j) {
            const auto size = reader.number<std::uint64_t>("size of a format");
            const std::uint64_t at = reader.offset();
            add_format(reader.take(size, "format"), system, at, file);
        }
    }
}

void kallsyms(ByteReader& reader, FileContents& file) {
    const auto size = reader.number<std::uint32_t>("size of kallsyms");
    file.texts.kallsyms = as_text(reader.take(size, "kallsyms"));
}

void printk(ByteReader& reader, FileContents& file) {
    const auto size = reader.number<std::uint32_t>("size of printk formats");
    auto text = as_text(reader.take(size, "printk formats"));
    file.texts.printk_formats = text;
    // Lines of `0xADDRESS : "format"`.
    while (!text.empty()) {
        const auto line = take_line(text);
        const auto quote = line.find('"');
        const auto last = line.rfind('"');
        std::uint64_t address = 0;
        const std::size_t skip = line.starts_with("0x") ? 2 : 0;
        const auto parsed = std::from_chars(line.data() + skip, line.data() + line.size(), address, 16);
        if (parsed.ec == std::errc() && quote != std::string_view::npos && last > quote) {
            file.printk_formats[address] = printable(line.substr(quote + 1, last - quote - 1));
        }
    }
}

void command_lines(ByteReader& reader, FileContents& file) {
    const auto size = reader.number<std::uint64_t>("size of command lines");
    auto text = as_text(reader.take(size, "command lines"));
    file.texts.command_lines = text;
    while (!text.empty()) {
        const auto line = take_line(text);
        std::int32_t pid = 0;
        const auto parsed = std::from_chars(line.data(), line.data() + line.size(), pid);
        const auto used = static_cast<std::size_t>(parsed.ptr - line.data());
        if (parsed.ec == std::errc() && used < line.size() && line[used] == ' ') {
            file.commands[pid] = printable(up_to_nul(line.substr(used + 1)));
        }
    }
}

}  // namespace

void read_header_section(std::uint16_t id, ByteReader& reader, FileContents& file) {
    switch (id) {
        case kHeaderInfo:
            header_info(reader, file);
            break;
        case kFtraceEvents:
            ftrace_formats(reader, file);
            break;
        case kEventFormats:
            event_formats(reader, file);
            break;
        case kKallsyms:
            kallsyms(reader, file);
            break;
        case kPrintk:
            printk(reader, file);
            break;
        default:
            command_lines(reader, file);
            break;
    }
}

}  // namespace sampleblk::trace
