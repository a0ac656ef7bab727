// SPDX-License-Identifier: MIT
#include "sampleblk/error.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

namespace sampleblk {

namespace {

std::string system_message(const std::string& operation, const std::string& path, int code, const std::string& detail) {
    std::string text = operation;
    if (!path.empty()) {
        text += " '" + path + "'";
    }
    text += ": ";
    text += std::strerror(code);
    if (!detail.empty()) {
        text += ": " + detail;
    }
    return text;
}

std::string input_message(const std::string& message, const std::string& source, std::uint32_t line,
                          const std::string& expected) {
    std::string text = source;
    if (line != 0) {
        text += ":" + std::to_string(line);
    }
    if (!text.empty()) {
        text += ": ";
    }
    text += message;
    if (!expected.empty()) {
        text += " (expected " + expected + ")";
    }
    return text;
}

std::string unsupported_message(const std::string& feature, const std::string& reason, const std::string& remedy) {
    std::string text = feature + ": " + reason;
    if (!remedy.empty()) {
        text += "; " + remedy;
    }
    return text;
}

}  // namespace

SystemError::SystemError(std::string operation, std::string path, int code, const std::string& detail)
    : std::runtime_error(system_message(operation, path, code, detail)),
      operation_(std::move(operation)),
      path_(std::move(path)),
      code_(code),
      detail_(detail) {}

void throw_errno(std::string_view operation, std::string_view path) {
    const int code = errno;
    throw SystemError(std::string(operation), std::string(path), code);
}

InputError::InputError(std::string message, std::string source, std::uint32_t line, std::string expected)
    : std::runtime_error(input_message(message, source, line, expected)),
      message_(std::move(message)),
      source_(std::move(source)),
      line_(line),
      expected_(std::move(expected)) {}

FormatError::FormatError(std::string path, std::uint64_t offset, std::string expected)
    : std::runtime_error(path + ": at byte " + std::to_string(offset) + ": expected " + expected),
      path_(std::move(path)),
      offset_(offset),
      expected_(std::move(expected)) {}

UnsupportedError::UnsupportedError(std::string feature, std::string reason, std::string remedy)
    : std::runtime_error(unsupported_message(feature, reason, remedy)),
      feature_(std::move(feature)),
      reason_(std::move(reason)),
      remedy_(std::move(remedy)) {}

}  // namespace sampleblk
