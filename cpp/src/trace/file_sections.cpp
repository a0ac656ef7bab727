// SPDX-License-Identifier: MIT
// The header sections: copies of the kernel's own files, with their sizes.
#include <charconv>
#include <span>
#include <string>

#include "file_parts.hpp"

namespace sampleblk::trace {

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
