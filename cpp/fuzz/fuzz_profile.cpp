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
#include "sampleblk/profile/exports.hpp"
#include "sampleblk/profile/flamegraph.hpp"
#include "sampleblk/profile/from_trace.hpp"
#include "sampleblk/profile/off_cpu.hpp"
#include "sampleblk/profile/profile.hpp"
#include "sampleblk/profile/stack_tree.hpp"
#include "unwind_rules.hpp"

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
        (void)profile::speedscope_json(tree, "fuzz");
        (void)profile::pprof_profile(tree);
        (void)profile::function_table(tree);
    } catch (const InputError&) {
    }
    return 0;
}

int trace_stacks(const std::uint8_t* data, std::size_t size) {
    profile::SymbolSources nowhere;
    nowhere.use_paths = false;
    nowhere.use_running_kernel = false;
    const auto bytes = std::as_bytes(std::span(data, size));
    try {
        const trace::TraceFile file({bytes.begin(), bytes.end()}, "fuzz", trace::OnError::skip);
        const profile::Profile profile(profile::perf_file_of_trace(file), nowhere);
        (void)profile::off_cpu_table(profile, {});
        (void)profile::wall_clock_tree(profile, {});
    } catch (const FormatError&) {
    } catch (const UnsupportedError&) {
    } catch (const InputError&) {
    }
    return 0;
}

int unwind_rules(const std::uint8_t* data, std::size_t size) {
    // Three bytes a rule up to a zero count, then nine an operation, and the rest is the stack.
    const auto byte = [&]() -> std::uint8_t {
        if (size == 0) {
            return 0;
        }
        --size;
        return *data++;
    };
    profile::UnwindRow row;
    row.found = true;
    row.cfa_register = static_cast<std::int8_t>(byte());
    row.cfa_offset = static_cast<std::int8_t>(byte());
    for (unsigned rules = byte() % 20U; rules > 0; --rules) {
        profile::UnwindRule rule;
        rule.target = byte();
        rule.how = static_cast<profile::UnwindHow>(byte() % 6U);
        rule.offset = static_cast<std::int8_t>(byte());
        row.rules.push_back(rule);
    }
    row.expressions.resize(1);
    for (unsigned operations = byte() % 64U; operations > 0; --operations) {
        profile::UnwindOperation operation;
        operation.code = byte();
        for (unsigned i = 0; i < 8; ++i) {
            operation.first |= std::uint64_t{byte()} << (8 * i);
        }
        operation.second = operation.first >> 3U;
        row.expressions.front().push_back(operation);
    }
    constexpr std::uint64_t base = 0x7fff0000;
    const profile::StackMemory stack{base, std::as_bytes(std::span(data, size))};
    profile::UnwindRegisters registers;
    registers.known = (1U << profile::kUnwindRegisters) - 1;
    registers.values.fill(base);
    for (int steps = 0; steps < 8 && row.step(registers, stack) == profile::UnwindStep::caller; ++steps) {
    }
    (void)profile::step_by_frame_pointer(registers, stack);
    return 0;
}

}  // namespace sampleblk::fuzz
