// SPDX-License-Identifier: MIT
// Disks that a checker has found sound, known again by what it read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sampleblk/crash/image.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/mapping.hpp"

namespace sampleblk::crash {

// Bytes of a disk that a checker asked for at once.
struct Read {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
};

// Where processes tell each other what they have learned: memory that is made before they are forked, to which each
// appends whole records. For several threads at once.
class VerdictBoard {
  public:
    // Throws SystemError.
    VerdictBoard();

    // Appends all of it, or nothing where the board is full.
    void append(std::span<const std::byte> record) const;
    // What is there from `offset` on.
    [[nodiscard]] std::vector<std::byte> from(std::uint64_t offset) const;

  private:
    [[nodiscard]] std::uint64_t size() const;

    Fd memory_;
};

// A checker that only reads, and depends on nothing but what it reads, says the same of a disk on which the same is
// there: which it reads next depends on what it has read. So what it has once found sound is a path in a tree of reads
// and their contents; of one with several threads there are several, as they may read in another order. Not for several
// threads at once.
//
// Of the superblock of an ext4 the times and counters that each mount changes do not count, of which e2fsck(8) asks
// only that the times are past; of its checksum, whether it is right.
class Verdicts {
  public:
    // Throws SystemError.
    Verdicts();
    // With what others learn of the same checker, told by its command. The board must stay.
    Verdicts(const VerdictBoard& board, std::string_view checker);

    // Whether the disk has at `path` what some run read that found it sound. Throws SystemError when it cannot be read.
    [[nodiscard]] bool is_sound(const std::string& path);

    // A run that found sound what is at `path`, and has been there unchanged since, read this, in this order.
    void learn(const std::string& path, std::span<const Read> reads);

    // Known paths through the tree, those of others only where they were needed.
    [[nodiscard]] std::size_t size() const noexcept { return sound_; }

  private:
    using Nodes = std::vector<std::uint32_t>;
    // One read, and where it may go on by what was there.
    struct Node {
        Read read;
        std::unordered_map<Digest, Nodes, DigestHash> next;
    };

    // A read of a run that found a disk sound, and what was there.
    struct Step {
        Read read;
        Digest contents;
    };

    [[nodiscard]] Digest contents(int fd, const std::string& path, const Read& read);
    [[nodiscard]] bool is_sound_from(const Nodes& nodes, int fd, const std::string& path);
    // Returns whether it was not known.
    bool add(std::span<const Step> steps);
    void tell(std::span<const Step> steps) const;
    // Returns whether others knew anything new.
    bool hear();

    std::deque<Node> nodes_;  // whose maps are pointed to while others are added
    Nodes first_;
    Mapping buffer_;  // whole pages
    std::size_t sound_ = 0;
    const VerdictBoard* board_ = nullptr;
    std::uint64_t checker_ = 0;  // on the board
    std::uint64_t heard_ = 0;    // of its bytes
};

}  // namespace sampleblk::crash
