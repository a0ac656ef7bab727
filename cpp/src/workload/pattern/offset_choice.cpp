// SPDX-License-Identifier: MIT
#include "pattern/offset_choice.hpp"

#include <algorithm>

namespace sampleblk::workload {

namespace {

// A map of more blocks than this takes over 1 GiB; softrandommap then does without.
constexpr std::uint64_t most_map_blocks = std::uint64_t{1} << 33;

// The share of a hundred that a zone's turn falls to.
const ZoneShare* pick_zone(const std::vector<ZoneShare>& zones, std::uint64_t draw, std::uint64_t& before) {
    std::uint64_t accesses = 0;
    before = 0;
    for (const ZoneShare& zone : zones) {
        accesses += zone.access_percent;
        if (draw < accesses) {
            return &zone;
        }
        before += zone.size;
    }
    return nullptr;
}

}  // namespace

OffsetChoice::OffsetChoice(const JobPlan& plan, std::vector<FileState>& files, FileOpener& opener)
    : plan_(plan),
      options_(plan.options),
      files_(files),
      opener_(opener),
      sequence_left_(plan.options.sequence_length) {
    const bool skewed = options_.distribution == Distribution::zipf || options_.distribution == Distribution::pareto ||
                        options_.distribution == Distribution::normal;
    uses_map_ = options_.random && !options_.norandommap;
    for (std::size_t i = 0; i < data_directions; ++i) {
        if (options_.uses(i)) {
            map_unit_ = std::min(map_unit_, options_.align[i]);
            greatest_least_ = std::max(greatest_least_, least_length(all_data_directions[i], true));
        }
    }
    for (FileState& file : files_) {
        file.begin = file.target->offset_bytes;
        if (uses_map_) {
            const std::uint64_t extent = std::min(file.target->extent_bytes, file.target->size_bytes);
            const std::uint64_t blocks = std::max<std::uint64_t>(extent / map_unit_, 1);
            if (blocks > most_map_blocks && options_.softrandommap) {
                uses_map_ = false;
            } else {
                file.map = RandomMap(blocks);
            }
        }
        if (options_.random && skewed) {
            const double parameter = options_.distribution == Distribution::zipf     ? options_.zipf_theta
                                     : options_.distribution == Distribution::pareto ? options_.pareto_h
                                                                                     : options_.normal_deviation;
            // Over all places of the direction that has most of the file. fio's go on over its end, which ends its job.
            std::uint64_t reach = 1;
            for (std::size_t i = 0; i < data_directions; ++i) {
                const std::uint64_t blocks = options_.uses(i) ? places(file, all_data_directions[i]) : 0;
                reach = blocks == 0 ? reach : std::max(reach, (blocks - 1) * options_.align[i] / map_unit_ + 1);
            }
            file.skew = SkewedChoice(options_.distribution, reach, parameter, options_.random_center,
                                     mix64(plan.seed ^ mix64(file.number + 77)));
        }
    }
    seed_streams();
}

void OffsetChoice::seed_streams() {
    random_ = stream(plan_.seed, Stream::offset);
    sequential_shares_ = stream(plan_.seed, Stream::sequential_share);
    zone_choices_ = stream(plan_.seed, Stream::zone);
}

void OffsetChoice::begin_pass() {
    if (options_.randrepeat) {
        seed_streams();
    }
    zone_bytes_ = 0;
    for (FileState& file : files_) {
        file.begin = file.target->offset_bytes;
    }
}

void OffsetChoice::reset(FileState& file) const {
    file.next_offset.fill(file.begin);
    file.last_start.fill(UINT64_MAX);
    if (uses_map_) {
        file.map.clear();
    }
}

bool OffsetChoice::choose(Io& io, bool& is_random) {
    FileState& file = *io.file;
    const Direction direction = io.direction;
    const std::size_t i = index_of(direction);
    if (options_.zonemode == ZoneMode::strided) {
        enter_zone(file, direction);
    }
    is_random = false;
    bool new_position = true;
    if (options_.sequence_length > 1) {
        new_position = --sequence_left_ == 0;
        if (new_position) {
            sequence_left_ = options_.sequence_length;
        }
    }
    std::uint64_t offset = 0;
    if (options_.random && options_.trim_then_write && direction == Direction::write) {
        io.offset = file.last_start[index_of(Direction::trim)];
        is_random = true;
        return io.offset != UINT64_MAX;
    }
    if (!options_.random) {
        if (!sequential_offset(file, direction, offset)) {
            return false;
        }
    } else {
        if (!new_position && options_.sequencer == Sequencer::identical) {
            offset = file.last_start[i] == UINT64_MAX ? 0 : file.last_start[i] - file.begin;
            is_random = !has_room(file, direction, offset);
        } else {
            const std::uint32_t percent = options_.percentage_random[i];
            is_random = (new_position && (percent == 100 || sequential_shares_.percent(percent))) ||
                        !next_in_order(file, direction, offset);
        }
        if (is_random && !random_offset(file, direction, offset)) {
            return false;
        }
    }
    if (offset >= file.target->extent_bytes) {
        return false;
    }
    io.offset = offset + file.begin;
    return io.offset < file.target->size_bytes;
}

void OffsetChoice::take(Io& io, bool is_random) {
    FileState& file = *io.file;
    const std::size_t i = index_of(io.direction);
    if (uses_map_) {
        // Only as long as the blocks behind are free too.
        const std::uint64_t unit = map_unit_;
        const std::uint64_t first = (io.offset - file.begin) / unit;
        const std::uint64_t count = (io.length + unit - 1) / unit;
        const bool may_repeat = !is_random || (options_.trim_then_write && io.direction == Direction::write);
        std::uint64_t taken = 0;
        while (taken < count && first + taken < file.map.blocks() &&
               (taken == 0 || may_repeat || !file.map.used(first + taken))) {
            file.map.use(first + taken);
            ++taken;
        }
        if (taken < count && taken != 0) {
            io.length = taken * unit;
        }
    }
    file.last_start[i] = io.offset;
    file.next_offset[i] = io.offset + io.length;
    zone_bytes_ += io.length;
}

void OffsetChoice::enter_zone(FileState& file, Direction direction) {
    const std::size_t i = index_of(direction);
    if (zone_bytes_ >= options_.zone_size_bytes) {
        zone_bytes_ = 0;
        file.begin += options_.zone_range_bytes + options_.zone_skip_bytes;
        // A random job passes over what is left of the file behind the last zone that has room; fio's ends there.
        const std::uint64_t least = options_.random ? greatest_least_ : 1;
        if (file.begin + least > file.target->size_bytes) {
            file.begin = file.target->offset_bytes;
        }
        file.next_offset[i] = file.begin;
    }
    // A zonesize above zonerange stays in the zone and goes over it again.
    if (file.next_offset[i] >= file.begin + options_.zone_range_bytes) {
        file.next_offset[i] = file.begin;
    }
    if (zone_bytes_ % options_.zone_range_bytes == 0) {
        reset(file);
    }
}

std::uint64_t OffsetChoice::places(const FileState& file, Direction direction) const noexcept {
    const std::size_t i = index_of(direction);
    const std::uint64_t size = file.target->size_bytes;
    std::uint64_t extent = std::min(file.target->extent_bytes, size - std::min(file.begin, size));
    if (options_.zonemode == ZoneMode::strided && options_.zone_range_bytes != 0) {
        extent = std::min(extent, options_.zone_range_bytes);  // the map has no more
    }
    const std::uint64_t least = least_length(direction, true);
    if (least > options_.align[i]) {
        const std::uint64_t tail = least - options_.align[i];
        extent = extent > tail ? extent - tail : 0;
    }
    // One of a coarse alignment begins at the beginning, though its file is shorter.
    return extent < std::min(least, options_.align[i]) ? 0 : std::max<std::uint64_t>(extent / options_.align[i], 1);
}

std::uint64_t OffsetChoice::least_length(Direction direction, bool is_random) const noexcept {
    return options_.min_bs[options_.size_index(index_of(direction), is_random)];
}

bool OffsetChoice::random_block(FileState& file, Direction direction, std::uint64_t& block) {
    const std::uint64_t blocks = places(file, direction);
    if (blocks == 0) {
        return false;
    }
    const std::size_t i = index_of(direction);
    switch (options_.distribution) {
        case Distribution::zipf:
        case Distribution::pareto:
        case Distribution::normal:
            block = file.skew.next() * map_unit_ / options_.align[i] % blocks;
            return true;
        case Distribution::zoned:
        case Distribution::zoned_abs:
            block = zoned_block(blocks, i);
            break;
        case Distribution::uniform:
            block = random_.below(blocks);
            break;
    }
    return !uses_map_ || free_block(file, i, blocks, block);
}

std::uint64_t OffsetChoice::zoned_block(std::uint64_t blocks, std::size_t direction) {
    const std::vector<ZoneShare>& zones = options_.zones[direction];
    std::uint64_t before = 0;
    const ZoneShare* zone = zones.empty() ? nullptr : pick_zone(zones, zone_choices_.below(100), before);
    if (zone == nullptr) {
        return random_.below(blocks);
    }
    const std::uint64_t align = options_.align[direction];
    const bool percent = options_.distribution == Distribution::zoned;
    const std::uint64_t begin = std::min(percent ? before * blocks / 100 : before / align, blocks - 1);
    const std::uint64_t length = percent ? zone->size * blocks / 100 : zone->size / align;
    return begin + random_.below(std::max<std::uint64_t>(std::min(length, blocks - begin), 1));
}

// The next block that the map has free, from `block` on.
bool OffsetChoice::free_block(const FileState& file, std::size_t direction, std::uint64_t blocks,
                              std::uint64_t& block) const {
    // The map counts in the smallest unit of all directions, so that blocks of two sizes do not
    // overlap unseen.
    const std::uint64_t align = options_.align[direction];
    std::uint64_t unit = block * align / map_unit_;
    if (!file.map.used(unit)) {
        return true;
    }
    // Of the places alone, which may be fewer than the map has: a zone's.
    auto free = file.map.next_free(unit);
    if (free && *free * map_unit_ / align >= blocks) {
        free = file.map.next_free(0);
    }
    if (!free) {
        return false;
    }
    unit = *free;
    block = unit * map_unit_ / align;
    if (block * align / map_unit_ != unit) {
        // The free unit begins inside a block of this direction: go on to one that begins with it.
        for (std::uint64_t tries = 0; tries < blocks; ++tries) {
            block = block + 1 == blocks ? 0 : block + 1;
            if (!file.map.used(block * align / map_unit_)) {
                return true;
            }
        }
        return false;
    }
    return block < blocks;
}

bool OffsetChoice::random_offset(FileState& file, Direction direction, std::uint64_t& offset) {
    std::uint64_t block = 0;
    if (!random_block(file, direction, block)) {
        if (!options_.time_based) {
            return false;
        }
        reset(file);
        if (options_.invalidate && !options_.direct) {
            opener_.invalidate(file);
        }
        if (!random_block(file, direction, block)) {
            return false;
        }
    }
    offset = block * options_.align[index_of(direction)];
    return true;
}

// Whether a random job can go on in order. fio's ends with a block that is longer than what is left of its file.
bool OffsetChoice::next_in_order(FileState& file, Direction direction, std::uint64_t& offset) {
    return sequential_offset(file, direction, offset) && has_room(file, direction, offset);
}

bool OffsetChoice::has_room(const FileState& file, Direction direction, std::uint64_t offset) const noexcept {
    return file.begin + offset + least_length(direction, false) <= file.target->end_bytes();
}

bool OffsetChoice::sequential_offset(FileState& file, Direction direction, std::uint64_t& offset) {
    const std::size_t i = index_of(direction);
    const std::uint64_t extent = file.target->extent_bytes;
    const std::uint64_t size = file.target->size_bytes;
    std::uint64_t& position = file.next_offset[i];
    if (position >= file.target->end_bytes() && options_.time_based && files_.size() == 1) {
        position = file.begin;
        if (options_.invalidate && !options_.direct) {
            opener_.invalidate(file);
        }
    }
    if (position >= size) {
        return false;
    }
    const auto add = static_cast<std::uint64_t>(options_.sequential_add);  // wraps where it is negative
    const bool backwards = options_.sequential_add < 0;
    if (position == file.begin && file.begin != 0 && backwards) {
        position = std::min(extent, size);
    }
    // A hole behind the end of the last one, or, backwards, a step back from it. Over an end of the file it goes on at
    // the other one. All as fio counts it: the first one is at the beginning, and an offset counts twice in a wrap.
    std::uint64_t relative = position - file.begin;
    if (relative != 0 && add != 0) {
        relative += add;
        if (relative >= size) {
            relative = backwards ? std::min(extent, size) + add : file.begin;
        }
    }
    offset = relative;
    return true;
}

}  // namespace sampleblk::workload
