// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>

#include "key_setters.hpp"
#include "key_tables.hpp"

namespace sampleblk::workload {

namespace {

using namespace setters;

struct Pattern7 {
    bool reads;
    bool writes;
    bool trims;
    bool random;
    bool trim_then_write;
};

constexpr std::array<Word<Pattern7>, 11> rw_words = {{{"read", {true, false, false, false, false}},
                                                      {"write", {false, true, false, false, false}},
                                                      {"trim", {false, false, true, false, false}},
                                                      {"randread", {true, false, false, true, false}},
                                                      {"randwrite", {false, true, false, true, false}},
                                                      {"randtrim", {false, false, true, true, false}},
                                                      {"rw", {true, true, false, false, false}},
                                                      {"readwrite", {true, true, false, false, false}},
                                                      {"randrw", {true, true, false, true, false}},
                                                      {"trimwrite", {false, true, true, false, true}},
                                                      {"randtrimwrite", {false, true, true, true, true}}}};

// "randread", "randread:8" (a new offset every 8 I/Os), "write:4k" (skip 4k after each).
void set_rw(JobOptions& options, std::string_view text) {
    const std::size_t colon = text.find(':');
    const Pattern7 pattern = pick(rw_words, text.substr(0, colon));
    options.reads = pattern.reads;
    options.writes = pattern.writes;
    options.trims = pattern.trims;
    options.random = pattern.random;
    options.trim_then_write = pattern.trim_then_write;
    options.sequence_length = 1;
    options.sequential_add = 0;
    if (colon != std::string_view::npos) {
        const std::int64_t value = parse_number(text.substr(colon + 1), options.kb_base);
        if (!pattern.random) {
            options.sequential_add = value;
        } else if (value < 1 || value > UINT32_MAX) {
            throw InputError("'" + std::string(text) + "' has no usable count", {}, 0, "1 or more I/Os per offset");
        } else {
            options.sequence_length = static_cast<std::uint32_t>(value);
        }
    }
}

constexpr std::uint64_t largest_block = std::uint64_t{1} << 30;

std::uint64_t block_size(std::string_view text, KbBase base) {
    const std::uint64_t size = parse_unsigned(text, base);
    if (size == 0 || size > largest_block) {
        throw InputError("block size '" + std::string(text) + "' is out of range", {}, 0, "1 byte to 1 GiB");
    }
    return size;
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
    each_of_triple(commas, [&](std::size_t i, std::string_view part) {
        const Range range = parse_range(part, options.kb_base);
        if (range.lower == 0 || range.upper > largest_block) {
            throw InputError("block size range '" + std::string(part) + "' is out of range", {}, 0, "1 byte to 1 GiB");
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

constexpr std::array<Word<Sequencer>, 2> sequencers = {
    {{"sequential", Sequencer::sequential}, {"identical", Sequencer::identical}}};
constexpr std::array<Word<Distribution>, 6> distributions = {{{"random", Distribution::uniform},
                                                              {"zipf", Distribution::zipf},
                                                              {"pareto", Distribution::pareto},
                                                              {"normal", Distribution::normal},
                                                              {"zoned", Distribution::zoned},
                                                              {"zoned_abs", Distribution::zoned_abs}}};

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
    options.distribution = pick(distributions, text.substr(0, colon));
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
    const auto outside = [&](std::string_view expected) -> InputError {
        return {"'" + std::string(text) + "' is out of range", {}, 0, std::string(expected)};
    };
    if (parts.size() > 2 || (parts.size() > 1 && (options.random_center < 0 || options.random_center > 1))) {
        throw outside("a centre from 0 to 1 as the second number");
    }
    switch (options.distribution) {
        case Distribution::zipf:
            if (!(value > 0) || value == 1.0 || value > 10) {
                throw outside("a theta above 0 other than 1, at most 10");
            }
            options.zipf_theta = value;
            break;
        case Distribution::pareto:
            if (!(value > 0) || value >= 1.0) {
                throw outside("an h between 0 and 1");
            }
            options.pareto_h = value;
            break;
        case Distribution::normal:
            if (!(value >= 0) || value > 100) {
                throw outside("a deviation of 0 to 100 percent");
            }
            options.normal_deviation = value;
            break;
        default:
            throw outside("no number after random");
    }
}

void set_percentage_random(JobOptions& options, std::string_view text) {
    each_of_triple(text, [&](std::size_t i, std::string_view part) {
        const std::uint64_t percent = parse_unsigned(part);
        if (percent > 100) {
            throw InputError("'" + std::string(part) + "' is out of range", {}, 0, "0 to 100");
        }
        options.percentage_random[i] = static_cast<std::uint32_t>(percent);
    });
}

void set_rwmixwrite(JobOptions& options, std::string_view text) {
    number<&JobOptions::rwmix_read, 0, 100>(options, text);
    options.rwmix_read = 100 - options.rwmix_read;
}

void set_randseed(JobOptions& options, std::string_view text) {
    options.randseed = parse_unsigned(text);
    options.randseed_given = true;
}

constexpr std::array<Word<ZoneMode>, 2> zone_modes = {{{"none", ZoneMode::none}, {"strided", ZoneMode::strided}}};

constexpr Key table[] = {
    {"rw", "readwrite", "read|write|trim|randread|…[:n]", "read", Effect::result, Support::full,
     "direction, and sequential or random", set_rw},
    {"rw_sequencer", "", "sequential|identical", "sequential", Effect::result, Support::full,
     "the offsets between two random ones", choice<&JobOptions::sequencer, sequencers>},
    {"rwmixread", "", "percent", "50", Effect::result, Support::full, "reads in a mix",
     number<&JobOptions::rwmix_read, 0, 100>},
    {"rwmixwrite", "", "percent", "50", Effect::result, Support::full, "writes in a mix", set_rwmixwrite},
    {"rwmixcycle", "", "int", "", Effect::result, Support::refused, "fio dropped it", nullptr},
    {"bs", "blocksize", "size[,size][,size]", "4k", Effect::result, Support::full, "block size", set_bs},
    {"bsrange", "blocksize_range", "range[,range][,range]", "", Effect::result, Support::full,
     "block sizes drawn between two", set_bsrange},
    {"bssplit", "", "size/percent:…[,…][,…]", "", Effect::result, Support::full, "block sizes and their shares",
     set_bssplit},
    {"bs_unaligned", "blocksize_unaligned", "bool", "0", Effect::result, Support::full,
     "block sizes need not be multiples of the least", flag<&JobOptions::bs_unaligned>},
    {"bs_is_seq_rand", "", "bool", "0", Effect::result, Support::full,
     "bs means sequential,random instead of read,write", flag<&JobOptions::bs_is_seq_rand>},
    {"ba", "blockalign", "size[,size][,size]", "bs", Effect::result, Support::full, "alignment of random offsets",
     size_triple<&JobOptions::align>},
    {"random_distribution", "", "random|zipf|pareto|normal|zoned|zoned_abs[:…]", "random", Effect::result,
     Support::full, "how random offsets lie", set_distribution},
    {"percentage_random", "", "percent[,percent][,percent]", "100", Effect::result, Support::full,
     "random offsets among all", set_percentage_random},
    {"norandommap", "", "bool", "0", Effect::result, Support::full, "random offsets may repeat within a pass",
     flag<&JobOptions::norandommap>},
    {"softrandommap", "", "bool", "0", Effect::result, Support::full,
     "do without the map where it needs too much memory", flag<&JobOptions::softrandommap>},
    {"randseed", "", "int", "", Effect::result, Support::full, "seed of all random choices", set_randseed},
    {"randrepeat", "allrandrepeat", "bool", "1", Effect::result, Support::full, "the same random choices in every run",
     flag<&JobOptions::randrepeat>},
    {"random_generator", "", "str", "tausworthe", Effect::result, Support::accepted,
     "offsets come from xoshiro256++, whatever generator is named", nullptr},
    {"zonemode", "", "none|strided", "none", Effect::result, Support::full, "I/O in zones of the file",
     choice<&JobOptions::zonemode, zone_modes>},
    {"zonesize", "", "size", "0", Effect::result, Support::full, "bytes of I/O in a zone",
     number<&JobOptions::zone_size_bytes>},
    {"zonerange", "", "size", "zonesize", Effect::result, Support::full, "size of a zone",
     number<&JobOptions::zone_range_bytes>},
    {"zoneskip", "", "size", "0", Effect::result, Support::full, "space between zones",
     number<&JobOptions::zone_skip_bytes>},
    {"zonecapacity", "", "size", "", Effect::result, Support::refused, "zoned devices are not supported", nullptr},
    {"read_beyond_wp", "", "bool", "0", Effect::result, Support::refused, "zoned devices are not supported", nullptr},
    {"max_open_zones", "", "int", "0", Effect::result, Support::refused, "zoned devices are not supported", nullptr},
    {"job_max_open_zones", "", "int", "0", Effect::result, Support::refused, "zoned devices are not supported",
     nullptr},
    {"ignore_zone_limits", "", "bool", "0", Effect::result, Support::refused, "zoned devices are not supported",
     nullptr},
    {"zone_reset_threshold", "", "float", "", Effect::result, Support::refused, "zoned devices are not supported",
     nullptr},
    {"zone_reset_frequency", "", "float", "", Effect::result, Support::refused, "zoned devices are not supported",
     nullptr},
    {"trim_percentage", "", "percent", "0", Effect::result, Support::refused, "verified blocks are not trimmed",
     nullptr},
    {"trim_verify_zero", "", "bool", "0", Effect::result, Support::refused, "verified blocks are not trimmed", nullptr},
    {"trim_backlog", "", "int", "0", Effect::result, Support::refused, "verified blocks are not trimmed", nullptr},
    {"trim_backlog_batch", "", "int", "0", Effect::result, Support::refused, "verified blocks are not trimmed",
     nullptr},
    {"ignore_error", "", "str", "", Effect::result, Support::refused, "use continue_on_error", nullptr},
};

}  // namespace

std::span<const Key> pattern_keys() {
    return table;
}

}  // namespace sampleblk::workload
