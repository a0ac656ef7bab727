// SPDX-License-Identifier: MIT
// A running job's files: opened, hinted, synced, trimmed, closed, removed, with the calls that fio makes.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/engine.hpp"
#include "engine/job_control.hpp"
#include "pattern/generator.hpp"
#include "pattern/io.hpp"

namespace sampleblk::workload {

class JobFiles final : public FileOpener {
  public:
    JobFiles(const JobPlan& plan, JobControl& control);
    JobFiles(const JobFiles&) = delete;
    JobFiles& operator=(const JobFiles&) = delete;
    ~JobFiles() override;

    // Who is told of files that open and close, and who knows whether something is to be synced. Both outlive this, or
    // are taken away again.
    void attach(EngineInstance* engine, const Generator* generator) noexcept {
        engine_ = engine;
        generator_ = generator;
    }

    [[nodiscard]] std::vector<FileState>& all() noexcept { return files_; }

    // Throws SystemError.
    void open(FileState& file) override;
    void close(FileState& file) override;
    // Drops the file's part from the page cache, as far as we may.
    void invalidate(FileState& file) override;
    [[nodiscard]] std::size_t open_files() const noexcept override { return open_; }

    // fsync, fdatasync or sync_file_range; 0, or -1 with errno.
    [[nodiscard]] int sync(FileState& file, SyncKind kind) const noexcept;
    void close_all();
    // Removes those that this run made, unless something else has taken their place.
    void unlink_made();
    // Fills the page cache (pre_read). Throws SystemError.
    void pre_read();

  private:
    const JobOptions& options_;
    JobControl& control_;
    std::vector<FileState> files_;
    std::vector<FileIdentity> made_;
    std::size_t open_ = 0;
    EngineInstance* engine_ = nullptr;
    const Generator* generator_ = nullptr;
};

// Discards on a device, punches a hole in a file; bytes, or -1 with errno.
[[nodiscard]] ssize_t trim_range(const Io& io) noexcept;

}  // namespace sampleblk::workload
