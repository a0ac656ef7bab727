// SPDX-License-Identifier: MIT
#include "sampleblk/trace/file.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "compress.hpp"

namespace sampleblk::trace {

namespace {

constexpr std::string_view kMagic{"\x17\x08\x44tracing", 10};
constexpr std::uint16_t kSectionCompressed = 1;
// Larger than any header section or chunk that is written; a claim beyond it is a corrupt length.
constexpr std::uint32_t kMaxUnpacked = 256U << 20;
constexpr std::uint32_t kMaxCpus = 1U << 16;
constexpr std::uint32_t kMaxPage = 1U << 26;

// Option and section numbers of trace-cmd.dat.v7(5).
enum : std::uint8_t {
    kDone = 0,
    kDate = 1,
    kCpuStat = 2,
    kBuffer = 3,
    kTraceClock = 4,
    kUname = 5,
    kOffset = 7,
    kCpuCount = 8,
    kVersion = 9,
    kTsc2Nsec = 14,
    kHeaderInfo = 16,
    kFtraceEvents = 17,
    kEventFormats = 18,
    kKallsyms = 19,
    kPrintk = 20,
    kCmdLines = 21,
    kBufferText = 22,
};

std::string_view up_to_nul(std::string_view text) {
    return text.substr(0, text.find('\0'));
}

// "… [local] global …" names the clock in brackets.
std::string selected_clock(std::string_view text) {
    const auto open = text.find('[');
    const auto close = text.find(']');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
        const auto end = text.find_last_not_of(" \n");
        return std::string(end == std::string_view::npos ? std::string_view{} : text.substr(0, end + 1));
    }
    return std::string(text.substr(open + 1, close - open - 1));
}

}  // namespace

void Damage::add(const Damage& other) {
    pages += other.pages;
    bytes += other.bytes;
    records += other.records;
    for (const std::string& text : other.notes) {
        note(text);
    }
}

std::string Damage::because() const {
    std::string out;
    for (const std::string& text : notes) {
        out += (out.empty() ? "" : "\n") + text;
    }
    return out;
}

std::uint64_t TimeConversion::apply(std::uint64_t stamp) const noexcept {
    if (scaled) {
        __extension__ using Wide = unsigned __int128;
        stamp = static_cast<std::uint64_t>((static_cast<Wide>(stamp) * mult) >> shift) + base;
    }
    return stamp + static_cast<std::uint64_t>(offset);
}

TraceFile::TraceFile(const std::string& path, OnError on_error) : path_(path), map_(path), on_error_(on_error) {
    bytes_ = map_.bytes();
    read();
}

TraceFile::TraceFile(std::vector<std::byte> bytes, std::string name, OnError on_error)
    : path_(std::move(name)), owned_(std::move(bytes)), on_error_(on_error) {
    bytes_ = owned_;
    read();
}

ByteReader TraceFile::reader_at(std::uint64_t offset) const {
    if (offset > bytes_.size()) {
        throw FormatError(path_, offset, "a section inside the file's " + std::to_string(bytes_.size()) + " bytes");
    }
    return {bytes_.subspan(static_cast<std::size_t>(offset)), path_, offset, big_endian_};
}

void TraceFile::read() {
    ByteReader reader(bytes_, path_, 0, false);
    if (as_text(bytes_.first(std::min(bytes_.size(), kMagic.size()))) != kMagic) {
        throw FormatError(path_, 0, "the magic of a trace.dat file (0x17 0x08 0x44 \"tracing\")");
    }
    (void)reader.take(kMagic.size(), "magic");
    const std::uint64_t version_at = reader.offset();
    const auto version = reader.text("version");
    if (version != "6" && version != "7") {
        throw FormatError(path_, version_at, "version 6 or 7, not \"" + std::string(version.substr(0, 16)) + "\"");
    }
    version_ = version == "6" ? 6 : 7;
    const auto order = reader.number<std::uint8_t>("byte order");
    if (order > 1) {
        throw FormatError(path_, reader.offset() - 1, "byte order 0 (little) or 1 (big)");
    }
    big_endian_ = order == 1;
    reader.set_big_endian(big_endian_);
    long_size_ = reader.number<std::uint8_t>("long size");
    if (long_size_ != 4 && long_size_ != 8) {
        throw FormatError(path_, reader.offset() - 1, "a long of 4 or 8 bytes");
    }
    page_size_ = reader.number<std::uint32_t>("page size");
    if (page_size_ < 256 || page_size_ > kMaxPage) {
        throw FormatError(path_, reader.offset() - 4, "a page size from 256 bytes to 64 MiB");
    }
    layout_ = parse_page_layout({}, big_endian_, long_size_, page_size_, path_, 0);
    if (version_ == 6) {
        read_v6(reader);
    } else {
        read_v7(reader);
    }
    index_events();
}

void TraceFile::read_v6(ByteReader& reader) {
    header_info(reader);
    ftrace_formats(reader);
    event_formats(reader);
    kallsyms(reader);
    printk(reader);
    command_lines(reader);
    cpu_count_ = reader.number<std::uint32_t>("CPU count");
    if (cpu_count_ > kMaxCpus) {
        reader.fail("at most 65536 CPUs");
    }
    // The instances' tables are read last: an option may still change the number of CPUs.
    const std::uint32_t stored_cpus = cpu_count_;
    auto kind = up_to_nul(as_text(reader.take(10, "section name")));
    if (kind.starts_with("options")) {
        for (;;) {
            const auto id = reader.number<std::uint16_t>("option");
            if (id == kDone) {
                break;
            }
            const auto size = reader.number<std::uint32_t>("option size");
            const std::uint64_t at = reader.offset();
            ByteReader data(reader.take(size, "option"), path_, at, big_endian_);
            option(id, data);
        }
        kind = up_to_nul(as_text(reader.take(10, "section name")));
    }
    if (kind.starts_with("latency")) {
        throw UnsupportedError("reading " + path_, "it holds the text of a latency tracer and no events",
                               "record without a latency tracer");
    }
    if (!kind.starts_with("flyrecord")) {
        reader.fail(R"("options", "latency" or "flyrecord")");
    }
    BufferData top;
    top.clock = clock_;
    top.layout = layout_;
    const std::uint32_t cpus = cpu_count_;
    cpu_count_ = stored_cpus == 0 ? cpus : std::max(stored_cpus, cpus);
    flyrecord_table(reader, top);
    buffers_.push_back(std::move(top));
    for (const auto& [offset, name] : v6_instances_) {
        ByteReader table = reader_at(offset);
        if (!up_to_nul(as_text(table.take(10, "section name"))).starts_with("flyrecord")) {
            table.fail(R"("flyrecord" of buffer ")" + name + "\"");
        }
        BufferData buffer;
        buffer.name = name;
        buffer.clock = clock_;
        buffer.layout = layout_;
        flyrecord_table(table, buffer);
        buffers_.push_back(std::move(buffer));
    }
}

void TraceFile::flyrecord_table(ByteReader& reader, BufferData& buffer) {
    for (std::uint32_t cpu = 0; cpu < cpu_count_; ++cpu) {
        CpuData data;
        data.cpu = cpu;
        data.offset = reader.number<std::uint64_t>("offset of CPU data");
        data.size = reader.number<std::uint64_t>("size of CPU data");
        add_cpu(buffer, std::move(data));
    }
}

void TraceFile::add_cpu(BufferData& buffer, CpuData cpu) {
    const std::uint64_t file = bytes_.size();
    if (cpu.size != 0 && (cpu.offset > file || cpu.size > file - cpu.offset)) {
        const std::string expected = "CPU " + std::to_string(cpu.cpu) + "'s " + std::to_string(cpu.size) +
                                     " bytes of data; the file ends at " + std::to_string(file);
        if (on_error_ == OnError::strict) {
            throw FormatError(path_, cpu.offset, expected);
        }
        const std::uint64_t there = cpu.offset > file ? 0 : file - cpu.offset;
        damage_.bytes += cpu.size - there;
        damage_.note("at byte " + std::to_string(cpu.offset) + ": expected " + expected);
        cpu.size = there;
    }
    if (buffer.compressed && cpu.size != 0) {
        chunk_table(cpu);
    }
    buffer.cpus.push_back(std::move(cpu));
}

void TraceFile::chunk_table(CpuData& cpu) {
    // The size that trace-cmd gives leaves out the four bytes of the count, so the file's end is the bound.
    ByteReader reader = reader_at(cpu.offset);
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
        if (on_error_ == OnError::strict) {
            throw;
        }
        damage_.bytes += bytes_.size() - error.offset();
        damage_.note(error.what());
    }
}

void TraceFile::read_v7(ByteReader& reader) {
    const std::uint64_t at = reader.offset();
    const auto name = reader.text("compression name");
    (void)reader.text("compression version");
    if (name == "zstd") {
        compression_ = Compression::zstd;
    } else if (name == "zlib") {
        compression_ = Compression::zlib;
    } else if (name != "none") {
        throw FormatError(path_, at, R"(compression "none", "zlib" or "zstd")");
    }
    auto offset = reader.number<std::uint64_t>("offset of the options");
    struct Known {
        std::uint16_t id;
        std::uint64_t offset;
    };
    std::vector<Known> sections;
    std::vector<std::vector<std::byte>> buffer_options;
    std::vector<std::uint64_t> buffer_at;
    std::vector<std::uint64_t> seen;
    while (offset != 0) {
        if (std::ranges::find(seen, offset) != seen.end() || seen.size() > 4096) {
            throw FormatError(path_, offset, "an options section that was not read before");
        }
        seen.push_back(offset);
        ByteReader head = reader_at(offset);
        const auto id = head.number<std::uint16_t>("section id");
        const auto flags = head.number<std::uint16_t>("section flags");
        (void)head.number<std::uint32_t>("section name");
        const auto size = head.number<std::uint64_t>("section size");
        if (id != kDone) {
            throw FormatError(path_, offset, "an options section (id 0)");
        }
        std::span<const std::byte> body;
        std::uint64_t body_at = head.offset();
        if ((flags & kSectionCompressed) != 0) {
            const auto packed = head.number<std::uint32_t>("compressed size");
            const auto full = head.number<std::uint32_t>("uncompressed size");
            unpacked_.push_back(unpack(head.offset(), packed, full));
            body = unpacked_.back();
        } else {
            body = head.take(size, "options");
        }
        ByteReader options(body, path_, body_at, big_endian_);
        offset = 0;
        while (options.left() > 0) {
            const auto option_id = options.number<std::uint16_t>("option");
            const auto option_size = options.number<std::uint32_t>("option size");
            const std::uint64_t data_at = options.offset();
            const auto bytes = options.take(option_size, "option");
            ByteReader data(bytes, path_, data_at, big_endian_);
            if (option_id == kDone) {
                offset = option_size >= 8 ? data.number<std::uint64_t>("next options") : 0;
                break;
            }
            if (option_id >= kHeaderInfo && option_id <= kCmdLines) {
                sections.push_back({option_id, data.number<std::uint64_t>("section offset")});
            } else if (option_id == kBuffer) {
                buffer_options.emplace_back(bytes.begin(), bytes.end());
                buffer_at.push_back(data_at);
            } else {
                option(option_id, data);
            }
        }
    }
    // header_page first: the other sections and the buffers depend on it.
    std::ranges::stable_sort(sections, {}, &Known::id);
    for (const Known& section : sections) {
        read_section(section.offset, section.id);
    }
    for (std::size_t i = 0; i < buffer_options.size(); ++i) {
        ByteReader data(buffer_options[i], path_, buffer_at[i], big_endian_);
        buffer_option(data);
    }
}

void TraceFile::read_section(std::uint64_t offset, std::uint16_t want) {
    ByteReader head = reader_at(offset);
    const auto id = head.number<std::uint16_t>("section id");
    const auto flags = head.number<std::uint16_t>("section flags");
    (void)head.number<std::uint32_t>("section name");
    const auto size = head.number<std::uint64_t>("section size");
    if (id != want) {
        throw FormatError(path_, offset, "section " + std::to_string(want) + ", not " + std::to_string(id));
    }
    std::span<const std::byte> body;
    const std::uint64_t body_at = head.offset();
    if ((flags & kSectionCompressed) != 0) {
        const auto packed = head.number<std::uint32_t>("compressed size");
        const auto full = head.number<std::uint32_t>("uncompressed size");
        unpacked_.push_back(unpack(head.offset(), packed, full));
        body = unpacked_.back();
    } else {
        body = head.take(size, "section");
    }
    ByteReader reader(body, path_, body_at, big_endian_);
    switch (id) {
        case kHeaderInfo:
            header_info(reader);
            break;
        case kFtraceEvents:
            ftrace_formats(reader);
            break;
        case kEventFormats:
            event_formats(reader);
            break;
        case kKallsyms:
            kallsyms(reader);
            break;
        case kPrintk:
            printk(reader);
            break;
        default:
            command_lines(reader);
            break;
    }
}

std::vector<std::byte> TraceFile::unpack(std::uint64_t offset, std::uint32_t packed, std::uint32_t size) const {
    if (offset > bytes_.size() || packed > bytes_.size() - offset) {
        throw FormatError(path_, offset, std::to_string(packed) + " compressed bytes");
    }
    if (size > kMaxUnpacked) {
        throw FormatError(path_, offset, "at most 256 MiB in one compressed piece");
    }
    const auto source = bytes_.subspan(static_cast<std::size_t>(offset), packed);
    auto out = decompress(compression_, source, size);
    if (!out) {
        throw FormatError(path_, offset,
                          std::to_string(size) + " bytes out of " + std::to_string(packed) + " compressed ones");
    }
    return std::move(*out);
}

void TraceFile::header_info(ByteReader& reader) {
    if (reader.text("header_page") != "header_page") {
        reader.fail("\"header_page\"");
    }
    const auto page_bytes = reader.number<std::uint64_t>("size of header_page");
    const std::uint64_t at = reader.offset();
    const auto page = as_text(reader.take(page_bytes, "header_page"));
    texts_.header_page = page;
    layout_ = parse_page_layout(page, big_endian_, long_size_, page_size_, path_, at);
    if (reader.text("header_event") != "header_event") {
        reader.fail("\"header_event\"");
    }
    const auto event_bytes = reader.number<std::uint64_t>("size of header_event");
    texts_.header_event = as_text(reader.take(event_bytes, "header_event"));
}

void TraceFile::add_format(std::span<const std::byte> text, std::string_view system, std::uint64_t at) {
    try {
        formats_.push_back(parse_event_format(as_text(text), system, path_, at));
    } catch (const FormatError& error) {
        if (on_error_ == OnError::strict) {
            throw;
        }
        damage_.note(error.what());
    }
}

void TraceFile::ftrace_formats(ByteReader& reader) {
    const auto count = reader.number<std::uint32_t>("number of ftrace formats");
    for (std::uint32_t i = 0; i < count; ++i) {
        const auto size = reader.number<std::uint64_t>("size of a format");
        const std::uint64_t at = reader.offset();
        add_format(reader.take(size, "format"), "ftrace", at);
    }
}

void TraceFile::event_formats(ByteReader& reader) {
    const auto systems = reader.number<std::uint32_t>("number of event systems");
    for (std::uint32_t i = 0; i < systems; ++i) {
        const auto system = reader.text("name of an event system");
        const auto count = reader.number<std::uint32_t>("number of events");
        for (std::uint32_t j = 0; j < count; ++j) {
            const auto size = reader.number<std::uint64_t>("size of a format");
            const std::uint64_t at = reader.offset();
            add_format(reader.take(size, "format"), system, at);
        }
    }
}

void TraceFile::kallsyms(ByteReader& reader) {
    const auto size = reader.number<std::uint32_t>("size of kallsyms");
    texts_.kallsyms = as_text(reader.take(size, "kallsyms"));
}

void TraceFile::printk(ByteReader& reader) {
    const auto size = reader.number<std::uint32_t>("size of printk formats");
    auto text = as_text(reader.take(size, "printk formats"));
    texts_.printk_formats = text;
    // Lines of `0xADDRESS : "format"`.
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size());
        const auto line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        const auto quote = line.find('"');
        const auto last = line.rfind('"');
        std::uint64_t address = 0;
        const std::size_t skip = line.starts_with("0x") ? 2 : 0;
        const auto parsed = std::from_chars(line.data() + skip, line.data() + line.size(), address, 16);
        if (parsed.ec == std::errc() && quote != std::string_view::npos && last > quote) {
            printk_[address] = std::string(line.substr(quote + 1, last - quote - 1));
        }
    }
}

void TraceFile::command_lines(ByteReader& reader) {
    const auto size = reader.number<std::uint64_t>("size of command lines");
    auto text = as_text(reader.take(size, "command lines"));
    texts_.command_lines = text;
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size());
        const auto line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        std::int32_t pid = 0;
        const auto parsed = std::from_chars(line.data(), line.data() + line.size(), pid);
        const auto used = static_cast<std::size_t>(parsed.ptr - line.data());
        if (parsed.ec == std::errc() && used < line.size() && line[used] == ' ') {
            commands_[pid] = std::string(up_to_nul(line.substr(used + 1)));
        }
    }
}

void TraceFile::option(std::uint16_t id, ByteReader& data) {
    switch (id) {
        case kDate:
        case kOffset: {
            const std::string text(up_to_nul(as_text(data.take(data.left(), "offset"))));
            const long long value = std::strtoll(text.c_str(), nullptr, 0);
            // DATE is in microseconds; a value that would overflow is no time.
            const long long scale = id == kDate ? 1000 : 1;
            if (value > std::numeric_limits<std::int64_t>::max() / 4096 ||
                value < std::numeric_limits<std::int64_t>::min() / 4096) {
                data.fail("a time offset");
            }
            time_.offset += value * scale;
            break;
        }
        case kCpuStat:
            cpu_stat(up_to_nul(as_text(data.take(data.left(), "CPU statistics"))));
            break;
        case kBuffer:
            if (version_ == 6) {
                const auto offset = data.number<std::uint64_t>("offset of a buffer");
                v6_instances_.emplace_back(offset, std::string(data.text("buffer name")));
            }
            break;
        case kTraceClock:
            clock_ = selected_clock(up_to_nul(as_text(data.take(data.left(), "clock"))));
            break;
        case kUname:
            uname_ = std::string(up_to_nul(as_text(data.take(data.left(), "uname"))));
            break;
        case kVersion:
            writer_ = std::string(up_to_nul(as_text(data.take(data.left(), "version"))));
            break;
        case kCpuCount:
            cpu_count_ = data.number<std::uint32_t>("CPU count");
            if (cpu_count_ > kMaxCpus) {
                data.fail("at most 65536 CPUs");
            }
            break;
        case kTsc2Nsec:
            time_.mult = data.number<std::uint32_t>("TSC multiplier");
            time_.shift = data.number<std::uint32_t>("TSC shift");
            time_.base = data.number<std::uint64_t>("TSC offset");
            if (time_.shift > 63) {
                data.fail("a shift below 64");
            }
            time_.scaled = true;
            break;
        default:
            break;  // what the format says to skip
    }
}

void TraceFile::buffer_option(ByteReader& data) {
    BufferData buffer;
    const auto offset = data.number<std::uint64_t>("offset of a buffer");
    buffer.name = std::string(data.text("buffer name"));
    buffer.clock = std::string(data.text("buffer clock"));
    buffer.layout = layout_;
    const auto page = data.number<std::uint32_t>("buffer page size");
    if (page < 256 || page > kMaxPage) {
        data.fail("a page size from 256 bytes to 64 MiB");
    }
    buffer.layout.page_size = page;
    if (clock_.empty()) {
        clock_ = buffer.clock;
    }
    ByteReader head = reader_at(offset);
    (void)head.number<std::uint16_t>("section id");
    buffer.compressed = (head.number<std::uint16_t>("section flags") & kSectionCompressed) != 0;
    const auto cpus = data.number<std::uint32_t>("number of CPUs");
    if (cpus > kMaxCpus) {
        data.fail("at most 65536 CPUs");
    }
    for (std::uint32_t i = 0; i < cpus; ++i) {
        CpuData cpu;
        cpu.cpu = data.number<std::uint32_t>("CPU");
        cpu.offset = data.number<std::uint64_t>("offset of CPU data");
        cpu.size = data.number<std::uint64_t>("size of CPU data");
        add_cpu(buffer, std::move(cpu));
    }
    buffers_.push_back(std::move(buffer));
}

void TraceFile::cpu_stat(std::string_view text) {
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
        const auto end = std::min(text.find('\n'), text.size());
        const auto line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.starts_with("Buffer: ")) {
            stat_buffer_ = std::string(line.substr(8));
        } else if (line.starts_with("CPU: ")) {
            CpuLoss loss;
            loss.buffer = stat_buffer_;
            loss.cpu = static_cast<std::uint32_t>(value(line));
            losses_.push_back(loss);
        } else if (!losses_.empty()) {
            CpuLoss& loss = losses_.back();
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

void TraceFile::index_events() {
    for (std::size_t i = 0; i < formats_.size(); ++i) {
        by_id_.try_emplace(formats_[i].id, i);
    }
}

const EventFormat* TraceFile::find_event(std::string_view name) const noexcept {
    std::string_view system;
    if (const auto colon = name.find(':'); colon != std::string_view::npos) {
        system = name.substr(0, colon);
        name = name.substr(colon + 1);
    }
    for (const EventFormat& format : formats_) {
        if (format.name == name && (system.empty() || format.system == system)) {
            return &format;
        }
    }
    return nullptr;
}

const EventFormat* TraceFile::find_event(std::uint32_t id) const noexcept {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : &formats_[found->second];
}

const BufferData& TraceFile::buffer(const std::optional<std::string>& name) const {
    const auto holds = [](const BufferData& buffer) {
        return std::ranges::any_of(buffer.cpus, [](const CpuData& cpu) { return cpu.size != 0; });
    };
    for (const BufferData& buffer : buffers_) {
        if (name ? buffer.name == *name : buffer.name.empty() && holds(buffer)) {
            return buffer;
        }
    }
    if (name) {
        std::string there;
        for (const BufferData& buffer : buffers_) {
            there += (there.empty() ? "'" : ", '") + buffer.name + "'";
        }
        throw InputError("no buffer '" + *name + "' in " + path_, {}, 0,
                         there.empty() ? "none: the file has none" : there);
    }
    for (const BufferData& buffer : buffers_) {
        if (holds(buffer)) {
            return buffer;
        }
    }
    static const BufferData empty;
    return buffers_.empty() ? empty : buffers_.front();
}

const SymbolTable& TraceFile::symbols() const {
    std::call_once(symbols_once_, [this] { symbols_ = SymbolTable(texts_.kallsyms); });
    return symbols_;
}

}  // namespace sampleblk::trace
