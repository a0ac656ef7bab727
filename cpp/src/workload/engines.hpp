// SPDX-License-Identifier: MIT
// Where a worker meets its engine. The virtual calls are per pass and per file, never per I/O.
#pragma once

#include <memory>

#include "io.hpp"

namespace sampleblk::workload {

class Worker;

class EngineInstance {
  public:
    EngineInstance() = default;
    EngineInstance(const EngineInstance&) = delete;
    EngineInstance& operator=(const EngineInstance&) = delete;
    virtual ~EngineInstance() = default;

    // Runs I/Os until the generator has no more or the worker has had enough, and until all that
    // were started have ended.
    virtual void pass(Worker& worker) = 0;

    // Reads back and checks what verify noted (worker.verifier()).
    virtual void verify_pass(Worker& worker) = 0;

    // A file was opened, or is about to be closed.
    virtual void opened(FileState& file) { (void)file; }
    virtual void closing(FileState& file) { (void)file; }
};

// The engine that the worker's options name. Throws SystemError where the kernel refuses to set it
// up.
[[nodiscard]] std::unique_ptr<EngineInstance> make_engine(Worker& worker);
[[nodiscard]] std::unique_ptr<EngineInstance> make_mmap_engine(Worker& worker);
[[nodiscard]] std::unique_ptr<EngineInstance> make_libaio_engine(Worker& worker);
[[nodiscard]] std::unique_ptr<EngineInstance> make_io_uring_engine(Worker& worker);

// Discards on a device, punches a hole in a file; bytes, or -1 with errno.
[[nodiscard]] ssize_t trim_range(const Io& io);

}  // namespace sampleblk::workload
