// SPDX-License-Identifier: MIT
// Reads an ftrace buffer while it fills: one thread a CPU splices whole pages from trace_pipe_raw to a spool file, so
// memory stays bounded by the ring buffer itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sampleblk::trace {

struct SpoolFile {
    std::uint32_t cpu = 0;
    std::string path;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;  // where they begin in the file
};

class BufferReaders {
  public:
    // Opens per_cpu/cpu*/trace_pipe_raw of an instance (or the top level) and starts the threads, which write
    // SPOOL/cpuN. Throws SystemError.
    BufferReaders(const std::string& instance_dir, const std::string& spool_dir);
    BufferReaders(const BufferReaders&) = delete;
    BufferReaders& operator=(const BufferReaders&) = delete;
    BufferReaders(BufferReaders&&) = delete;
    BufferReaders& operator=(BufferReaders&&) = delete;
    ~BufferReaders();

    // Ends the threads and takes what is left in the buffer; call it with tracing off. Throws what a thread met.
    // Returns the spool files; the second call returns the same.
    const std::vector<SpoolFile>& stop();

    // The threads' ids, which a recording of all tasks leaves out.
    [[nodiscard]] std::vector<int> thread_ids() const;
    // Bytes spooled so far.
    [[nodiscard]] std::uint64_t bytes() const noexcept;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace sampleblk::trace
