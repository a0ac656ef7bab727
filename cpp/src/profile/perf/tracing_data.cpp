// SPDX-License-Identifier: MIT
#include "perf/tracing_data.hpp"

#include <unistd.h>

#include <bit>
#include <cstring>
#include <map>

#include "perf/byte_reader.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk::profile {

namespace {

constexpr std::string_view kMagic{"\x17\x08\x44tracing", 10};

// In a string: of a vector's insert() GCC 12 says that it overflows.
template <typename T>
void put_number(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_text(std::string& out, std::string_view text) {
    out.append(text).push_back('\0');
}

}  // namespace

TracingData parse_tracing_data(std::span<const std::byte> bytes, const std::string& source, std::uint64_t base) {
    TracingData out;
    ByteReader in(bytes);
    const auto broken = [&out](const char* expected) {
        out.damaged = true;
        out.expected = expected;
        return out;
    };
    const auto magic = in.take(kMagic.size());
    if (magic.size() != kMagic.size() || std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0) {
        return broken("the magic of tracing data");
    }
    (void)in.c_string();  // version
    in.skip(1 + 1 + 4);   // byte order and long size of the machine, its page size
    for (const char* part : {"header_page", "header_event"}) {
        if (in.c_string() != part) {
            return broken("header_page and header_event in tracing data");
        }
        in.skip_many(in.number<std::uint64_t>(), 1);
    }
    const auto text_of = [](std::span<const std::byte> part) {
        return std::string_view(reinterpret_cast<const char*>(part.data()), part.size());
    };
    const auto add_formats = [&](const std::string& system, std::uint32_t count) {
        for (; count > 0 && in.left() > 0; --count) {
            const auto size = in.number<std::uint64_t>();
            const auto part = in.take_many(size, 1);
            if (!part.empty()) {
                try {
                    auto format = trace::parse_event_format(
                        text_of(part), system, source, base + static_cast<std::uint64_t>(part.data() - bytes.data()));
                    out.formats.push_back(std::move(format));
                } catch (const FormatError& error) {
                    out.damaged = true;
                    out.expected = error.expected();
                }
            }
        }
    };
    add_formats("ftrace", in.number<std::uint32_t>());
    for (auto systems = in.number<std::uint32_t>(); systems > 0 && in.left() > 0; --systems) {
        const std::string system = in.c_string();
        add_formats(system, in.number<std::uint32_t>());
    }
    const auto symbols = in.take(in.number<std::uint32_t>());
    out.kallsyms.assign(text_of(symbols));
    if (in.overrun()) {
        return broken("tracing data as long as its parts say");
    }
    return out;
}

std::vector<std::byte> make_tracing_data(const std::string& tracefs, const std::vector<std::string>& events) {
    std::map<std::string, std::vector<std::string>> formats;  // by system
    for (const std::string& event : events) {
        const auto colon = event.find(':');
        const std::string system = event.substr(0, colon);
        std::string path = tracefs;
        path.append("/events/").append(system).append("/").append(event, colon + 1).append("/format");
        formats[system].push_back(read_file(path));
    }
    std::string out(kMagic);
    put_text(out, "0.6");
    out.push_back(std::endian::native == std::endian::big ? '\1' : '\0');
    out.push_back(static_cast<char>(sizeof(long)));
    put_number(out, static_cast<std::uint32_t>(sysconf(_SC_PAGESIZE)));
    const auto put_part = [&out](const std::string& text) {
        put_number(out, std::uint64_t{text.size()});
        out.append(text);
    };
    put_text(out, "header_page");
    put_part(read_file(tracefs + "/events/header_page"));
    put_text(out, "header_event");
    put_part(read_file(tracefs + "/events/header_event"));
    put_number(out, std::uint32_t{0});  // of ftrace's own
    put_number(out, static_cast<std::uint32_t>(formats.size()));
    for (const auto& [system, texts] : formats) {
        put_text(out, system);
        put_number(out, static_cast<std::uint32_t>(texts.size()));
        for (const std::string& text : texts) {
            put_part(text);
        }
    }
    put_number(out, std::uint32_t{0});  // symbols
    put_number(out, std::uint32_t{0});  // printk formats
    put_number(out, std::uint64_t{0});  // command lines, of 0.6
    const auto bytes = std::as_bytes(std::span(out));
    return {bytes.begin(), bytes.end()};
}

}  // namespace sampleblk::profile
