// SPDX-License-Identifier: MIT
#include "sampleblk/trace/file.hpp"

#include <algorithm>
#include <utility>

#include "file_parts.hpp"

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
        stamp = static_cast<std::uint64_t>((static_cast<Wide>(stamp) * mult) >> shift) + base;
    }
    return stamp + static_cast<std::uint64_t>(offset);
}

TraceFile::TraceFile(const std::string& path, OnError on_error) : map_(path) {
    contents_.path = path;
    contents_.on_error = on_error;
    contents_.bytes = map_.bytes();
    read();
}

TraceFile::TraceFile(std::vector<std::byte> bytes, std::string name, OnError on_error) : owned_(std::move(bytes)) {
    contents_.path = std::move(name);
    contents_.on_error = on_error;
    contents_.bytes = owned_;
    read();
}

void TraceFile::read() {
    read_header(contents_);
    for (std::size_t i = 0; i < contents_.formats.size(); ++i) {
        by_id_.try_emplace(contents_.formats[i].id, i);
    }
}

std::vector<std::byte> TraceFile::unpack(std::uint64_t offset, std::uint32_t packed, std::uint32_t size) const {
    return trace::unpack(contents_, offset, packed, size);
}

const EventFormat* TraceFile::find_event(std::string_view name) const noexcept {
    std::string_view system;
    if (const auto colon = name.find(':'); colon != std::string_view::npos) {
        system = name.substr(0, colon);
        name = name.substr(colon + 1);
    }
    for (const EventFormat& format : contents_.formats) {
        if (format.name == name && (system.empty() || format.system == system)) {
            return &format;
        }
    }
    return nullptr;
}

const EventFormat* TraceFile::find_event(std::uint32_t id) const noexcept {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : &contents_.formats[found->second];
}

const BufferData& TraceFile::buffer(const std::optional<std::string>& name) const {
    const auto holds = [](const BufferData& buffer) {
        return std::ranges::any_of(buffer.cpus, [](const CpuData& cpu) { return cpu.size != 0; });
    };
    for (const BufferData& buffer : contents_.buffers) {
        if (name ? buffer.name == *name : buffer.name.empty() && holds(buffer)) {
            return buffer;
        }
    }
    if (name) {
        std::string there;
        for (const BufferData& buffer : contents_.buffers) {
            there += (there.empty() ? "'" : ", '") + buffer.name + "'";
        }
        throw InputError("no buffer '" + *name + "' in " + contents_.path, {}, 0,
                         there.empty() ? "none: the file has none" : there);
    }
    for (const BufferData& buffer : contents_.buffers) {
        if (holds(buffer)) {
            return buffer;
        }
    }
    static const BufferData empty;
    return contents_.buffers.empty() ? empty : contents_.buffers.front();
}

const SymbolTable& TraceFile::symbols() const {
    std::call_once(symbols_once_, [this] { symbols_ = SymbolTable(contents_.texts.kallsyms); });
    return symbols_;
}

}  // namespace sampleblk::trace
