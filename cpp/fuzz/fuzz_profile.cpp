// SPDX-License-Identifier: MIT
#include "fuzz_profile.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "elf_symbols.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/profile/flamegraph.hpp"
#include "sampleblk/profile/off_cpu.hpp"
#include "sampleblk/profile/profile.hpp"
#include "sampleblk/profile/stack_tree.hpp"

namespace sampleblk::fuzz {

int perf_data(const std::uint8_t* data, std::size_t size) {
    profile::SymbolSources nowhere;
    nowhere.use_paths = false;
    nowhere.use_running_kernel = false;
    for (const auto how : {profile::OnDamage::strict, profile::OnDamage::skip}) {
        std::vector<std::byte> bytes(size);
        if (size != 0) {
            std::memcpy(bytes.data(), data, size);
        }
        try {
            const auto file = std::make_shared<const profile::PerfFile>(std::move(bytes), "fuzz", how);
            const profile::Profile profile(file, nowhere);
            (void)profile.table({});
            (void)profile::report_table(profile, {});
            const auto tree = profile::stack_tree(profile, {}, profile::Weight::samples);
            (void)profile::folded_text(tree);
            (void)profile::syscall_split(profile, {});
            (void)profile::lock_table(profile, {});
        } catch (const FormatError&) {
        } catch (const UnsupportedError&) {
        } catch (const InputError&) {
        }
    }
    return 0;
}

int elf_symbols(const std::uint8_t* data, std::size_t size) {
    const auto bytes = std::as_bytes(std::span(data, size));
    if (const auto info = profile::read_elf_info(bytes)) {
        profile::SymbolList symbols;
        profile::add_elf_symbols(bytes, info->executable, symbols);
        profile::add_plt_symbols(bytes, info->executable, symbols);
        symbols.finish(false);
        for (const auto& entry : symbols.entries()) {
            if (entry.end > entry.start && symbols.find(entry.start) == nullptr) {
                std::abort();
            }
            (void)profile::demangle(symbols.name(entry));
        }
    }
    return 0;
}

int folded(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
        const auto tree = profile::read_folded(text, "fuzz", "samples");
        const std::string again = profile::folded_text(tree);
        if (profile::read_folded(again, "fuzz", "samples").total() != tree.total()) {
            std::abort();
        }
        (void)profile::flame_graph(tree, {});
        (void)profile::difference_flame_graph(tree, profile::read_folded(again, "fuzz", "samples"), {});
        (void)profile::tree_text(tree, 1.0, 20);
        (void)profile::function_table(tree);
    } catch (const InputError&) {
    }
    return 0;
}

}  // namespace sampleblk::fuzz
