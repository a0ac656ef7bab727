// SPDX-License-Identifier: MIT
// What a job sees of its engine. The virtual calls are per pass and per file, never per I/O.
#pragma once

#include <functional>
#include <memory>

#include "pattern/io.hpp"

namespace sampleblk::workload {

class Job;

class EngineInstance {
  public:
    EngineInstance() = default;
    EngineInstance(const EngineInstance&) = delete;
    EngineInstance& operator=(const EngineInstance&) = delete;
    virtual ~EngineInstance() = default;

    // Runs I/Os until there are no more to choose or the job is to end, and until all that were started have ended.
    virtual void pass() = 0;
    // The same for those that read back what verify remembers.
    virtual void verify_pass() = 0;

    // A file was opened, or is about to be closed, or all are.
    virtual void opened(FileState& file) = 0;
    virtual void closing(FileState& file) = 0;
    virtual void closing_all() = 0;
};

using EngineFactory = std::function<std::unique_ptr<EngineInstance>(Job&)>;

// The engine that the job's options name. Throws SystemError where the kernel refuses to set it up.
[[nodiscard]] std::unique_ptr<EngineInstance> make_engine(Job& job);
[[nodiscard]] std::unique_ptr<EngineInstance> make_mmap_engine(Job& job);
[[nodiscard]] std::unique_ptr<EngineInstance> make_libaio_engine(Job& job);
[[nodiscard]] std::unique_ptr<EngineInstance> make_io_uring_engine(Job& job);

}  // namespace sampleblk::workload
