// SPDX-License-Identifier: MIT
// What a file system has to say for its writes to have names: one implementation for each, chosen by names.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sampleblk/crash/log.hpp"
#include "sampleblk/crash/names.hpp"

namespace sampleblk::crash {

using Bytes = std::span<const std::byte>;

// A number at an offset; 0 where the bytes end before it.
inline std::uint64_t number(Bytes bytes, std::size_t offset, std::size_t size, bool big = false) {
    if (offset > bytes.size() || bytes.size() - offset < size) {
        return 0;
    }
    std::uint64_t found = 0;
    for (std::size_t i = 0; i < size; ++i) {
        found = found << 8U | std::to_integer<std::uint64_t>(bytes[offset + (big ? i : size - 1 - i)]);
    }
    return found;
}
inline std::uint64_t u16(Bytes bytes, std::size_t offset) {
    return number(bytes, offset, 2);
}
inline std::uint64_t u32(Bytes bytes, std::size_t offset) {
    return number(bytes, offset, 4);
}
inline std::uint64_t u64(Bytes bytes, std::size_t offset) {
    return number(bytes, offset, 8);
}
inline std::uint64_t be16(Bytes bytes, std::size_t offset) {
    return number(bytes, offset, 2, true);
}
inline std::uint64_t be32(Bytes bytes, std::size_t offset) {
    return number(bytes, offset, 4, true);
}
inline std::uint64_t be64(Bytes bytes, std::size_t offset) {
    return number(bytes, offset, 8, true);
}

// Adds a run, or makes the one before it longer when that has the same name.
inline void append(std::vector<Name>& names, Name name) {
    if (!names.empty() && names.back().text == name.text) {
        names.back().sectors += name.sectors;
    } else {
        names.push_back(std::move(name));
    }
}

class NamesOf {
  public:
    NamesOf() = default;
    NamesOf(const NamesOf&) = delete;
    NamesOf& operator=(const NamesOf&) = delete;
    virtual ~NamesOf() = default;

    // As Names::of().
    [[nodiscard]] virtual std::vector<Name> of(std::uint32_t write) const = 0;

    // Whether the base or the log has the file system.
    [[nodiscard]] bool known() const noexcept { return known_; }
    // Whether it was made while the log was recorded.
    [[nodiscard]] bool made_in_log() const noexcept { return made_in_log_; }

  protected:
    // The superblock at a byte offset: what the base has there, or what was first written there whole, if `take` does.
    bool find_super(const Log& log, Bytes base, std::uint64_t offset, std::size_t size,
                    const std::function<bool(Bytes)>& take);

  private:
    bool known_ = false;
    bool made_in_log_ = false;
};

// A file system whose structures say themselves what they are, by their place or their header.
class NamesByHeader : public NamesOf {
  public:
    explicit NamesByHeader(const Log& log) : log_(log) {}
    [[nodiscard]] std::vector<Name> of(std::uint32_t write) const override;

  protected:
    struct Run {
        std::uint64_t sectors;
        std::string text;
    };
    // The name of what a write puts at `sector`, and for how many sectors from there; `bytes` are all that follow, of
    // which there is at least a sector. Fewer than 1 or more than there are count as 1 and as all.
    [[nodiscard]] virtual Run run(std::uint64_t sector, Bytes bytes, std::uint32_t write) const = 0;

    // Calls with (sector, bytes, write) of each piece that the log writes with data.
    void each_piece(const std::function<void(std::uint64_t, Bytes, std::uint32_t)>& look) const;

    [[nodiscard]] const Log& log() const noexcept { return log_; }

  private:
    const Log& log_;
};

// What a file system says of a log, or null when neither the base nor the log has it. The base and the log must stay.
[[nodiscard]] std::unique_ptr<NamesOf> names_of_ext4(const Log& log, Bytes base);
[[nodiscard]] std::unique_ptr<NamesOf> names_of_xfs(const Log& log, Bytes base);
[[nodiscard]] std::unique_ptr<NamesOf> names_of_btrfs(const Log& log, Bytes base);
[[nodiscard]] std::unique_ptr<NamesOf> names_of_f2fs(const Log& log, Bytes base);

}  // namespace sampleblk::crash
