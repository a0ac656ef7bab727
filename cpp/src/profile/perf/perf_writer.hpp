// SPDX-License-Identifier: MIT
// Writes a perf.data that perf and PerfFile read: header and attributes first, then records as they come, then what the
// header's features tell of the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "sampleblk/fd.hpp"
#include "sampleblk/linux_headers.hpp"
#include "sampleblk/profile/perf_file.hpp"

namespace sampleblk::profile {

class PerfWriter {
  public:
    PerfWriter(const std::string& path, const std::vector<Event>& events);

    void write(std::span<const std::byte> bytes);
    [[nodiscard]] std::uint64_t bytes() const noexcept { return data_bytes_; }
    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    // Ends the data. `files` are those mapped while recording, with their build ids; `tracing_data` may be empty.
    void finish(const std::map<std::string, std::string>& files, const std::vector<std::byte>& tracing_data);

  private:
    void flush();
    [[nodiscard]] std::vector<std::byte> event_description() const;

    std::string path_;
    Fd fd_;
    std::vector<Event> events_;
    std::vector<std::byte> pending_;
    std::uint64_t data_offset_ = 0;
    std::uint64_t data_bytes_ = 0;
    std::vector<std::byte> header_;
};

}  // namespace sampleblk::profile
