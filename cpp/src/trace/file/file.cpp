// SPDX-License-Identifier: MIT
#include "sampleblk/trace/file.hpp"

#include <algorithm>
#include <utility>

#include "file/file_parts.hpp"

namespace sampleblk::trace {

namespace {

constexpr std::string_view kMagic{"\x17\x08\x44tracing", 10};

// What both versions begin with; it says how to read the rest.
void read_header(FileContents& file) {
    ByteReader reader(file.bytes, file.path, 0, false);
    if (as_text(file.bytes.first(std::min(file.bytes.size(), kMagic.size()))) != kMagic) {
        throw FormatError(file.path, 0, "the magic of a trace.dat file (0x17 0x08 0x44 \"tracing\")");
    }
    (void)reader.take(kMagic.size(), "magic");
    const std::uint64_t version_at = reader.offset();
    const auto version = reader.text("version");
    if (version != "6" && version != "7") {
        throw FormatError(file.path, version_at, "version 6 or 7, not \"" + std::string(version.substr(0, 16)) + "\"");
    }
    file.version = version == "6" ? 6 : 7;
    const auto order = reader.number<std::uint8_t>("byte order");
    if (order > 1) {
        throw FormatError(file.path, reader.offset() - 1, "byte order 0 (little) or 1 (big)");
    }
    file.big_endian = order == 1;
    reader.set_big_endian(file.big_endian);
    file.long_size = reader.number<std::uint8_t>("long size");
    if (file.long_size != 4 && file.long_size != 8) {
        throw FormatError(file.path, reader.offset() - 1, "a long of 4 or 8 bytes");
    }
    file.page_size = reader.number<std::uint32_t>("page size");
    if (file.page_size < 256 || file.page_size > kMaxPage) {
        throw FormatError(file.path, reader.offset() - 4, "a page size from 256 bytes to 64 MiB");
    }
    file.layout = parse_page_layout({}, file.big_endian, file.long_size, file.page_size, file.path, 0);
    if (file.version == 6) {
        read_v6(reader, file);
    } else {
        read_v7(reader, file);
    }
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
        stamp = static_cast<std::uint64_t>((static_cast<Wide>(stamp) * mult) >> shift);
    }
    return stamp + static_cast<std::uint64_t>(offset);
}

TraceFile::TraceFile(const std::string& path, OnError on_error)
    : map_(path), contents_(std::make_unique<FileContents>()) {
    contents_->path = path;
    contents_->on_error = on_error;
    contents_->bytes = map_.bytes();
    read();
}

TraceFile::TraceFile(std::vector<std::byte> bytes, std::string name, OnError on_error)
    : owned_(std::move(bytes)), contents_(std::make_unique<FileContents>()) {
    contents_->path = std::move(name);
    contents_->on_error = on_error;
    contents_->bytes = owned_;
    read();
}

TraceFile::~TraceFile() = default;

const std::string& TraceFile::path() const noexcept {
    return contents_->path;
}

int TraceFile::version() const noexcept {
    return contents_->version;
}

bool TraceFile::big_endian() const noexcept {
    return contents_->big_endian;
}

std::uint32_t TraceFile::page_size() const noexcept {
    return contents_->page_size;
}

std::uint8_t TraceFile::long_size() const noexcept {
    return contents_->long_size;
}

OnError TraceFile::on_error() const noexcept {
    return contents_->on_error;
}

std::span<const std::byte> TraceFile::bytes() const noexcept {
    return contents_->bytes;
}

const std::vector<EventFormat>& TraceFile::formats() const noexcept {
    return contents_->formats;
}

const std::vector<BufferData>& TraceFile::buffers() const noexcept {
    return contents_->buffers;
}

const std::unordered_map<std::int32_t, std::string>& TraceFile::commands() const noexcept {
    return contents_->commands;
}

const std::map<std::uint64_t, std::string>& TraceFile::printk_formats() const noexcept {
    return contents_->printk_formats;
}

const std::vector<CpuLoss>& TraceFile::losses() const noexcept {
    return contents_->losses;
}

const std::string& TraceFile::uname() const noexcept {
    return contents_->uname;
}

const std::string& TraceFile::writer() const noexcept {
    return contents_->writer;
}

const std::string& TraceFile::clock() const noexcept {
    return contents_->clock;
}

const TimeConversion& TraceFile::time() const noexcept {
    return contents_->time;
}

const std::vector<FileOption>& TraceFile::time_options() const noexcept {
    return contents_->time_options;
}

const HeaderTexts& TraceFile::texts() const noexcept {
    return contents_->texts;
}

const Damage& TraceFile::header_damage() const noexcept {
    return contents_->damage;
}

void TraceFile::read() {
    read_checked([this] { read_header(*contents_); }, [this] { check_length(); });
    for (std::size_t i = 0; i < contents_->formats.size(); ++i) {
        by_id_.try_emplace(contents_->formats[i].id, i);
    }
}

std::vector<std::byte> TraceFile::unpack(std::uint64_t offset, std::uint32_t packed, std::uint32_t size) const {
    return trace::unpack(*contents_, offset, packed, size);
}

const EventFormat* TraceFile::find_event(std::string_view name) const noexcept {
    std::string_view system;
    if (const auto colon = name.find(':'); colon != std::string_view::npos) {
        system = name.substr(0, colon);
        name = name.substr(colon + 1);
    }
    for (const EventFormat& format : contents_->formats) {
        if (format.name == name && (system.empty() || format.system == system)) {
            return &format;
        }
    }
    return nullptr;
}

const EventFormat* TraceFile::find_event(std::uint32_t id) const noexcept {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : &contents_->formats[found->second];
}

std::vector<const BufferData*> TraceFile::select(const std::optional<std::string>& name) const {
    std::vector<const BufferData*> out;
    for (const BufferData& buffer : contents_->buffers) {
        const bool holds = std::ranges::any_of(buffer.cpus, [](const CpuData& cpu) { return cpu.size != 0; });
        if (name ? buffer.name == *name : holds) {
            out.push_back(&buffer);
        }
    }
    const auto shown = [](const BufferData& buffer) { return "'" + buffer.name + "'"; };
    if (name && out.empty()) {
        std::string there;
        for (const BufferData& buffer : contents_->buffers) {
            there += (there.empty() ? "" : ", ") + shown(buffer);
        }
        throw InputError("no buffer '" + *name + "' in " + contents_->path, {}, 0,
                         there.empty() ? "none: the file has none" : there);
    }
    for (const BufferData* buffer : out) {
        if (buffer->clock != out.front()->clock) {
            throw InputError("buffers of different clocks in " + contents_->path, {}, 0,
                             "one of them, buffer=" + shown(*out.front()) + " (" + out.front()->clock +
                                 ") or buffer=" + shown(*buffer) + " (" + buffer->clock + ")");
        }
    }
    return out;
}

const std::string& TraceFile::clock(const std::optional<std::string>& buffer) const {
    const auto chosen = select(buffer);
    return chosen.empty() || chosen.front()->clock.empty() ? contents_->clock : chosen.front()->clock;
}

std::string_view TraceFile::time_unit(const std::optional<std::string>& buffer) const {
    if (contents_->time.scaled) {
        return "ns";
    }
    // trace_clocks[] of kernel/trace/trace.c: those without in_ns.
    const std::string& name = clock(buffer);
    const bool ticks = name == "counter" || name == "uptime" || name == "x86-tsc" || name == "ppc-tb";
    return ticks ? "ticks" : "ns";
}

void TraceFile::require_ns(const std::optional<std::string>& buffer, std::string_view what) const {
    if (time_unit(buffer) != "ns") {
        throw UnsupportedError(
            std::string(what), contents_->path + " has times in ticks of the clock " + clock(buffer),
            "record with the clock mono, or trace-cmd record -C tsc2nsec, which says how long a tick is");
    }
}

const SymbolTable& TraceFile::symbols() const {
    std::call_once(symbols_once_, [this] {
        symbols_ = SymbolTable(contents_->texts.kallsyms);
        check_length();
    });
    return symbols_;
}

}  // namespace sampleblk::trace
