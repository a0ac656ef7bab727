// SPDX-License-Identifier: MIT
#include "data/verify.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "data/buffers.hpp"
#include "data/digest.hpp"
#include "sampleblk/crc.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk::workload {

namespace {

constexpr std::uint32_t header_magic = 0x56424c53;  // "SLBV" in the file

// Little-endian in the file, as on the machines that we run on.
struct Header {
    std::uint32_t magic;
    std::uint16_t kind;
    std::uint16_t header_bytes;
    std::uint32_t block_bytes;
    std::uint32_t header_crc32c;  // of the header, this field zero, digest included
    std::uint64_t offset_bytes;
    std::uint64_t seed;
    std::uint64_t sequence;
    std::uint64_t reserved;
};
static_assert(sizeof(Header) == 48);

std::uint32_t crc_of_header(std::span<const std::byte> header) {
    std::array<std::byte, sizeof(Header) + longest_digest> copy{};
    std::memcpy(copy.data(), header.data(), header.size());
    std::memset(copy.data() + offsetof(Header, header_crc32c), 0, sizeof(std::uint32_t));
    return crc32c({copy.data(), header.size()});
}

bool wants_header(Verify kind) {
    return kind != Verify::pattern && kind != Verify::null && kind != Verify::none;
}

// The header lies elsewhere in the block with verify_offset: it changes places with what is there.
void swap_header(std::span<std::byte> block, std::size_t header, std::uint64_t where) {
    if (where == 0 || where + header > block.size() || where < header) {
        return;
    }
    std::swap_ranges(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(header),
                     block.begin() + static_cast<std::ptrdiff_t>(where));
}

}  // namespace

std::size_t verify_header_size(Verify kind) noexcept {
    return wants_header(kind) ? sizeof(Header) + (digest_size(kind) + 7) / 8 * 8 : 0;
}

void check_verify_room(const JobOptions& options) {
    const std::size_t least = verify_header_size(options.verify);
    const std::uint64_t block =
        options.verify_interval_bytes != 0 ? options.verify_interval_bytes : options.min_bs[index_of(Direction::write)];
    if (block < least) {
        throw InputError("job '" + options.name + "': verify has blocks of " + std::to_string(block) +
                             " bytes, with no room for its header",
                         {}, 0, "at least " + std::to_string(least) + " bytes");
    }
    // The header changes places with what is there, which must be all of it, and in the block.
    const std::uint64_t where = options.verify_offset_bytes;
    if (least == 0 || where == 0 || (where >= least && where <= block - least)) {
        return;
    }
    const bool has_place = block >= 2 * least;
    throw InputError(
        "job '" + options.name + "': verify_offset=" + std::to_string(where) + " is no place for a header of " +
            std::to_string(least) + " bytes in a block of " + std::to_string(block),
        {}, 0, has_place ? "0, or " + std::to_string(least) + " to " + std::to_string(block - least) : "0");
}

Verifier::Verifier(const JobPlan& plan, Measured& measured, MismatchList& mismatches)
    : plan_(plan),
      options_(plan.options),
      measured_(measured),
      mismatches_(mismatches),
      has_header_(wants_header(options_.verify)),
      overlapping_(plan.writes_may_overlap()),
      remembers_(options_.do_verify && options_.writes) {}

std::uint64_t Verifier::interval_of(const Io& io) const noexcept {
    return options_.verify_interval_bytes != 0 ? options_.verify_interval_bytes : io.length;
}

void Verifier::fill_block(std::span<std::byte> block, std::uint64_t offset, std::uint64_t seed,
                          std::uint64_t sequence) const {
    const std::size_t header = verify_header_size(options_.verify);
    const std::span<std::byte> payload = block.subspan(header);
    if (!options_.verify_pattern.empty()) {
        fill_pattern(payload, options_.verify_pattern, offset);
    } else {
        Random random(mix64(seed ^ mix64(offset)) ^ sequence);
        fill_random(payload, random);
    }
    if (!has_header_) {
        return;
    }
    const Digest digest = digest_of(options_.verify, payload);
    Header fields{.magic = header_magic,
                  .kind = static_cast<std::uint16_t>(options_.verify),
                  .header_bytes = static_cast<std::uint16_t>(header),
                  .block_bytes = static_cast<std::uint32_t>(block.size()),
                  .header_crc32c = 0,
                  .offset_bytes = offset,
                  .seed = seed,
                  .sequence = sequence,
                  .reserved = 0};
    std::memset(block.data(), 0, header);
    std::memcpy(block.data(), &fields, sizeof(fields));
    std::memcpy(block.data() + sizeof(fields), digest.bytes.data(), digest.size);
    fields.header_crc32c = crc_of_header(block.first(header));
    std::memcpy(block.data(), &fields, sizeof(fields));
    swap_header(block, header, options_.verify_offset_bytes);
}

void Verifier::erase_overlapped(std::map<Place, Piece>& pieces, const Io& io) {
    const std::uint32_t file = io.file->number;
    auto at = pieces.upper_bound({file, io.offset});
    if (at != pieces.begin()) {
        const auto before = std::prev(at);
        const Piece& piece = before->second;
        if (piece.file == file && piece.offset + piece.length > io.offset) {
            at = before;
        }
    }
    while (at != pieces.end() && at->first < Place{file, io.offset + io.length}) {
        at = pieces.erase(at);
    }
}

void Verifier::note(Io& io) {
    io.sequence = sequence_++;
    if (!remembers_) {
        return;
    }
    const Piece piece{.file = io.file->number, .offset = io.offset, .length = io.length, .sequence = io.sequence};
    if (overlapping_) {
        erase_overlapped(by_place_, io);
        by_place_.insert_or_assign(Place{piece.file, piece.offset}, piece);
    } else {
        in_order_.push_back(piece);
    }
    if (options_.verify_only) {
        erase_overlapped(of_all_passes_, io);
        of_all_passes_.insert_or_assign(Place{piece.file, piece.offset}, piece);
    }
}

void Verifier::fill(Io& io) {
    if (options_.verify == Verify::pattern) {
        fill_pattern({io.buffer, static_cast<std::size_t>(io.length)}, options_.verify_pattern, io.offset);
    } else if (options_.verify != Verify::null) {
        const std::uint64_t interval = interval_of(io);
        for (std::uint64_t at = 0; at < io.length; at += interval) {
            const std::size_t length = static_cast<std::size_t>(std::min(interval, io.length - at));
            const std::span<std::byte> block(io.buffer + at, length);
            if (length < verify_header_size(options_.verify)) {
                std::ranges::fill(block, std::byte{0});  // of a replay; too short to be told from others
            } else {
                fill_block(block, io.offset + at, plan_.seed, sequence_);
            }
        }
    }
    note(io);
}

void Verifier::forget(const Io& io) {
    if (options_.verify_only) {
        erase_overlapped(of_all_passes_, io);
    }
    if (overlapping_) {
        erase_overlapped(by_place_, io);
    } else {
        std::erase_if(in_order_, [&](const Piece& piece) {
            return piece.file == io.file->number && piece.offset < io.offset + io.length &&
                   io.offset < piece.offset + piece.length;
        });
    }
}

void Verifier::forget_all() noexcept {
    in_order_.clear();
    by_place_.clear();
}

void Verifier::recall() {
    in_order_.clear();
    by_place_ = std::exchange(of_all_passes_, {});
    overlapping_ = true;
}

bool Verifier::next(Io& io, std::vector<FileState>& files) {
    if (pending() == 0) {
        return false;
    }
    const Piece piece = overlapping_ ? by_place_.begin()->second : in_order_.front();
    if (overlapping_) {
        by_place_.erase(by_place_.begin());
    } else {
        in_order_.pop_front();
    }
    io.file = &files[piece.file];
    io.offset = piece.offset;
    io.length = piece.length;
    io.direction = Direction::read;
    io.sync = SyncKind::none;
    io.verify_read = true;
    io.sequence = piece.sequence;
    return true;
}

bool Verifier::next_of_backlog(Io& io, std::vector<FileState>& files) {
    if (backlog_is_due()) {
        backlog_left_ = options_.verify_backlog_batch != 0 ? options_.verify_backlog_batch : pending();
    }
    const bool taken = backlog_left_ != 0 && next(io, files);
    backlog_left_ = taken ? backlog_left_ - 1 : 0;
    return taken;
}

void Verifier::dump(std::span<const std::byte> expected, std::span<const std::byte> found, std::uint64_t offset,
                    const Io& io) {
    ++dumped_;
    for (const auto& [kind, bytes] : {std::pair{"expected", expected}, std::pair{"received", found}}) {
        const std::string path = io.file->target->path + "." + std::to_string(offset) + "." + kind;
        try {
            write_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, O_CREAT | O_TRUNC);
        } catch (const SystemError&) {
            dumped_ = mismatches_kept;  // no room for dumps; the mismatch itself is recorded
        }
    }
}

void Verifier::record(std::span<const std::byte> expected, std::span<const std::byte> found, std::uint64_t offset,
                      VerifyMismatch::Kind kind, const Io& io) {
    if (options_.verify_dump && dumped_ < mismatches_kept) {
        dump(expected, found, offset, io);
    }
    VerifyMismatch* const mismatch = add_mismatch(offset, found.size(), kind, io);
    if (mismatch == nullptr) {
        return;
    }
    const auto difference = std::ranges::mismatch(expected, found).in1;
    auto at = static_cast<std::size_t>(difference - expected.begin());
    at = at == expected.size() ? 0 : at;
    mismatch->offset_bytes = offset + at;
    mismatch->shown_bytes = static_cast<std::uint32_t>(std::min<std::size_t>(16, expected.size() - at));
    std::memcpy(mismatch->expected.data(), expected.data() + at, mismatch->shown_bytes);
    std::memcpy(mismatch->found.data(), found.data() + at, mismatch->shown_bytes);
}

void Verifier::record_missing(std::uint64_t offset, std::uint64_t length, std::uint64_t there, const Io& io) {
    VerifyMismatch* const mismatch = add_mismatch(offset, length, VerifyMismatch::Kind::missing, io);
    if (mismatch != nullptr) {
        mismatch->offset_bytes = std::max(offset, io.offset + there);
    }
}

VerifyMismatch* Verifier::add_mismatch(std::uint64_t block_offset, std::uint64_t block_length,
                                       VerifyMismatch::Kind kind, const Io& io) {
    ++measured_.verify_errors;
    if (mismatches_.count >= mismatches_kept) {
        return nullptr;
    }
    VerifyMismatch& mismatch = mismatches_.entries[mismatches_.count++];
    mismatch.block_offset_bytes = block_offset;
    mismatch.block_length_bytes = block_length;
    mismatch.kind = kind;
    mismatch.file = io.file->number;
    return &mismatch;
}

bool Verifier::check_block(std::span<const std::byte> found, std::uint64_t offset,
                           std::optional<std::uint64_t> sequence, const Io& io) {
    if (!has_header_) {
        const auto expected = std::span<const std::byte>(expected_).subspan(offset - io.offset, found.size());
        if (std::memcmp(expected.data(), found.data(), found.size()) == 0) {
            return true;
        }
        record(expected, found, offset, VerifyMismatch::Kind::pattern, io);
        return false;
    }
    expected_.resize(found.size());
    const std::size_t header = verify_header_size(options_.verify);
    std::span<const std::byte> block = found;
    if (options_.verify_offset_bytes != 0) {
        unswapped_.assign(found.begin(), found.end());
        swap_header(unswapped_, header, options_.verify_offset_bytes);
        block = unswapped_;
    }
    Header fields{};
    std::memcpy(&fields, block.data(), sizeof(fields));
    const bool header_whole = fields.magic == header_magic && fields.header_bytes == header &&
                              fields.kind == static_cast<std::uint16_t>(options_.verify) &&
                              fields.header_crc32c == crc_of_header(block.first(header));
    const bool header_right = header_whole && fields.block_bytes == found.size() && fields.offset_bytes == offset &&
                              (!sequence || !options_.verify_write_sequence || fields.sequence == *sequence) &&
                              (!sequence || !options_.verify_header_seed || fields.seed == plan_.seed);
    if (header_right) {
        if (options_.verify == Verify::header_only) {
            return true;
        }
        const std::span<const std::byte> payload = block.subspan(header);
        bool right = false;
        if (options_.verify == Verify::pattern_hdr) {
            fill_pattern(expected_, options_.verify_pattern, offset);
            right = std::memcmp(expected_.data(), payload.data(), payload.size()) == 0;
        } else {
            const Digest digest = digest_of(options_.verify, payload);
            right = std::memcmp(block.data() + sizeof(fields), digest.bytes.data(), digest.size) == 0;
        }
        if (right) {
            return true;
        }
    }
    // What should be there can be made again, so the first wrong byte can be named. Who wrote it, and when, we know
    // from our own notes or, in a job that only reads or does not ask, from a header that is whole.
    const bool any_seed = header_whole && (!sequence || !options_.verify_header_seed);
    const bool any_sequence = header_whole && (!sequence || !options_.verify_write_sequence);
    fill_block(expected_, offset, any_seed ? fields.seed : plan_.seed,
               any_sequence ? fields.sequence : sequence.value_or(0));
    record(expected_, found, offset,
           header_right   ? VerifyMismatch::Kind::contents
           : header_whole ? VerifyMismatch::Kind::other_block
                          : VerifyMismatch::Kind::header,
           io);
    return false;
}

bool Verifier::check(const Io& io, std::uint64_t there) {
    if (options_.verify == Verify::null || options_.engine == Engine::null) {
        return true;  // the null engine moves no data to check
    }
    const std::uint64_t interval = interval_of(io);
    const std::optional<std::uint64_t> sequence = io.verify_read ? std::optional(io.sequence) : std::nullopt;
    bool right = true;
    if (!has_header_) {
        // As fio has it, the pattern goes on from block to block, and %o is where the whole I/O begins.
        expected_.resize(static_cast<std::size_t>(io.length));
        fill_pattern(expected_, options_.verify_pattern, io.offset);
    }
    for (std::uint64_t at = 0; at < io.length; at += interval) {
        const std::size_t length = static_cast<std::size_t>(std::min(interval, io.length - at));
        if (length < verify_header_size(options_.verify)) {
            continue;
        }
        ++measured_.verified_blocks;
        if (at + length > there) {
            record_missing(io.offset + at, length, there, io);
            right = false;
            continue;
        }
        right = check_block({io.buffer + at, length}, io.offset + at, sequence, io) && right;
    }
    if (!right && (options_.continue_on_error & continue_on_verify) != 0) {
        measured_.count_error(EILSEQ);
    }
    return right || !options_.verify_fatal;
}

}  // namespace sampleblk::workload
