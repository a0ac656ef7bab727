// SPDX-License-Identifier: MIT
#include "verify.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "digest.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/workload/buffers.hpp"

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

Verifier::Verifier(const JobPlan& plan, JobState& state)
    : plan_(plan),
      options_(plan.options),
      state_(state),
      has_header_(wants_header(options_.verify)),
      may_overlap_(options_.random && options_.norandommap),
      remembers_(options_.do_verify && options_.writes) {
    const bool skewed = options_.distribution == Distribution::zipf || options_.distribution == Distribution::pareto ||
                        options_.distribution == Distribution::normal;
    may_overlap_ = options_.random && (options_.norandommap || skewed || options_.percentage_random[1] != 100);
    const std::size_t least = verify_header_size(options_.verify);
    const std::uint64_t block = options_.verify_interval_bytes != 0 ? options_.verify_interval_bytes
                                                                    : std::min(options_.min_bs[0], options_.min_bs[1]);
    if (block < least) {
        throw InputError("blocks of " + std::to_string(block) + " bytes have no room for the verify header", {}, 0,
                         "at least " + std::to_string(least) + " bytes");
    }
}

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

void Verifier::note(const Io& io) {
    if (remembers_) {
        pieces_.push_back({.offset = io.offset,
                           .sequence = sequence_,
                           .length = static_cast<std::uint32_t>(io.length),
                           .file = io.file->number});
        if (may_overlap_) {
            latest_[mix64(io.offset) ^ io.file->number] = sequence_;
        }
    }
    ++sequence_;
}

void Verifier::fill(const Io& io) {
    if (options_.verify != Verify::null) {
        const std::uint64_t interval = interval_of(io);
        for (std::uint64_t at = 0; at < io.length; at += interval) {
            const std::size_t length = static_cast<std::size_t>(std::min(interval, io.length - at));
            fill_block({io.buffer + at, length}, io.offset + at, plan_.seed, sequence_);
        }
    }
    note(io);
}

bool Verifier::replaced(const Piece& piece) const {
    if (!may_overlap_) {
        return false;
    }
    const auto found = latest_.find(mix64(piece.offset) ^ piece.file);
    return found != latest_.end() && found->second != piece.sequence;
}

void Verifier::begin_checking() {
    if (may_overlap_) {
        std::erase_if(pieces_, [this](const Piece& piece) { return replaced(piece); });
        next_ = 0;
    }
}

bool Verifier::next(Io& io, std::vector<FileState>& files) {
    while (next_ < pieces_.size() && replaced(pieces_[next_])) {
        ++next_;
    }
    if (next_ >= pieces_.size()) {
        return false;
    }
    const Piece& piece = pieces_[next_++];
    io.file = &files[piece.file];
    io.offset = piece.offset;
    io.length = piece.length;
    io.direction = Direction::read;
    io.sync = SyncKind::none;
    io.verify_read = true;
    io.verify_sequence = piece.sequence;
    if (next_ == pieces_.size()) {
        pieces_.clear();
        next_ = 0;
    }
    return true;
}

void Verifier::forget() noexcept {
    pieces_.clear();
    latest_.clear();
    next_ = 0;
}

void Verifier::record(std::span<const std::byte> expected, std::span<const std::byte> found, std::uint64_t offset,
                      const char* what, const Io& io) {
    ++state_.verify_errors;
    const auto difference = std::mismatch(expected.begin(), expected.end(), found.begin());
    auto at = static_cast<std::size_t>(difference.first - expected.begin());
    at = at == expected.size() ? 0 : at;
    if (options_.verify_dump && dumped_ < mismatches_kept) {
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
    if (state_.mismatches_shown >= mismatches_kept) {
        return;
    }
    VerifyMismatch& mismatch = state_.mismatches[state_.mismatches_shown++];
    mismatch.offset_bytes = offset + at;
    mismatch.block_offset_bytes = offset;
    mismatch.block_length_bytes = found.size();
    mismatch.shown_bytes = static_cast<std::uint32_t>(std::min<std::size_t>(16, expected.size() - at));
    std::memcpy(mismatch.expected.data(), expected.data() + at, mismatch.shown_bytes);
    std::memcpy(mismatch.found.data(), found.data() + at, mismatch.shown_bytes);
    mismatch.what.set(what);
    mismatch.path.set(io.file->target->path);
}

bool Verifier::check_block(std::span<const std::byte> found, std::uint64_t offset,
                           std::optional<std::uint64_t> sequence, const Io& io) {
    expected_.resize(found.size());
    if (!has_header_) {
        fill_pattern(expected_, options_.verify_pattern, offset);
        if (std::memcmp(expected_.data(), found.data(), found.size()) == 0) {
            return true;
        }
        record(expected_, found, offset, "pattern", io);
        return false;
    }
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
                              (!sequence || (fields.sequence == *sequence && fields.seed == plan_.seed));
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
    // What should be there can be made again, so the first wrong byte can be named. Who wrote it, and
    // when, we know from our own notes or, in a job that only reads, from a header that is whole.
    const std::uint64_t seed = sequence || !header_whole ? plan_.seed : fields.seed;
    fill_block(expected_, offset, seed, sequence ? *sequence : header_whole ? fields.sequence : 0);
    record(expected_, found, offset,
           header_right   ? "contents"
           : header_whole ? "header of another block or write"
                          : "header",
           io);
    return false;
}

bool Verifier::check(const Io& io) {
    if (options_.verify == Verify::null) {
        return true;
    }
    const std::uint64_t interval = interval_of(io);
    const std::optional<std::uint64_t> sequence = io.verify_read ? std::optional(io.verify_sequence) : std::nullopt;
    bool right = true;
    for (std::uint64_t at = 0; at < io.length; at += interval) {
        const std::size_t length = static_cast<std::size_t>(std::min(interval, io.length - at));
        ++state_.verified_blocks;
        right = check_block({io.buffer + at, length}, io.offset + at, sequence, io) && right;
    }
    return right || !options_.verify_fatal;
}

}  // namespace sampleblk::workload
