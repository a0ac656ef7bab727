// SPDX-License-Identifier: MIT
// JSON as fio prints it, whatever the locale: two blanks per level, `"key" : value`, floats with six decimals.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "sampleblk/text.hpp"

namespace sampleblk::workload {

class JsonWriter {
  public:
    void begin_object(std::string_view key = {}) { open(key, '{'); }
    void end_object() { close('}'); }
    void begin_array(std::string_view key = {}) { open(key, '['); }
    void end_array() { close(']'); }

    template <std::integral T>
    void value(std::string_view key, T number) {
        item(key, fmt::format("{}", number));
    }
    // JSON has no infinities.
    void value(std::string_view key, double number) {
        item(key, fmt::format("{:f}", std::isfinite(number) ? number : 0.0));
    }
    void text(std::string_view key, std::string_view value) { item(key, json_text(value)); }

    [[nodiscard]] std::string take() { return std::move(out_) + "\n"; }

  private:
    void lead(std::string_view key) {
        if (!first_) {
            out_ += ",";
        }
        if (depth_ != 0) {
            out_ += "\n";
            out_.append(depth_ * 2, ' ');
        }
        if (!key.empty()) {
            out_ += json_text(key) + " : ";
        }
        first_ = false;
    }
    void item(std::string_view key, std::string_view text) {
        lead(key);
        out_ += text;
    }
    void open(std::string_view key, char bracket) {
        lead(key);
        out_ += bracket;
        ++depth_;
        first_ = true;
    }
    void close(char bracket) {
        --depth_;
        if (!first_) {
            out_ += "\n";
            out_.append(depth_ * 2, ' ');
        }
        out_ += bracket;
        first_ = false;
    }

    std::string out_;
    std::size_t depth_ = 0;
    bool first_ = true;
};

}  // namespace sampleblk::workload
