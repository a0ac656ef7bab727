// SPDX-License-Identifier: MIT
#include "generator.hpp"

#include <algorithm>
#include <bit>

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

Generator::Generator(const JobPlan& plan, std::vector<FileState>& files, FileOpener& opener)
    : plan_(plan), options_(plan.options), files_(files), opener_(opener) {
    only_direction_ = options_.reads ? Direction::read : options_.writes ? Direction::write : Direction::trim;
    mix_direction_ = only_direction_;
    sequence_left_ = options_.sequence_length;
    files_open_limit_ = options_.openfiles == 0 ? static_cast<std::uint32_t>(files.size()) : options_.openfiles;
    const bool skewed = options_.distribution == Distribution::zipf || options_.distribution == Distribution::pareto ||
                        options_.distribution == Distribution::normal;
    uses_map_ = options_.random && !options_.norandommap && !skewed;
    const std::uint64_t unit = std::min(options_.min_bs[0], options_.min_bs[1]);
    const bool used[] = {options_.reads, options_.writes, options_.trims};
    for (std::size_t i = 0; i < data_directions; ++i) {
        map_unit_ = used[i] ? std::min(map_unit_, options_.align[i]) : map_unit_;
    }
    for (FileState& file : files_) {
        const std::uint64_t extent = std::min(file.target->extent_bytes, file.target->size_bytes);
        if (uses_map_) {
            const std::uint64_t blocks = extent / map_unit_;
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
            file.skew = SkewedChoice(options_.distribution, (extent + unit - 1) / unit, parameter,
                                     options_.random_center, mix64(plan.seed ^ mix64(file.number + 77)));
        }
    }
    if (options_.file_service == FileService::zipf || options_.file_service == FileService::pareto ||
        options_.file_service == FileService::normal) {
        const Distribution kind = options_.file_service == FileService::zipf     ? Distribution::zipf
                                  : options_.file_service == FileService::pareto ? Distribution::pareto
                                                                                 : Distribution::normal;
        double parameter = options_.file_service_parameter;
        if (parameter == 0 && kind != Distribution::normal) {
            parameter = kind == Distribution::zipf ? 1.1 : 0.2;
        }
        skewed_files_ = SkewedChoice(kind, files_.size(), parameter, -1, mix64(plan.seed ^ 0xf11e), true);
    }
    simple_ = is_simple();
    seed_streams();
    begin_pass();
}

bool Generator::is_simple() const noexcept {
    const std::size_t i = index_of(only_direction_);
    const int directions = (options_.reads ? 1 : 0) + (options_.writes ? 1 : 0) + (options_.trims ? 1 : 0);
    return directions == 1 && files_.size() == 1 && options_.min_bs[i] == options_.max_bs[i] &&
           options_.align[i] == options_.min_bs[i] && options_.sequential_add == 0 && options_.sequence_length == 1 &&
           options_.zonemode == ZoneMode::none && options_.fsync_every == 0 && options_.fdatasync_every == 0 &&
           options_.sync_file_range_every == 0 && options_.distribution == Distribution::uniform &&
           options_.percentage_random[i] == 100 && !options_.file_append && !options_.fill_device &&
           files_[0].target->type != FileType::pipe && files_[0].target->type != FileType::character;
}

void Generator::seed_streams() {
    offsets_ = stream(plan_.seed, Stream::offset);
    directions_ = stream(plan_.seed, Stream::direction);
    block_sizes_ = stream(plan_.seed, Stream::block_size);
    sequential_shares_ = stream(plan_.seed, Stream::sequential_share);
    file_choices_ = stream(plan_.seed, Stream::file);
    zone_choices_ = stream(plan_.seed, Stream::zone);
}

void Generator::begin_pass() {
    if (options_.randrepeat) {
        seed_streams();
    }
    files_done_ = 0;
    zone_bytes_ = 0;
    mix_until_ = 0;
    last_was_sync_ = false;
    for (FileState& file : files_) {
        file.done = false;
        file.begin = file.target->offset_bytes;
    }
}

void Generator::reset_file(FileState& file) {
    file.next_offset.fill(file.begin);
    file.last_start.fill(UINT64_MAX);
    if (uses_map_) {
        file.map.clear();
    }
    simple_blocks_ = last_block(file, only_direction_);
}

Next Generator::next_simple(Io& io) {
    FileState& file = files_[0];
    if (!file.is_open()) {
        if (file.done) {
            return Next::end;
        }
        opener_.open(file);
        reset_file(file);
    }
    const std::size_t i = index_of(only_direction_);
    const std::uint64_t length = options_.min_bs[i];
    std::uint64_t offset = 0;
    if (!options_.random) {
        offset = file.next_offset[i];
        if (offset + length > file.target->end_bytes()) [[unlikely]] {
            return next_general(io);
        }
    } else {
        if (simple_blocks_ == 0) [[unlikely]] {
            return Next::end;
        }
        std::uint64_t block = offsets_.below(simple_blocks_);
        if (uses_map_) {
            if (file.map.used(block)) {
                const auto free = file.map.next_free(block);
                if (!free) [[unlikely]] {
                    return next_general(io);
                }
                block = *free;
            }
            file.map.use(block);
        }
        offset = file.begin + block * length;
        file.last_start[i] = offset;
    }
    file.next_offset[i] = offset + length;
    io.file = &file;
    io.offset = offset;
    io.length = length;
    io.direction = only_direction_;
    io.sync = SyncKind::none;
    return Next::io;
}

SyncKind Generator::sync_due() const noexcept {
    const std::uint64_t writes = issued_[index_of(Direction::write)];
    if (!needs_sync() || writes == 0) {
        return SyncKind::none;
    }
    const auto due = [&](std::uint64_t every) { return every != 0 && writes % every == 0; };
    return due(options_.fsync_every)             ? SyncKind::fsync
           : due(options_.fdatasync_every)       ? SyncKind::fdatasync
           : due(options_.sync_file_range_every) ? SyncKind::range
                                                 : SyncKind::none;
}

Direction Generator::choose_direction() {
    if (!options_.mixes_reads_and_writes()) {
        return only_direction_;
    }
    if (issued_[index_of(mix_direction_)] >= mix_until_) {
        const Direction drawn = directions_.percent(options_.rwmix_read) ? Direction::read : Direction::write;
        if (drawn != mix_direction_) {
            // As many in a row as keep the mix, so that neither direction runs away.
            const std::uint32_t other =
                mix_direction_ == Direction::read ? 100 - options_.rwmix_read : options_.rwmix_read;
            mix_until_ = issued_[index_of(mix_direction_)] * other / 100;
        }
        mix_direction_ = drawn;
    }
    return mix_direction_;
}

bool Generator::usable(FileState& file, bool& busy) {
    if (file.done) {
        return false;
    }
    if (!file.is_open()) {
        const auto open = std::ranges::count_if(files_, [](const FileState& one) { return one.is_open(); });
        if (static_cast<std::uint32_t>(open) >= files_open_limit_) {
            busy = true;
            return false;
        }
        opener_.open(file);
        reset_file(file);
    }
    return true;
}

FileState* Generator::choose_file(bool& busy) {
    if (files_.size() == 1) {
        return usable(files_[0], busy) ? files_.data() : nullptr;
    }
    if (files_done_ >= files_.size()) {
        return nullptr;
    }
    if (current_file_ != nullptr && current_file_->is_open() && !current_file_->done) {
        if (options_.file_service == FileService::sequential) {
            return current_file_;
        }
        if (current_left_ != 0) {
            --current_left_;
            return current_file_;
        }
    }
    const bool in_turn =
        options_.file_service == FileService::round_robin || options_.file_service == FileService::sequential;
    FileState* chosen = nullptr;
    // A random choice that keeps falling on files that are done would never end: after some tries
    // the next one in turn is taken.
    for (std::size_t tries = 0; chosen == nullptr && tries < 4 * files_.size(); ++tries) {
        std::size_t number = 0;
        if (in_turn || tries >= 2 * files_.size()) {
            number = next_file_;
            next_file_ = (next_file_ + 1) % static_cast<std::uint32_t>(files_.size());
        } else if (options_.file_service == FileService::random) {
            number = static_cast<std::size_t>(file_choices_.below(files_.size()));
        } else {
            number = static_cast<std::size_t>(skewed_files_.next());
        }
        if (usable(files_[number], busy)) {
            chosen = &files_[number];
        } else if (busy) {
            return nullptr;
        }
    }
    current_file_ = chosen;
    current_left_ = options_.file_service_count - 1;
    return chosen;
}

Next Generator::next_general(Io& io) {
    for (;;) {
        bool busy = false;
        FileState* file = choose_file(busy);
        if (file == nullptr) {
            return busy ? Next::busy : Next::end;
        }
        io.file = file;
        io.sync = sync_due();
        if (io.sync != SyncKind::none) {
            io.direction = Direction::sync;
            io.offset = 0;
            io.length = 0;
            return Next::io;
        }
        if (fill(io)) {
            return Next::io;
        }
        const bool uneven =
            options_.file_service == FileService::random || options_.file_service == FileService::zipf ||
            options_.file_service == FileService::pareto || options_.file_service == FileService::normal;
        if (uneven && files_.size() > 1) {
            // Random service goes on with a file that is through, from its beginning.
            const std::uint64_t position = file->next_offset[index_of(io.direction)];
            reset_file(*file);
            if (position == file->begin) {
                return Next::end;
            }
            continue;
        }
        if (file->in_flight == 0) {
            opener_.close(*file);
        }
        file->done = true;
        ++files_done_;
    }
}

std::uint64_t Generator::last_block(const FileState& file, Direction direction) const noexcept {
    const std::size_t i = index_of(direction);
    std::uint64_t extent = std::min(file.target->extent_bytes, file.target->size_bytes);
    if (options_.zonemode == ZoneMode::strided && options_.zone_range_bytes != 0) {
        extent = options_.zone_range_bytes;
    }
    if (options_.min_bs[i] > options_.align[i]) {
        const std::uint64_t tail = options_.min_bs[i] - options_.align[i];
        extent = extent > tail ? extent - tail : 0;
    }
    return extent / options_.align[i];
}

bool Generator::random_block(FileState& file, Direction direction, std::uint64_t& block) {
    const std::uint64_t blocks = last_block(file, direction);
    if (blocks == 0) {
        return false;
    }
    const std::size_t i = index_of(direction);
    switch (options_.distribution) {
        case Distribution::zipf:
        case Distribution::pareto:
        case Distribution::normal:
            block = file.skew.next();
            return true;
        case Distribution::zoned:
        case Distribution::zoned_abs: {
            const std::vector<ZoneShare>& zones = options_.zones[i];
            std::uint64_t before = 0;
            const ZoneShare* zone = zones.empty() ? nullptr : pick_zone(zones, zone_choices_.below(100), before);
            if (zone != nullptr) {
                const bool percent = options_.distribution == Distribution::zoned;
                const std::uint64_t begin =
                    percent ? before * blocks / 100 : std::min(before / options_.align[i], blocks - 1);
                const std::uint64_t length = percent ? zone->size * blocks / 100 : zone->size / options_.align[i];
                block = begin + offsets_.below(std::max<std::uint64_t>(std::min(length, blocks - begin), 1));
                break;
            }
            block = offsets_.below(blocks);
            break;
        }
        case Distribution::uniform:
            block = offsets_.below(blocks);
            break;
    }
    if (!uses_map_) {
        return true;
    }
    // The map counts in the smallest unit of all directions, so that blocks of two sizes do not
    // overlap unseen.
    const std::uint64_t align = options_.align[i];
    std::uint64_t unit = block * align / map_unit_;
    if (!file.map.used(unit)) {
        return true;
    }
    const auto free = file.map.next_free(unit);
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

bool Generator::random_offset(FileState& file, Direction direction, std::uint64_t& offset) {
    std::uint64_t block = 0;
    if (!random_block(file, direction, block)) {
        if (!options_.time_based) {
            return false;
        }
        reset_file(file);
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

bool Generator::sequential_offset(FileState& file, Direction direction, std::uint64_t& offset) {
    const std::size_t i = index_of(direction);
    const std::uint64_t extent = file.target->extent_bytes;
    const std::uint64_t size = file.target->size_bytes;
    const std::uint64_t least = options_.min_bs[i];
    std::uint64_t& position = file.next_offset[i];
    const bool at_end = position >= file.target->end_bytes() ||
                        (options_.time_based && position + least > file.target->end_bytes() && position != file.begin);
    if (at_end && options_.time_based && files_.size() == 1) {
        position = file.begin;
        if (options_.invalidate && !options_.direct) {
            opener_.invalidate(file);
        }
    }
    if (position >= size) {
        return false;
    }
    std::uint64_t relative = position - file.begin;
    if (options_.sequential_add != 0) {
        // A hole behind the end of the last one, or, backwards, a step back from it. Over an end it
        // goes on at the other; the first one is at the beginning either way.
        const std::int64_t add = options_.sequential_add;
        const std::uint64_t range = std::min(extent, size);
        if (relative != 0) {
            const auto moved = static_cast<std::int64_t>(relative) + add;
            if (moved >= 0 && static_cast<std::uint64_t>(moved) < range) {
                relative = static_cast<std::uint64_t>(moved);
            } else {
                const auto back = static_cast<std::uint64_t>(add < 0 ? -add : 0);
                relative = add > 0 || back > range ? 0 : range - back;
            }
        }
    }
    offset = relative;
    return true;
}

bool Generator::choose_offset(Io& io, bool& is_random) {
    FileState& file = *io.file;
    const Direction direction = io.direction;
    const std::size_t i = index_of(direction);
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
    if (new_position && options_.random) {
        const bool all = options_.percentage_random[i] == 100;
        if (all || sequential_shares_.percent(options_.percentage_random[i])) {
            is_random = true;
            if (!random_offset(file, direction, offset)) {
                return false;
            }
        } else if (!sequential_offset(file, direction, offset)) {
            if (!random_offset(file, direction, offset)) {
                return false;
            }
        }
    } else if (new_position) {
        if (!sequential_offset(file, direction, offset)) {
            return false;
        }
    } else if (options_.sequencer == Sequencer::identical) {
        offset = file.last_start[i] == UINT64_MAX ? 0 : file.last_start[i] - file.begin;
    } else if (!sequential_offset(file, direction, offset) && !random_offset(file, direction, offset)) {
        return false;
    }
    if (offset >= file.target->extent_bytes) {
        return false;
    }
    io.offset = offset + file.begin;
    return io.offset < file.target->size_bytes;
}

std::uint64_t Generator::block_size(const Io& io, bool is_random) {
    if (options_.random && options_.trim_then_write && io.direction == Direction::write) {
        const FileState& file = *io.file;
        return file.next_offset[index_of(Direction::trim)] - file.last_start[index_of(Direction::trim)];
    }
    std::size_t i = index_of(io.direction);
    if (options_.bs_is_seq_rand) {
        i = index_of(is_random ? Direction::write : Direction::read);
    }
    const std::uint64_t least = options_.min_bs[i];
    const std::uint64_t most = options_.max_bs[i];
    if (least == most) {
        return least;
    }
    const std::uint64_t room = io.file->target->end_bytes() - io.offset;
    if (least > room) {
        return 0;
    }
    for (;;) {
        std::uint64_t length = 0;
        if (options_.bssplit[i].empty()) {
            length = least + block_sizes_.below(most);
            length = std::min(length, most);
        } else {
            std::uint64_t draw = block_sizes_.below(100);
            for (const BlockSizeShare& share : options_.bssplit[i]) {
                length = share.size_bytes;
                if (draw < share.percent) {
                    break;
                }
                draw -= share.percent;
            }
        }
        if (!options_.bs_unaligned) {
            length -= length % least;
        }
        if (length <= room) {
            return length;
        }
    }
}

void Generator::enter_zone(FileState& file, Direction direction) {
    const std::size_t i = index_of(direction);
    if (zone_bytes_ >= options_.zone_size_bytes) {
        zone_bytes_ = 0;
        file.begin += options_.zone_range_bytes + options_.zone_skip_bytes;
        if (file.begin >= file.target->size_bytes) {
            file.begin = file.target->offset_bytes;
        }
        file.next_offset[i] = file.begin;
    }
    // A zonesize above zonerange stays in the zone and goes over it again.
    if (file.next_offset[i] >= file.begin + options_.zone_range_bytes) {
        file.next_offset[i] = file.begin;
    }
    if (zone_bytes_ % options_.zone_range_bytes == 0) {
        reset_file(file);
    }
}

bool Generator::fill(Io& io) {
    FileState& file = *io.file;
    io.direction = forced_.value_or(Direction::sync);
    if (!forced_) {
        io.direction = choose_direction();
    }
    forced_.reset();
    if (options_.trim_then_write) {
        io.direction = file.last_start[index_of(Direction::write)] == file.last_start[index_of(Direction::trim)]
                           ? Direction::trim
                           : Direction::write;
    }
    const std::size_t i = index_of(io.direction);
    if (options_.zonemode == ZoneMode::strided) {
        enter_zone(file, io.direction);
    }
    bool is_random = false;
    if (!choose_offset(io, is_random)) {
        return false;
    }
    if (options_.trim_then_write && options_.random && io.direction == Direction::trim &&
        file.last_start[index_of(Direction::trim)] == io.offset) {
        // The same place again: without this the next turn would trim once more.
        --file.last_start[index_of(Direction::write)];
    }
    io.length = block_size(io, is_random);
    if (io.length == 0 || io.offset + io.length > file.target->size_bytes) {
        return false;
    }
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
    return true;
}

}  // namespace sampleblk::workload
