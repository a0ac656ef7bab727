// SPDX-License-Identifier: MIT
// What the fuzzer of the driver's journal does with one input; a test replays the corpus through it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "answers.hpp"
#include "sampleblk/crash/log.hpp"
#include "sampleblk/device_journal.hpp"
#include "scratch.hpp"

namespace sampleblk::fuzz {

// Any bytes are a journal, or refused with an error of ours; each entry can be looked at, the disk rebuilt, and what
// is exported for dm-log-writes can be read again.
inline int device_journal(const std::uint8_t* data, std::size_t size) {
    const std::string path = ScratchFolder::one().file("log-writes");
    (void)answers([&] {
        const DeviceJournal journal(copy_of(data, size), "fuzz");
        if (journal.table().rows() != journal.size()) {
            std::abort();
        }
        for (std::size_t i = 0; i < journal.size(); ++i) {
            (void)journal.chunks(i);
            (void)journal.text(i);
        }
        constexpr std::uint64_t sectors = 64;
        (void)journal.replay(UINT64_MAX, 0, sectors);
        for (const std::uint32_t sector_bytes : {512U, 4096U}) {
            if (answers([&] { (void)journal.export_log_writes(path, sector_bytes); })) {
                (void)answers([&] { (void)crash::Log::read(path); });
            }
        }
    });
    return 0;
}

}  // namespace sampleblk::fuzz
