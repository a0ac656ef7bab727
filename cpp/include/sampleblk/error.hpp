// SPDX-License-Identifier: MIT
// The errors of the core. Each keeps what a caller needs to act on it: the operation, the path, the
// errno, the line, the offset. The bindings turn them into Python exceptions
// (cpp/bindings/register_error.cpp).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sampleblk {

// A system call, or a read or write of a control file, that the kernel refused.
class SystemError : public std::runtime_error {
  public:
    // `code` is an errno value; `path` may be empty where no file is concerned; `detail` is what
    // the kernel or we know beyond the errno (an error_log line, a remedy).
    SystemError(std::string operation, std::string path, int code, const std::string& detail = {});

    [[nodiscard]] const std::string& operation() const noexcept { return operation_; }
    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] int code() const noexcept { return code_; }
    [[nodiscard]] const std::string& detail() const noexcept { return detail_; }

  private:
    std::string operation_;
    std::string path_;
    int code_;
    std::string detail_;
};

// Throws SystemError with the current errno.
[[noreturn]] void throw_errno(std::string_view operation, std::string_view path = {});

// Input written by a user (a job file, an option, a size) that we cannot take.
class InputError : public std::runtime_error {
  public:
    // `source` names the file or option, `line` counts from 1 (0: not a file), `expected` says what
    // would be accepted; each may be empty.
    InputError(std::string message, std::string source = {}, std::uint32_t line = 0, std::string expected = {});

    [[nodiscard]] const std::string& message() const noexcept { return message_; }
    [[nodiscard]] const std::string& source() const noexcept { return source_; }
    [[nodiscard]] std::uint32_t line() const noexcept { return line_; }
    [[nodiscard]] const std::string& expected() const noexcept { return expected_; }

  private:
    std::string message_;
    std::string source_;
    std::uint32_t line_;
    std::string expected_;
};

// A recording that is truncated, corrupt or not what its name says.
class FormatError : public std::runtime_error {
  public:
    // `offset` is in bytes from the start of `path`; `expected` says what should have been there.
    FormatError(std::string path, std::uint64_t offset, std::string expected);

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
    [[nodiscard]] const std::string& expected() const noexcept { return expected_; }

  private:
    std::string path_;
    std::uint64_t offset_;
    std::string expected_;
};

// Something this kernel, machine or build cannot do, and how to get it.
class UnsupportedError : public std::runtime_error {
  public:
    UnsupportedError(std::string feature, std::string reason, std::string remedy = {});

    [[nodiscard]] const std::string& feature() const noexcept { return feature_; }
    [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
    [[nodiscard]] const std::string& remedy() const noexcept { return remedy_; }

  private:
    std::string feature_;
    std::string reason_;
    std::string remedy_;
};

}  // namespace sampleblk
