// SPDX-License-Identifier: MIT
// What the replay-log fuzzer does with one input; a test replays the corpus through it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "sampleblk/error.hpp"
#include "sampleblk/workload/replay_log.hpp"

namespace sampleblk::workload {

// Any bytes are read as an iolog or as blktrace's file, or refused with an error of ours, and no record names a file
// that does not exist.
inline void fuzz_replay_log(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
        const ReplayLog log = text.starts_with("fio version")
                                  ? parse_iolog(text, "fuzz")
                                  : parse_blktrace(std::as_bytes(std::span(data, size)), "fuzz");
        for (const ReplayRecord& record : log.records) {
            if (record.file >= log.paths.size()) {
                __builtin_trap();
            }
        }
    } catch (const FormatError&) {
        return;
    }
}

}  // namespace sampleblk::workload
