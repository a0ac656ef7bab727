// SPDX-License-Identifier: MIT
// Records for a perf.data that the kernel does not write: what there was before the recording began.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sampleblk/linux_headers.hpp"

namespace sampleblk::profile {

// One record, padded, with a trailer of zeros as long as sample_id_all makes those of the kernel.
class RecordMaker {
  public:
    RecordMaker(std::uint32_t type, std::uint16_t misc);
    template <typename T>
    RecordMaker& put(T value) {
        return put_bytes(&value, sizeof(value));
    }
    RecordMaker& put_bytes(const void* data, std::size_t size);
    // With its NUL, padded to 8 bytes.
    RecordMaker& put_text(std::string_view text);
    [[nodiscard]] std::vector<std::byte> finish(std::size_t trailer_bytes);

  private:
    std::string bytes_;  // a string's append: of a vector's insert() GCC 12 says that it overflows
};

using TakeRecord = std::function<void(const std::vector<std::byte>&)>;

// The running kernel and its modules: MMAP records. Needs to see addresses in /proc/kallsyms; does nothing where those
// are hidden.
void make_kernel_records(const TakeRecord& take, std::size_t trailer_bytes);
// The threads of `pids` (empty: of all processes) and what those have mapped to execute: FORK, COMM and MMAP2 records.
// The files' paths are added to `files`, with their build ids. Processes that go away meanwhile are passed over.
// `data`: what they can only read, too, as perf's unwinder wants it.
void make_process_records(const std::vector<std::int32_t>& pids, bool data, const TakeRecord& take,
                          std::size_t trailer_bytes, std::map<std::string, std::string>& files);

}  // namespace sampleblk::profile
