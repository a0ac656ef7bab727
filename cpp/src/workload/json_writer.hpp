// SPDX-License-Identifier: MIT
// JSON as fio prints it: two blanks a level, `"key" : value`, floats with six decimals.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace sampleblk::workload {

class JsonWriter {
  public:
    void begin_object(std::string_view key = {}) { open(key, '{'); }
    void end_object() { close('}'); }
    void begin_array(std::string_view key = {}) { open(key, '['); }
    void end_array() { close(']'); }

    void value(std::string_view key, std::uint64_t number) { item(key, std::to_string(number)); }
    void value(std::string_view key, std::int64_t number) { item(key, std::to_string(number)); }
    void value(std::string_view key, std::uint32_t number) { item(key, std::to_string(number)); }
    void value(std::string_view key, std::int32_t number) { item(key, std::to_string(number)); }
    void value(std::string_view key, bool truth) { item(key, truth ? "true" : "false"); }
    void value(std::string_view key, double number) {
        std::array<char, 352> text{};  // the longest double has 309 digits before its point
        // JSON has no infinities.
        const int length = std::snprintf(text.data(), text.size(), "%f", std::isfinite(number) ? number : 0.0);
        item(key, {text.data(), static_cast<std::size_t>(length)});
    }
    void text(std::string_view key, std::string_view value) { item(key, quoted(value)); }

    [[nodiscard]] std::string take() { return std::move(out_) + "\n"; }

  private:
    static std::string quoted(std::string_view text) {
        std::string out = "\"";
        for (const char c : text) {
            if (c == '"' || c == '\\') {
                out += '\\';
                out += c;
            } else if (static_cast<unsigned char>(c) < 0x20) {
                std::array<char, 8> escape{};
                std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
                out += escape.data();
            } else {
                out += c;
            }
        }
        return out + "\"";
    }

    void lead(std::string_view key) {
        if (!first_) {
            out_ += ",";
        }
        if (depth_ != 0) {
            out_ += "\n";
            out_.append(depth_ * 2, ' ');
        }
        if (!key.empty()) {
            out_ += quoted(key) + " : ";
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
