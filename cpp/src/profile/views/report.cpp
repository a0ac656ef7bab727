// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include "sampleblk/interrupt.hpp"
#include "sampleblk/profile/profile.hpp"
#include "symbols/flat_map.hpp"

namespace sampleblk::profile {

namespace {

struct Row {
    std::int32_t comm = 0;
    std::uint32_t frame = 0;
    std::uint64_t children = 0;
    std::uint64_t self = 0;
    std::uint64_t samples = 0;
};

// perf's "0x%016lx", which leaves a plain 0 without its prefix.
std::string hex_address(std::uint64_t address) {
    std::array<char, 16> digits{};
    const auto [end, code] = std::to_chars(digits.data(), digits.data() + digits.size(), address, 16);
    (void)code;
    const auto length = static_cast<std::size_t>(end - digits.data());
    return (address == 0 ? "" : "0x") + std::string(16 - length, '0') + std::string(digits.data(), length);
}

}  // namespace

Table report_table(const Profile& profile, const SampleSelection& selection) {
    // Samples of one name and stack count once, with their sum.
    struct Sum {
        std::int32_t comm;
        std::uint32_t leaf;
        std::uint64_t period = 0;
        std::uint64_t samples = 0;
    };
    const auto chosen = profile.select(selection);
    std::vector<Sum> sums;
    FlatMap sum_numbers;
    std::uint64_t total = 0;
    for (const std::uint32_t i : chosen) {
        const std::uint64_t comm = static_cast<std::uint32_t>(profile.comms()[i]);
        std::uint32_t& number = sum_numbers.at(comm << 32U | profile.leaves()[i]);
        if (number == FlatMap::kNone) {
            number = static_cast<std::uint32_t>(sums.size());
            sums.push_back({profile.comms()[i], profile.leaves()[i]});
        }
        sums[number].period += profile.periods()[i];
        ++sums[number].samples;
        total += profile.periods()[i];
    }
    std::vector<Row> rows;
    FlatMap row_numbers;
    std::vector<std::uint32_t> seen_by(profile.frames().size(), FlatMap::kNone);
    for (std::size_t s = 0; s < sums.size(); ++s) {
        if (s % 65536 == 0) {
            check_interrupt();
        }
        const Sum& sum = sums[s];
        // An inlined function has no code of its own to be found in: self is its frame's, as perf counts.
        std::uint32_t own = sum.leaf;
        while (own != 0 && profile.frames()[profile.stacks()[own].frame].kind == FrameKind::inlined) {
            own = profile.stacks()[own].parent;
        }
        for (std::uint32_t node = sum.leaf; node != 0; node = profile.stacks()[node].parent) {
            const std::uint32_t frame = profile.stacks()[node].frame;
            // A function that calls itself counts once a sample.
            if (seen_by[frame] == s && node != own) {
                continue;
            }
            const bool again = seen_by[frame] == s;
            seen_by[frame] = static_cast<std::uint32_t>(s);
            std::uint32_t& number = row_numbers.at(std::uint64_t{static_cast<std::uint32_t>(sum.comm)} << 32U | frame);
            if (number == FlatMap::kNone) {
                number = static_cast<std::uint32_t>(rows.size());
                rows.push_back({sum.comm, frame});
            }
            Row& row = rows[number];
            row.children += again ? 0 : sum.period;
            if (node == own) {
                row.self += sum.period;
                row.samples += sum.samples;
            }
        }
    }
    std::ranges::sort(rows, [&](const Row& a, const Row& b) {
        if (a.children != b.children) {
            return a.children > b.children;
        }
        if (a.self != b.self) {
            return a.self > b.self;
        }
        return std::pair(a.frame, a.comm) < std::pair(b.frame, b.comm);
    });

    const auto share = [total](std::uint64_t part) {
        return total == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(total);
    };
    auto pool = std::make_shared<StringPool>();
    std::vector<double> children_share;
    std::vector<double> self_share;
    std::vector<std::uint64_t> samples;
    std::vector<std::int32_t> comm;
    std::vector<std::int32_t> module;
    std::vector<std::int32_t> space;
    std::vector<std::int32_t> symbol;
    std::vector<std::uint64_t> children;
    std::vector<std::uint64_t> self;
    for (const Row& row : rows) {
        const Frame& frame = profile.frames()[row.frame];
        const bool kernel = frame.kind == FrameKind::kernel || frame.kind == FrameKind::module;
        children_share.push_back(share(row.children));
        self_share.push_back(share(row.self));
        samples.push_back(row.samples);
        comm.push_back(pool->intern(profile.names().at(row.comm)));
        module.push_back(pool->intern(profile.names().at(frame.module)));
        space.push_back(pool->intern(kernel ? "k" : "."));
        symbol.push_back(pool->intern(frame.resolved ? profile.names().at(frame.name) : hex_address(frame.key)));
        children.push_back(row.children);
        self.push_back(row.self);
    }
    std::vector<Column> columns;
    columns.emplace_back("children", std::move(children_share), "%");
    columns.emplace_back("self", std::move(self_share), "%");
    columns.emplace_back("samples", std::move(samples));
    columns.emplace_back("comm", std::move(comm), pool);
    columns.emplace_back("module", std::move(module), pool);
    columns.emplace_back("space", std::move(space), pool);
    columns.emplace_back("symbol", std::move(symbol), pool);
    columns.emplace_back("children_period", std::move(children));
    columns.emplace_back("self_period", std::move(self));
    auto metadata = profile.metadata();
    metadata["event"] = profile.file().events()[profile.event_number(selection.event)].name;
    metadata["samples"] = std::to_string(chosen.size());
    metadata["total_period"] = std::to_string(total);
    return Table(std::move(columns), std::move(metadata));
}

}  // namespace sampleblk::profile
