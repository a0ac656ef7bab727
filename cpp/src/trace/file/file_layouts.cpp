// SPDX-License-Identifier: MIT
// The two layouts of trace.dat. Version 6 has everything in a fixed order, with instances behind options that point at
// them; version 7 is a chain of option sections that point at all the others, each compressed or not.
#include <algorithm>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "file/file_parts.hpp"

namespace sampleblk::trace {

namespace {

struct Instance {
    std::uint64_t offset;
    std::string name;
};

void buffer_table(ByteReader& reader, FileContents& file, const std::string& name, std::uint32_t cpus) {
    BufferData buffer;
    buffer.name = name;
    buffer.clock = file.clock;
    buffer.layout = file.layout;
    for (std::uint32_t cpu = 0; cpu < cpus; ++cpu) {
        CpuData data;
        data.cpu = cpu;
        data.offset = reader.number<std::uint64_t>("offset of CPU data");
        data.size = reader.number<std::uint64_t>("size of CPU data");
        add_cpu(file, buffer, std::move(data));
    }
    add_buffer(file, std::move(buffer));
}

std::string_view section_name(ByteReader& reader) {
    return up_to_nul(as_text(reader.take(10, "section name")));
}

}  // namespace

void read_v6(ByteReader& reader, FileContents& file) {
    for (const std::uint16_t id : {kHeaderInfo, kFtraceEvents, kEventFormats, kKallsyms, kPrintk, kCmdLines}) {
        read_header_section(id, reader, file);
    }
    const auto stored_cpus = reader.number<std::uint32_t>("CPU count");
    if (stored_cpus > kMaxCpus) {
        reader.fail("at most 65536 CPUs");
    }
    OptionReader options(file);
    std::vector<Instance> instances;
    auto kind = section_name(reader);
    if (kind.starts_with("options")) {
        for (;;) {
            const auto id = reader.number<std::uint16_t>("option");
            if (id == kDone) {
                break;
            }
            const auto size = reader.number<std::uint32_t>("option size");
            const std::uint64_t at = reader.offset();
            ByteReader data(reader.take(size, "option"), file.path, at, file.big_endian);
            if (id == kBuffer) {
                const auto offset = data.number<std::uint64_t>("offset of a buffer");
                instances.push_back({offset, printable(data.text("buffer name"))});
            } else {
                options.read(id, data);
            }
        }
        kind = section_name(reader);
    }
    if (kind.starts_with("latency")) {
        throw UnsupportedError("reading " + file.path, "it holds the text of a latency tracer and no events",
                               "record without a latency tracer");
    }
    if (!kind.starts_with("flyrecord")) {
        reader.fail(R"("options", "latency" or "flyrecord")");
    }
    // The instances' tables are read last: an option may still change the number of CPUs.
    const std::uint32_t cpus = std::max(stored_cpus, options.cpu_count());
    buffer_table(reader, file, {}, cpus);
    for (const Instance& instance : instances) {
        ByteReader table = reader_at(file, instance.offset);
        if (!section_name(table).starts_with("flyrecord")) {
            table.fail(R"("flyrecord" of buffer ")" + instance.name + "\"");
        }
        buffer_table(table, file, instance.name, cpus);
    }
}

namespace {

constexpr std::uint16_t kSectionCompressed = 1;

struct Bytes {
    std::span<const std::byte> bytes;
    std::uint64_t at;  // in the file
};

struct SectionPlace {
    std::uint16_t id;
    std::uint64_t offset;
};

// What the options point at.
struct Places {
    std::vector<SectionPlace> sections;
    std::vector<Bytes> buffers;  // their options
};

// The body of the section at `offset`, unpacked, which must be the one with that id.
Bytes section_at(FileContents& file, std::uint64_t offset, std::uint16_t want) {
    ByteReader head = reader_at(file, offset);
    const auto id = head.number<std::uint16_t>("section id");
    const auto flags = head.number<std::uint16_t>("section flags");
    (void)head.number<std::uint32_t>("section name");
    const auto size = head.number<std::uint64_t>("section size");
    if (id != want) {
        throw FormatError(file.path, offset,
                          want == kDone ? "an options section (id 0)"
                                        : "section " + std::to_string(want) + ", not " + std::to_string(id));
    }
    const std::uint64_t at = head.offset();
    if ((flags & kSectionCompressed) == 0) {
        return {head.take(size, want == kDone ? "options" : "section"), at};
    }
    const auto packed = head.number<std::uint32_t>("compressed size");
    const auto full = head.number<std::uint32_t>("uncompressed size");
    file.unpacked.push_back(unpack(file, head.offset(), packed, full));
    return {file.unpacked.back(), at};
}

Places read_options(FileContents& file, std::uint64_t offset) {
    Places places;
    OptionReader reader(file);
    std::vector<std::uint64_t> seen;
    while (offset != 0) {
        if (std::ranges::find(seen, offset) != seen.end() || seen.size() > 4096) {
            throw FormatError(file.path, offset, "an options section that was not read before");
        }
        seen.push_back(offset);
        const Bytes section = section_at(file, offset, kDone);
        ByteReader options(section.bytes, file.path, section.at, file.big_endian);
        offset = 0;
        while (options.left() > 0) {
            const auto id = options.number<std::uint16_t>("option");
            const auto size = options.number<std::uint32_t>("option size");
            const std::uint64_t at = options.offset();
            const auto bytes = options.take(size, "option");
            ByteReader data(bytes, file.path, at, file.big_endian);
            if (id == kDone) {
                offset = size >= 8 ? data.number<std::uint64_t>("next options") : 0;
                break;
            }
            if (id >= kHeaderInfo && id <= kCmdLines) {
                places.sections.push_back({id, data.number<std::uint64_t>("section offset")});
            } else if (id == kBuffer) {
                places.buffers.push_back({bytes, at});
            } else {
                reader.read(id, data);
            }
        }
    }
    return places;
}

void read_buffer(ByteReader& data, FileContents& file) {
    BufferData buffer;
    const auto offset = data.number<std::uint64_t>("offset of a buffer");
    buffer.name = printable(data.text("buffer name"));
    buffer.clock = selected_clock(data.text("buffer clock"));
    buffer.layout = file.layout;
    const auto page = data.number<std::uint32_t>("buffer page size");
    if (page < 256 || page > kMaxPage) {
        data.fail("a page size from 256 bytes to 64 MiB");
    }
    buffer.layout.page_size = page;
    if (file.clock.empty()) {
        file.clock = buffer.clock;
    }
    ByteReader head = reader_at(file, offset);
    (void)head.number<std::uint16_t>("section id");
    buffer.compressed = (head.number<std::uint16_t>("section flags") & kSectionCompressed) != 0;
    const auto cpus = data.number<std::uint32_t>("number of CPUs");
    if (cpus > kMaxCpus) {
        data.fail("at most 65536 CPUs");
    }
    std::unordered_set<std::uint32_t> seen;
    for (std::uint32_t i = 0; i < cpus; ++i) {
        const std::uint64_t at = data.offset();
        CpuData cpu;
        cpu.cpu = data.number<std::uint32_t>("CPU");
        cpu.offset = data.number<std::uint64_t>("offset of CPU data");
        cpu.size = data.number<std::uint64_t>("size of CPU data");
        if (cpu.cpu < kMaxCpus && seen.insert(cpu.cpu).second) {
            add_cpu(file, buffer, std::move(cpu));
            continue;
        }
        const FormatError error(file.path, at, "a CPU below 65536, each once, not " + std::to_string(cpu.cpu));
        if (file.on_error == OnError::strict) {
            throw error;
        }
        file.damage.bytes += std::min<std::uint64_t>(cpu.size, file.bytes.size());
        file.damage.note(error.what());
    }
    add_buffer(file, std::move(buffer));
}

}  // namespace

void read_v7(ByteReader& reader, FileContents& file) {
    const std::uint64_t at = reader.offset();
    const auto name = reader.text("compression name");
    (void)reader.text("compression version");
    if (name == "zstd") {
        file.compression = Compression::zstd;
    } else if (name == "zlib") {
        file.compression = Compression::zlib;
    } else if (name != "none") {
        throw FormatError(file.path, at, R"(compression "none", "zlib" or "zstd")");
    }
    Places places = read_options(file, reader.number<std::uint64_t>("offset of the options"));
    // header_page first: the other sections and the buffers depend on it.
    std::ranges::stable_sort(places.sections, {}, &SectionPlace::id);
    for (const SectionPlace& place : places.sections) {
        const Bytes section = section_at(file, place.offset, place.id);
        ByteReader body(section.bytes, file.path, section.at, file.big_endian);
        read_header_section(place.id, body, file);
    }
    for (const Bytes& option : places.buffers) {
        ByteReader data(option.bytes, file.path, option.at, file.big_endian);
        read_buffer(data, file);
    }
}

}  // namespace sampleblk::trace
