// SPDX-License-Identifier: MIT
#include "pattern/generator.hpp"

#include <algorithm>

namespace sampleblk::workload {

Generator::Generator(const JobPlan& plan, std::vector<FileState>& files, FileOpener& opener)
    : plan_(plan),
      options_(plan.options),
      files_(files),
      opener_(opener),
      file_choice_(plan, files, opener),
      offsets_(plan, files, opener) {
    only_direction_ = options_.reads ? Direction::read : options_.writes ? Direction::write : Direction::trim;
    mix_direction_ = only_direction_;
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
    directions_ = stream(plan_.seed, Stream::direction);
    // Where one direction follows another over the same places, its blocks must be as long.
    for (std::size_t i = 0; i < data_directions; ++i) {
        const bool as_writes = (i == index_of(Direction::trim) && options_.trim_then_write) ||
                               (i == index_of(Direction::read) && options_.verify != Verify::none);
        block_sizes_[i] = stream(plan_.seed, Stream::block_size, as_writes ? index_of(Direction::write) : i);
    }
}

void Generator::begin_pass() {
    if (options_.randrepeat) {
        seed_streams();
    }
    file_choice_.begin_pass();
    offsets_.begin_pass();
    mix_until_ = 0;
    last_was_sync_ = false;
}

void Generator::reset_file(FileState& file) {
    offsets_.reset(file);
    simple_blocks_ = offsets_.places(file, only_direction_);
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
        const auto block = offsets_.take_any(file, simple_blocks_);
        if (!block) [[unlikely]] {
            return next_general(io);
        }
        offset = file.begin + *block * length;
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

Next Generator::next_general(Io& io) {
    for (;;) {
        bool busy = false;
        FileState* file = file_choice_.choose(busy);
        if (file == nullptr) {
            return busy ? Next::busy : Next::end;
        }
        if (!file->is_open()) {
            opener_.open(*file);
            reset_file(*file);
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
        const bool untouched = file->next_offset[index_of(io.direction)] == file->begin;
        if (file->in_flight == 0) {
            opener_.close(*file);
        }
        if (!file_choice_.is_skewed()) {
            file_choice_.finish(*file);
        } else if (untouched) {
            return Next::end;  // it has nothing to give from its beginning either
        } else {
            reset_file(*file);
        }
    }
}

std::uint64_t Generator::block_size(const Io& io, bool is_random) {
    if (options_.random && options_.trim_then_write && io.direction == Direction::write) {
        const FileState& file = *io.file;
        return file.next_offset[index_of(Direction::trim)] - file.last_start[index_of(Direction::trim)];
    }
    const std::size_t i = options_.size_index(index_of(io.direction), is_random);
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
            length = least + block_sizes_[i].below(most);
        } else {
            std::uint64_t draw = block_sizes_[i].below(100);
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
        length = std::min(length, most);
        if (length <= room) {
            return length;
        }
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
    bool is_random = false;
    if (!offsets_.choose(io, is_random)) {
        return false;
    }
    if (options_.trim_then_write && options_.random && io.direction == Direction::trim &&
        file.last_start[index_of(Direction::trim)] == io.offset) {
        // The same place again: without this the next one would be a trim once more.
        --file.last_start[index_of(Direction::write)];
    }
    io.length = block_size(io, is_random);
    if (io.length == 0 || io.offset + io.length > file.target->size_bytes) {
        return false;
    }
    offsets_.take(io, is_random);
    return true;
}

}  // namespace sampleblk::workload
