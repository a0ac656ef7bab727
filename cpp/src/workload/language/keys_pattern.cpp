// SPDX-License-Identifier: MIT
#include <algorithm>

#include "language/key_tables.hpp"
#include "language/setters.hpp"

namespace sampleblk::workload {

namespace {

using namespace setters;

constexpr char rw_words[] = "read write trim randread randwrite randtrim rw|readwrite randrw trimwrite randtrimwrite";
constexpr char sequencers[] = "sequential identical";

// "randread", "randread:8" (a new offset every 8 I/Os), "write:4k" (skip 4k after each).
void set_rw(JobOptions& options, std::string_view text) {
    const std::size_t colon = text.find(':');
    const std::string_view word = word_of(rw_words, pick(rw_words, text.substr(0, colon)));
    options.random = word.starts_with("rand");
    const std::string_view pattern = word.substr(options.random ? 4 : 0);
    options.reads = pattern == "read" || pattern == "rw";
    options.writes = pattern == "write" || pattern == "rw" || pattern == "trimwrite";
    options.trims = pattern.starts_with("trim");
    options.trim_then_write = pattern == "trimwrite";
    options.sequence_length = 1;
    options.sequential_add = 0;
    if (colon != std::string_view::npos) {
        const std::int64_t value = parse_number(text.substr(colon + 1), options.kb_base);
        if (!options.random) {
            options.sequential_add = value;
        } else if (value < 1 || value > UINT32_MAX) {
            out_of_range(text, "1 to 4294967295 I/Os per offset");
        } else {
            options.sequence_length = static_cast<std::uint32_t>(value);
        }
    }
}

constexpr std::uint64_t largest_block = std::uint64_t{1} << 30;

std::uint64_t block_size(std::string_view text, KbBase base) {
    return parse_bounded(text, base, 1, largest_block);
}

void set_bs(JobOptions& options, std::string_view text) {
    each_of_triple(text, [&](std::size_t i, std::string_view part) {
        options.bs[i] = options.min_bs[i] = options.max_bs[i] = block_size(part, options.kb_base);
        options.bssplit[i].clear();
    });
}

void set_bsrange(JobOptions& options, std::string_view text) {
    std::string commas(text);
    std::ranges::replace(commas, '/', ',');
    std::ranges::replace(commas, ':', '-');
    if (commas.find('-') == std::string::npos) {
        out_of_range(text, "a range such as 4k-16k");
    }
    each_of_triple(commas, [&](std::size_t i, std::string_view part) {
        const Range range = parse_range(part, options.kb_base);
        if (range.lower == 0 || range.upper > largest_block) {
            out_of_range(part, "block sizes of 1 byte to 1 GiB");
        }
        options.min_bs[i] = range.lower;
        options.max_bs[i] = range.upper;
        options.bssplit[i].clear();
    });
}

// "4k/10:64k/50:32k/40": sizes and their shares; those without one divide what is left.
void set_bssplit(JobOptions& options, std::string_view text) {
    each_of_triple(text, [&](std::size_t i, std::string_view part) {
        std::vector<BlockSizeShare> shares;
        std::uint64_t given = 0;
        std::uint32_t open = 0;
        for (const std::string_view entry : split(part, ':')) {
            const std::size_t slash = entry.find('/');
            BlockSizeShare share{.size_bytes = block_size(entry.substr(0, slash), options.kb_base),
                                 .percent = UINT32_MAX};
            const std::string_view percent =
                slash == std::string_view::npos ? std::string_view() : trim(entry.substr(slash + 1));
            if (percent.empty()) {
                ++open;
            } else {
                share.percent = static_cast<std::uint32_t>(std::min<std::uint64_t>(parse_unsigned(percent), 1000));
                given += share.percent;
            }
            shares.push_back(share);
        }
        if (given > 100 || (open == 0 && given < 100)) {
            throw InputError("the shares of '" + std::string(part) + "' add up to " + std::to_string(given) + "%", {},
                             0, "100%");
        }
        const auto left = static_cast<std::uint32_t>(100 - given);
        options.min_bs[i] = UINT64_MAX;
        options.max_bs[i] = 0;
        for (BlockSizeShare& share : shares) {
            if (share.percent == UINT32_MAX) {
                share.percent = left / open;
            }
            if (share.percent != 0) {
                options.min_bs[i] = std::min(options.min_bs[i], share.size_bytes);
                options.max_bs[i] = std::max(options.max_bs[i], share.size_bytes);
            }
        }
        if (options.max_bs[i] == 0) {
            throw InputError("every share of '" + std::string(part) + "' is 0%", {}, 0, "at least one above 0%");
        }
        options.bssplit[i] = std::move(shares);
    });
}

// "60/10:30/20:10/70": percent of the accesses, then the zone's part of the file (or its size).
std::vector<ZoneShare> parse_zones(std::string_view text, bool absolute, KbBase base) {
    std::vector<ZoneShare> zones;
    std::vector<std::size_t> open_ended;
    std::uint64_t accesses = 0;
    std::uint64_t covered = 0;
    for (const std::string_view entry : split(text, ':')) {
        const std::size_t slash = entry.find('/');
        if (slash == std::string_view::npos) {
            throw InputError("zone '" + std::string(entry) + "' has no size", {}, 0, "accesses/size, such as 60/10");
        }
        ZoneShare zone{.access_percent = static_cast<std::uint32_t>(
                           std::min<std::uint64_t>(parse_unsigned(entry.substr(0, slash)), 1000)),
                       .size = 0};
        accesses += zone.access_percent;
        if (!absolute && trim(entry.substr(slash + 1)).empty()) {
            open_ended.push_back(zones.size());
        } else {
            zone.size = parse_unsigned(entry.substr(slash + 1), base);
        }
        covered += absolute ? 0 : std::min<std::uint64_t>(zone.size, 1000);
        zones.push_back(zone);
    }
    // What the others leave is shared evenly by the zones without a size, the last one taking the odd percents.
    for (std::size_t i = 0; i < open_ended.size() && covered < 100; ++i) {
        const std::uint64_t part = (100 - covered) / (open_ended.size() - i);
        zones[open_ended[i]].size = part;
        covered += part;
    }
    if (accesses != 100 || covered > 100) {
        throw InputError("the zones of '" + std::string(text) + "' take " + std::to_string(accesses) +
                             "% of the accesses and " + std::to_string(covered) + "% of the file",
                         {}, 0, "100% of the accesses, at most 100% of the file");
    }
    return zones;
}

void set_distribution(JobOptions& options, std::string_view text) {
    const std::size_t colon = text.find(':');
    options.distribution =
        static_cast<Distribution>(pick("random zipf pareto normal zoned zoned_abs", text.substr(0, colon)));
    const std::string_view rest = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
    if (options.distribution == Distribution::zoned || options.distribution == Distribution::zoned_abs) {
        const bool absolute = options.distribution == Distribution::zoned_abs;
        if (trim(rest).empty()) {
            throw InputError("'" + std::string(text) + "' names no zones", {}, 0, "zoned:60/10:30/20:10/70");
        }
        each_of_triple(rest, [&](std::size_t i, std::string_view part) {
            options.zones[i] = parse_zones(part, absolute, options.kb_base);
        });
        return;
    }
    if (trim(rest).empty()) {
        if (options.distribution == Distribution::normal) {
            options.normal_deviation = 0;
        }
        return;
    }
    // "zipf:1.2" or, with the centre as a fraction of the range, "zipf:1.2:0.5".
    const auto parts = split(rest, ':');
    const double value = parse_float(parts[0]);
    options.random_center = parts.size() > 1 ? parse_float(parts[1]) : -1;
    if (parts.size() > 2 || (parts.size() > 1 && (options.random_center < 0 || options.random_center > 1))) {
        out_of_range(text, "a centre from 0 to 1 as the second number");
    }
    switch (options.distribution) {
        case Distribution::zipf:
            if (!(value > 0) || value == 1.0 || value > 10) {
                out_of_range(text, "a theta above 0 other than 1, at most 10");
            }
            options.zipf_theta = value;
            break;
        case Distribution::pareto:
            if (!(value > 0) || value >= 1.0) {
                out_of_range(text, "an h between 0 and 1");
            }
            options.pareto_h = value;
            break;
        case Distribution::normal:
            if (!(value >= 0) || value > 100) {
                out_of_range(text, "a deviation of 0 to 100 percent");
            }
            options.normal_deviation = value;
            break;
        default:
            out_of_range(text, "no number after random");
    }
}

void set_zonemode(JobOptions& options, std::string_view text) {
    options.zonemode = pick("none strided !zbd", text) == 0 ? ZoneMode::none : ZoneMode::strided;
}

void set_rwmixwrite(JobOptions& options, std::string_view text) {
    number<&JobOptions::rwmix_read, 0, 100>(options, text);
    options.rwmix_read = 100 - options.rwmix_read;
}

void set_randseed(JobOptions& options, std::string_view text) {
    options.randseed = parse_unsigned(text);
    options.randseed_given = true;
}

constexpr Key table[] = {
    key("rw readwrite", "read|write|trim|randread|…[:n]", "read", "direction, and sequential or random", set_rw),
    key("rw_sequencer", "sequential|identical", "sequential", "the offsets between two random ones",
        choice<&JobOptions::sequencer, sequencers>),
    key("rwmixread", "percent", "50", "reads in a mix", number<&JobOptions::rwmix_read, 0, 100>),
    key("rwmixwrite", "percent", "50", "writes in a mix", set_rwmixwrite),
    key("bs blocksize", "size[,size][,size]", "4k", "block size", set_bs),
    key("bsrange blocksize_range", "range[,range][,range]", "", "block sizes drawn between two", set_bsrange),
    key("bssplit", "size/percent:…[,…][,…]", "", "block sizes and their shares", set_bssplit),
    key("bs_unaligned blocksize_unaligned", "bool", "0", "block sizes need not be multiples of the least",
        flag<&JobOptions::bs_unaligned>),
    key("bs_is_seq_rand", "bool", "0", "bs means sequential,random instead of read,write",
        flag<&JobOptions::bs_is_seq_rand>),
    key("ba blockalign", "size[,size][,size]", "bs", "alignment of random offsets", size_triple<&JobOptions::align, 1>),
    key("random_distribution", "random|zipf|pareto|normal|zoned|zoned_abs[:…]", "random", "how random offsets lie",
        set_distribution),
    key("percentage_random", "percent[,percent][,percent]", "100", "random offsets among all",
        size_triple<&JobOptions::percentage_random, 0, 100>),
    key("norandommap", "bool", "0", "random offsets may repeat within a pass", flag<&JobOptions::norandommap>),
    key("softrandommap", "bool", "0", "do without the map where it needs too much memory",
        flag<&JobOptions::softrandommap>),
    key("randseed", "int", "", "seed of all random choices", set_randseed),
    key("randrepeat allrandrepeat", "bool", "1", "the same random choices in every run", flag<&JobOptions::randrepeat>),
    key("zonemode", "none|strided", "none", "I/O in zones of the file", set_zonemode),
    key("zonesize", "size", "0", "bytes of I/O in a zone", number<&JobOptions::zone_size_bytes>),
    key("zonerange", "size", "zonesize", "size of a zone", number<&JobOptions::zone_range_bytes>),
    key("zoneskip", "size", "0", "space between zones", number<&JobOptions::zone_skip_bytes>),
};

}  // namespace

std::span<const Key> pattern_keys() {
    return table;
}

}  // namespace sampleblk::workload
