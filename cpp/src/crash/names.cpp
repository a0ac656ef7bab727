// SPDX-License-Identifier: MIT
#include "sampleblk/crash/names.hpp"

#include <algorithm>
#include <array>

#include "names_of.hpp"
#include "sampleblk/interrupt.hpp"

namespace sampleblk::crash {

std::vector<Name> NamesByHeader::of(std::uint32_t write) const {
    std::vector<Name> found;
    if (write >= log_.writes().size()) {
        return found;
    }
    std::uint64_t at = 0;  // sectors of the write before this piece
    for (const Piece& piece : log_.writes()[write].pieces) {
        if (piece.data == nullptr) {
            if (piece.sectors != 0) {
                append(found, {at, piece.sectors, "blocks discarded or made zeros"});
            }
            at += piece.sectors;
            continue;
        }
        for (std::uint64_t done = 0; done < piece.sectors;) {
            const std::uint64_t left = piece.sectors - done;
            const Bytes bytes(piece.data + done * sector_bytes, left * sector_bytes);
            Run named = run(piece.sector + done, bytes, write);
            const std::uint64_t sectors = std::clamp<std::uint64_t>(named.sectors, 1, left);
            append(found, {at + done, sectors, std::move(named.text)});
            done += sectors;
        }
        at += piece.sectors;
    }
    return found;
}

void NamesByHeader::each_piece(const std::function<void(std::uint64_t, Bytes, std::uint32_t)>& look) const {
    for (std::uint32_t write = 0; write < log_.writes().size(); ++write) {
        for (const Piece& piece : log_.writes()[write].pieces) {
            if (piece.data != nullptr) {
                check_interrupt();
                look(piece.sector, Bytes(piece.data, piece.sectors * sector_bytes), write);
            }
        }
    }
}

bool NamesOf::find_super(const Log& log, Bytes base, std::uint64_t offset, std::size_t size,
                         const std::function<bool(Bytes)>& take) {
    known_ = base.size() >= size && offset <= base.size() - size && take(base.subspan(offset, size));
    if (known_) {
        return true;
    }
    const std::uint64_t first = offset / sector_bytes;
    for (const Write& write : log.writes()) {
        for (const Piece& piece : write.pieces) {
            check_interrupt();
            if (piece.data == nullptr || piece.sector > first || first - piece.sector > piece.sectors) {
                continue;
            }
            const Bytes bytes(piece.data, piece.sectors * sector_bytes);
            const std::size_t at = offset - piece.sector * sector_bytes;
            if (bytes.size() >= size && at <= bytes.size() - size && take(bytes.subspan(at, size))) {
                known_ = made_in_log_ = true;
                return true;
            }
        }
    }
    return false;
}

Names::Names(const Log& log, const std::string& base) {
    if (!base.empty()) {
        base_ = MappedFile(base);
    }
    // What the disk had before counts, not what was made of it later.
    constexpr std::array all{names_of_ext4, names_of_xfs, names_of_btrfs, names_of_f2fs};
    for (const auto& each : all) {
        std::unique_ptr<NamesOf> found = each(log, base_.bytes());
        if (found != nullptr && (names_ == nullptr || (names_->made_in_log() && !found->made_in_log()))) {
            names_ = std::move(found);
        }
    }
    base_.check();
}

Names::~Names() = default;

std::vector<Name> Names::of(std::uint32_t write) const {
    std::vector<Name> found;
    if (names_ != nullptr) {
        found = names_->of(write);
        base_.check();
    }
    return found;
}

}  // namespace sampleblk::crash
