// SPDX-License-Identifier: MIT
// A disk's image, brought from one state to the next by what differs between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sampleblk/crash/states.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/mapping.hpp"

namespace sampleblk::crash {

// What an image holds, as a number: equal for equal contents, whatever led to them.
using Digest = std::array<std::uint64_t, 2>;

// For tables of them.
struct DigestHash {
    std::size_t operator()(const Digest& digest) const noexcept { return digest[0]; }
};

// So many of a write's sectors, from that one of its own on.
struct Part {
    std::uint32_t write = 0;  // of Log::writes()
    std::uint64_t first = 0;
    std::uint64_t sectors = 0;
};

// Not for several threads at once.
class Image {
  public:
    // Makes `path` (truncated if it is there) of `bytes` bytes: the contents of `base`, or zeros when that is empty.
    // Without a path there is no file, for one who has others build the states that it tells apart. The log must stay.
    // Throws InputError when the log writes beyond `bytes` or the base is larger, SystemError.
    Image(const Log& log, std::string path, const std::string& base, std::uint64_t bytes);

    // Takes a state without writing it to the file yet. Throws InputError for one that is not of the log.
    void take(const State& state);
    // Of the state that was taken.
    [[nodiscard]] Digest digest() const noexcept { return digest_; }
    // The same as what of the log lies over the base, in the order of its execution.
    [[nodiscard]] std::vector<Part> parts() const;
    // Writes it to the file; returns the sectors that were written.
    std::size_t write();
    // Undoes what others did to the file since write(): all of it is compared, and it is made anew where it is another
    // one. Returns the sectors that had changed.
    std::size_t restore();

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

  private:
    static constexpr std::uint32_t base_version = 0xffffffff;

    // One write's contents of one sector.
    struct Version {
        std::uint32_t write;
        std::uint32_t sector_id;
        const std::byte* data;  // null: zeros
        Digest digest;
        std::uint64_t place;  // of the sector within its write
    };
    enum class Presence : std::uint8_t { absent, whole, torn };

    void make_file();
    void need_file() const;
    void find_sectors();
    void index_versions();
    void refresh(std::uint32_t write);
    [[nodiscard]] bool is_present(std::uint32_t version) const;
    void show(std::uint32_t sector_id, std::uint32_t version);
    [[nodiscard]] const std::byte* contents(std::uint32_t sector_id) const;
    [[nodiscard]] const std::byte* base_at(std::uint64_t sector) const;

    const Log& log_;
    std::string path_;
    std::uint64_t bytes_;
    MappedFile base_;
    Fd fd_;
    Mapping map_;
    std::vector<bool> is_zero_;  // of each block that is compared at a time, whether the base has nothing there

    std::vector<std::uint64_t> sectors_;         // that any write may change, ascending; a sector's place is its id
    std::vector<Version> versions_;              // by sector, then by execution
    std::vector<std::uint32_t> first_version_;   // of each sector, and one past the last
    std::vector<std::uint32_t> versions_of_;     // of each write, its versions by sector
    std::vector<std::uint32_t> first_of_write_;  // into versions_of_, and one past the last
    std::vector<Digest> base_digest_;            // of each touched sector
    std::vector<std::uint32_t> top_;             // of each touched sector, the version that shows
    std::vector<std::uint32_t> in_file_;         // and the one that the file has
    std::vector<std::uint32_t> dirty_;           // sector ids
    std::vector<bool> is_dirty_;
    std::vector<Presence> presence_;  // of each write
    State state_;
    Digest digest_{};
};

}  // namespace sampleblk::crash
