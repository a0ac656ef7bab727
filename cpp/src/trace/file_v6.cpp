// SPDX-License-Identifier: MIT
// Version 6: everything in a fixed order, instances behind options that point at them.
#include <algorithm>
#include <string>
#include <utility>

#include "file_options.hpp"
#include "file_parts.hpp"

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
    file.buffers.push_back(std::move(buffer));
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

}  // namespace sampleblk::trace
