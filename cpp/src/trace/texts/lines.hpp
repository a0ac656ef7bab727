// SPDX-License-Identifier: MIT
// The lines of a text that may be of any length.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "file/text.hpp"
#include "sampleblk/interrupt.hpp"

namespace sampleblk::trace {

// One line after another, without its end: while (lines.next()) { lines.line() }. Can be interrupted.
class Lines {
  public:
    explicit Lines(std::string_view text, std::size_t from = 0)
        : text_(text),
          next_(std::min(from, text.size())),
          number_(static_cast<std::uint64_t>(
              std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(next_), '\n'))) {}

    [[nodiscard]] bool next() {
        if (next_ >= text_.size()) {
            return false;
        }
        if ((++number_ & 0xfff) == 0) {
            check_interrupt();
        }
        at_ = next_;
        const auto end = std::min(text_.find('\n', at_), text_.size());
        next_ = end + 1;
        line_ = text_.substr(at_, end - at_);
        if (line_.ends_with('\r')) {
            line_.remove_suffix(1);
        }
        return true;
    }

    [[nodiscard]] std::string_view line() const noexcept { return line_; }

    // That the line is not what was `expected`, of the file `source`.
    [[nodiscard]] FormatError error(const std::string& source, const std::string& expected) const {
        return line_error(source, at_, number_, line_, expected);
    }

  private:
    std::string_view text_;
    std::string_view line_;
    std::size_t at_ = 0;
    std::size_t next_;
    std::uint64_t number_;  // from 1
};

}  // namespace sampleblk::trace
