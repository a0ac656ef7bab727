// SPDX-License-Identifier: MIT
// The options of a trace.dat file: clock, time, machine, writer, what each CPU lost.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "file_parts.hpp"

namespace sampleblk::trace {

class OptionReader {
  public:
    explicit OptionReader(FileContents& file) : file_(file) {}

    // Reads one; those that we do not know are skipped, as the format says.
    void read(std::uint16_t id, ByteReader& data);

    // Of the CPUCOUNT option; 0 when there was none.
    [[nodiscard]] std::uint32_t cpu_count() const noexcept { return cpu_count_; }

  private:
    void time_offset(std::uint16_t id, ByteReader& data);
    void cpu_stat(std::string_view text);

    FileContents& file_;
    std::uint32_t cpu_count_ = 0;
    std::string stat_buffer_;  // whose statistics follow
};

}  // namespace sampleblk::trace
