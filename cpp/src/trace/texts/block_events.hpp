// SPDX-License-Identifier: MIT
// The block:* events of include/trace/events/block.h, written by what others recorded of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "recording/builder.hpp"

namespace sampleblk::trace {

// What the fields of an event and the text of its line look like; several events share each.
enum class BlockShape : std::uint8_t {
    bio,          // "253,1 W 2048 + 8 [fio]"
    bio_end,      // "253,1 W 2048 + 8 [0]"
    request,      // "253,1 W 4096 () 2048 + 8 [fio]", since 6.9 with "none,0,0" before the task
    request_end,  // "253,1 W () 2048 + 8 [0]", likewise
    split,        // "253,1 W 2048 / 2056 [fio]"
    remap,        // "253,1 W 2048 + 8 <- (8,0) 4096", of a request with how many bios
    plug,         // "[fio]"
    unplug,       // "[fio] 3"
    buffer,       // "253,1 sector=2048 size=4096"
};

// nullopt: not an event that we know.
[[nodiscard]] std::optional<BlockShape> block_shape(std::string_view event);

// The fields of all shapes together.
struct BlockEvent {
    std::uint32_t dev = 0;
    std::uint64_t sector = 0;
    std::uint32_t sectors = 0;
    std::uint64_t bytes = 0;  // of a request, or of a buffer
    std::int32_t error = 0;   // a negative errno
    std::optional<std::uint16_t> ioprio;
    std::string_view rwbs, comm, command;
    std::uint64_t new_sector = 0;       // split
    std::uint32_t old_dev = 0;          // remap
    std::uint64_t old_sector = 0;       // remap
    std::optional<std::uint32_t> bios;  // remap of a request
    std::int32_t requests = 0;          // unplug
};

// Reads the text of an event; false for anything else.
[[nodiscard]] bool parse_block_event(BlockShape shape, std::string_view text, BlockEvent& event);

// "253,1" as the kernel's dev_t; false for anything else.
[[nodiscard]] bool parse_device(std::string_view text, std::uint32_t& device);

// Adds events to a recording; the formats of those that occur come by themselves.
class BlockEventWriter {
  public:
    explicit BlockEventWriter(RecordingBuilder& recording) : recording_(recording) {}

    // `name` is that of a shape's event; false as of RecordingBuilder::add().
    [[nodiscard]] bool add(std::string_view name, BlockShape shape, std::uint32_t cpu, std::uint64_t time,
                           std::int32_t pid, const BlockEvent& event);

  private:
    struct Offsets {
        std::uint32_t dev = 0, sector = 0, sectors = 0, bytes = 0, error = 0, ioprio = 0, rwbs = 0, comm = 0,
                      command = 0, new_sector = 0, old_dev = 0, old_sector = 0, bios = 0, requests = 0;
    };
    struct Format {
        std::uint16_t id = 0;
        std::uint32_t size = 0;
        bool has_ioprio = false, has_bios = false;
        Offsets at;
    };
    Format make(std::string_view name, BlockShape shape, const BlockEvent& event);

    RecordingBuilder& recording_;
    std::map<std::string, Format, std::less<>> formats_;
};

}  // namespace sampleblk::trace
