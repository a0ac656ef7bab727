// SPDX-License-Identifier: MIT
// The lines of /proc/kallsyms (kernel/kallsyms.c): "ffffffff81000000 T _text", modules' with "\t[name]" behind.
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>

#include "sampleblk/interrupt.hpp"

namespace sampleblk {

// Views into the text.
struct KallsymsLine {
    std::uint64_t address = 0;
    char type = 0;
    std::string_view name;
    std::string_view module;  // in its brackets; empty for the kernel's own

    [[nodiscard]] std::string_view module_name() const noexcept {
        return module.empty() ? module : module.substr(1, module.size() - 2);
    }
    // Per-CPU offsets and constants, not places in memory.
    [[nodiscard]] bool absolute() const noexcept { return type == 'a' || type == 'A'; }
};

// Calls `take` for each line with an address, a type and a name, until it returns false. Lines of another form are
// passed over. Throws what check_interrupt() throws.
template <typename Take>
void for_each_kallsyms_line(std::string_view text, Take&& take) {
    std::size_t at = 0;
    std::size_t lines = 0;
    while (at < text.size()) {
        std::size_t end = text.find('\n', at);
        end = end == std::string_view::npos ? text.size() : end;
        const auto line = text.substr(at, end - at);
        at = end + 1;
        if (++lines % 65536 == 0) {
            check_interrupt();
        }
        KallsymsLine out;
        const auto [after, code] = std::from_chars(line.data(), line.data() + line.size(), out.address, 16);
        const auto used = static_cast<std::size_t>(after - line.data());
        if (code != std::errc() || used + 3 >= line.size() || line[used] != ' ') {
            continue;
        }
        out.type = line[used + 1];
        const auto rest = line.substr(used + 3);
        const auto tab = rest.find('\t');
        out.name = rest.substr(0, tab);
        while (out.name.ends_with(' ')) {
            out.name.remove_suffix(1);
        }
        if (tab != std::string_view::npos) {
            const auto open = rest.find('[', tab);
            const auto close = rest.find(']', tab);
            if (open != std::string_view::npos && close != std::string_view::npos && close > open) {
                out.module = rest.substr(open, close - open + 1);
            }
        }
        if (!out.name.empty() && !take(out)) {
            return;
        }
    }
}

}  // namespace sampleblk
