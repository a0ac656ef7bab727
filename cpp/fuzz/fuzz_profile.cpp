// SPDX-License-Identifier: MIT
#include "fuzz_profile.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answers.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/profile/exports.hpp"
#include "sampleblk/profile/flamegraph.hpp"
#include "sampleblk/profile/from_trace.hpp"
#include "sampleblk/profile/off_cpu.hpp"
#include "sampleblk/profile/profile.hpp"
#include "sampleblk/profile/stack_tree.hpp"
#include "scratch.hpp"
#include "symbols/elf_symbols.hpp"
#include "symbols/unwind_rules.hpp"

namespace sampleblk::fuzz {

namespace {

// Gives `use` the profile, if the recording can be read, strictly and skipping damage.
void read_both_ways(const std::uint8_t* data, std::size_t size,
                    const std::function<void(const profile::Profile&)>& use) {
    profile::SymbolSources nowhere;
    nowhere.use_paths = false;
    nowhere.use_running_kernel = false;
    for (const auto how : {profile::OnDamage::strict, profile::OnDamage::skip}) {
        std::unique_ptr<const profile::Profile> profile;
        if (answers([&] {
                profile = std::make_unique<profile::Profile>(
                    std::make_shared<const profile::PerfFile>(copy_of(data, size), "fuzz", how), nowhere);
            })) {
            use(*profile);
        }
    }
}

// Of each event, and of one task's family.
void use_views(const profile::Profile& profile) {
    std::vector<profile::SampleSelection> selections(1);
    for (std::size_t event = 0; event < std::min<std::size_t>(profile.file().events().size(), 4); ++event) {
        selections.emplace_back().event = profile.file().events()[event].name;
    }
    if (profile.size() != 0) {
        selections.emplace_back().pids = {profile.pids().front()};
        selections.back().children = true;
        selections.back().idle = false;
    }
    for (const auto& selection : selections) {
        (void)answers([&] { (void)profile::report_table(profile, selection); });
        (void)answers([&] {
            const auto tree = profile::stack_tree(profile, selection, profile::Weight::samples);
            (void)profile::tree_text(tree, 1.0, 20);
            (void)profile::function_table(tree);
        });
        (void)answers([&] { (void)profile::stack_tree(profile, selection, profile::Weight::period); });
        (void)answers([&] { (void)profile::off_cpu_table(profile, selection); });
        (void)answers([&] { (void)profile::off_cpu_tree(profile, selection); });
        (void)answers([&] { (void)profile::wall_clock_tree(profile, selection); });
        (void)answers([&] { (void)profile::syscall_split(profile, selection); });
        (void)answers([&] { (void)profile::lock_table(profile, selection); });
    }
}

void use_exports(const profile::Profile& profile) {
    const std::string path = ScratchFolder::one().file("export");
    (void)answers([&] { profile::write_perfetto_samples(profile, {}, path); });
    (void)answers([&] {
        const auto tree = profile::stack_tree(profile, {}, profile::Weight::samples);
        (void)profile::speedscope_json(tree, "fuzz");
        (void)profile::pprof_profile(tree);
        (void)profile::flame_graph(tree, {});
        (void)profile::difference_flame_graph(profile::stack_tree(profile, {}, profile::Weight::period), tree, {});
        // What we wrote we can read, and it says the same.
        const std::string text = profile::folded_text(tree);
        if (tree.total() != 0 && profile::read_folded(text, "fuzz", "samples").total() != tree.total()) {
            std::abort();
        }
    });
}

}  // namespace

int perf_data(const std::uint8_t* data, std::size_t size) {
    read_both_ways(data, size, [](const profile::Profile& profile) {
        (void)answers([&] { (void)profile.table({}); });
        (void)answers([&] {
            const std::size_t samples = profile.select({}).size();
            for (std::size_t sample = 0; sample < samples; sample += 1 + samples / 16) {
                (void)profile.stack(sample);
            }
        });
    });
    return 0;
}

int perf_data_views(const std::uint8_t* data, std::size_t size) {
    read_both_ways(data, size, use_views);
    return 0;
}

int perf_data_exports(const std::uint8_t* data, std::size_t size) {
    read_both_ways(data, size, use_exports);
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
        profile::StackTree twice("samples");
        twice.merge(tree);
        twice.merge(tree);
        if (twice.total() != 2 * tree.total()) {
            std::abort();
        }
        // All is below the threads; what they call is some of it.
        std::vector<std::string> threads;
        std::vector<std::string> called;
        for (std::size_t i = 1; i < tree.nodes().size(); ++i) {
            const auto& node = tree.nodes()[i];
            (node.parent == 0 ? threads : called).push_back(tree.label(node));
        }
        if (profile::stacks_below(tree, threads).total() != tree.total()) {
            std::abort();
        }
        const auto below = profile::stacks_below(tree, called);
        if (below.total() > tree.total()) {
            std::abort();
        }
        (void)profile::folded_text(below);
        (void)profile::flame_graph(below, {});
        (void)profile::function_table(below);
        (void)profile::speedscope_json(below, "fuzz");
        (void)profile::pprof_profile(below);
    } catch (const InputError&) {
    }
    return 0;
}

int trace_stacks(const std::uint8_t* data, std::size_t size) {
    profile::SymbolSources nowhere;
    nowhere.use_paths = false;
    nowhere.use_running_kernel = false;
    for (const auto how : {trace::OnError::strict, trace::OnError::skip}) {
        std::unique_ptr<const profile::Profile> profile;
        if (answers([&] {
                const trace::TraceFile file(copy_of(data, size), "fuzz", how);
                profile = std::make_unique<profile::Profile>(profile::perf_file_of_trace(file), nowhere);
            })) {
            use_views(*profile);
            use_exports(*profile);
        }
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
