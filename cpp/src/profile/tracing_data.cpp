// SPDX-License-Identifier: MIT
#include "tracing_data.hpp"

#include <unistd.h>

#include <bit>
#include <map>
#include <string_view>

#include "byte_reader.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk::profile {

namespace {

constexpr std::string_view kMagic{"\x17\x08\x44tracing", 10};

void put(std::vector<std::byte>& out, const void* data, std::size_t size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    out.insert(out.end(), bytes, bytes + size);
}

template <typename T>
void put_number(std::vector<std::byte>& out, T value) {
    put(out, &value, sizeof(value));
}

void put_text(std::vector<std::byte>& out, std::string_view text) {
    put(out, text.data(), text.size());
    out.push_back(std::byte{0});
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
    std::vector<std::byte> out;
    put(out, kMagic.data(), kMagic.size());
    put_text(out, "0.6");
    out.push_back(std::endian::native == std::endian::big ? std::byte{1} : std::byte{0});
    out.push_back(std::byte{sizeof(long)});
    put_number(out, static_cast<std::uint32_t>(sysconf(_SC_PAGESIZE)));
    for (const char* part : {"header_page", "header_event"}) {
        const std::string text = read_file(tracefs + "/events/" + part);
        put_text(out, part);
        put_number(out, std::uint64_t{text.size()});
        put(out, text.data(), text.size());
    }
    put_number(out, std::uint32_t{0});  // of ftrace's own
    std::map<std::string, std::vector<std::string>> systems;
    for (const std::string& event : events) {
        const auto colon = event.find(':');
        systems[event.substr(0, colon)].push_back(event.substr(colon + 1));
    }
    put_number(out, static_cast<std::uint32_t>(systems.size()));
    for (const auto& [system, names] : systems) {
        put_text(out, system);
        put_number(out, static_cast<std::uint32_t>(names.size()));
        for (const std::string& name : names) {
            std::string path = tracefs;
            path.append("/events/").append(system).append("/").append(name).append("/format");
            const std::string text = read_file(path);
            put_number(out, std::uint64_t{text.size()});
            put(out, text.data(), text.size());
        }
    }
    put_number(out, std::uint32_t{0});  // kallsyms
    put_number(out, std::uint32_t{0});  // printk formats
    put_number(out, std::uint64_t{0});  // command lines, of 0.6
    return out;
}

}  // namespace sampleblk::profile
