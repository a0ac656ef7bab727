// SPDX-License-Identifier: MIT
#include "file_parts.hpp"

#include <string>
#include <utility>

#include "compress.hpp"

namespace sampleblk::trace {

namespace {

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

}  // namespace sampleblk::trace
