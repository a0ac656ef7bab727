// SPDX-License-Identifier: MIT
// xfs of version 5, whose metadata says where it lies and whose it is: "XFS Algorithms & Data Structures", part III
// (https://mirrors.edge.kernel.org/pub/linux/utils/fs/xfs/docs/), fs/xfs/libxfs/xfs_format.h. All numbers big-endian.
#include <algorithm>
#include <array>
#include <bit>

#include "names_of.hpp"

namespace sampleblk::crash {

// Sources are compiled several at a time.
namespace xfs {

constexpr std::size_t super_bytes = 512;
constexpr std::uint64_t super_magic = 0x58465342;  // XFSB
constexpr std::uint64_t log_magic = 0xfeedbabe;
constexpr std::uint64_t inode_magic = 0x494e;  // IN
constexpr std::uint64_t quota_magic = 0x4451;  // DQ

constexpr std::uint64_t magic_of(const char (&text)[5]) {
    std::uint64_t found = 0;
    for (std::size_t i = 0; i < 4; ++i) {
        found = found << 8U | static_cast<unsigned char>(text[i]);
    }
    return found;
}

// A header: where it has its own address, in sectors, and its owner, which is an inode or an allocation group.
struct Header {
    std::uint64_t magic;
    std::size_t address;
    std::size_t owner;  // 0: the allocation group that it is in
    const char* name;
};
constexpr std::array headers{
    Header{magic_of("AB3B"), 16, 0, "free space tree by place"},
    Header{magic_of("AB3C"), 16, 0, "free space tree by size"},
    Header{magic_of("IAB3"), 16, 0, "inode tree"},
    Header{magic_of("FIB3"), 16, 0, "free inode tree"},
    Header{magic_of("RMB3"), 16, 0, "reverse mapping tree"},
    Header{magic_of("R3FC"), 16, 0, "reference count tree"},
    Header{magic_of("BMA3"), 24, 56, "extent tree"},
    Header{magic_of("XDB3"), 8, 40, "directory block"},
    Header{magic_of("XDD3"), 8, 40, "directory block"},
    Header{magic_of("XDF3"), 8, 40, "directory's free space"},
    Header{magic_of("XSLM"), 40, 32, "symbolic link"},
    Header{magic_of("XARM"), 40, 32, "extended attributes"},
};
// The same of those whose magic has two bytes, behind two addresses of neighbours.
constexpr std::array da_headers{
    Header{0x3ebe, 16, 48, "directory or attribute node"},
    Header{0x3df1, 16, 48, "directory leaf"},
    Header{0x3dff, 16, 48, "directory leaf"},
    Header{0x3bee, 16, 48, "extended attributes"},
};

class Xfs final : public NamesByHeader {
  public:
    Xfs(const Log& log, Bytes base) : NamesByHeader(log) {
        find_super(log, base, 0, super_bytes, [this](Bytes super) { return take(super); });
    }

  private:
    bool take(Bytes super) {
        constexpr std::uint64_t fifth = 5;
        if (be32(super, 0) != super_magic || (be16(super, 100) & 0xfU) != fifth) {
            return false;
        }
        const std::uint64_t block_bytes = be32(super, 4);
        const std::uint64_t unit_bytes = be16(super, 102);
        inode_bytes_ = be16(super, 104);
        group_blocks_ = be32(super, 84);
        groups_ = be32(super, 88);
        log_inodes_ = number(super, 123, 1);
        log_group_blocks_ = number(super, 124, 1);
        if (!std::has_single_bit(block_bytes) || block_bytes < sector_bytes || block_bytes > 65536 ||
            !std::has_single_bit(unit_bytes) || unit_bytes < sector_bytes || unit_bytes > block_bytes ||
            !std::has_single_bit(inode_bytes_) || inode_bytes_ < 256 || inode_bytes_ > block_bytes ||
            group_blocks_ == 0 || groups_ == 0 || log_group_blocks_ > 32 || log_inodes_ > 16) {
            return false;
        }
        block_ = block_bytes / sector_bytes;
        unit_ = unit_bytes / sector_bytes;
        group_ = group_blocks_ * block_;
        // 0: the log is on another disk.
        if (const std::uint64_t start = be64(super, 48); start != 0) {
            const std::uint64_t group = start >> log_group_blocks_;
            const std::uint64_t block = start & ((std::uint64_t{1} << log_group_blocks_) - 1);
            if (group < groups_ && block < group_blocks_) {
                log_first_ = group * group_ + block * block_;
                log_end_ = log_first_ + be32(super, 96) * block_;
            }
        }
        const std::size_t uuid = (be32(super, 216) & 0x4U) != 0 ? 248 : 32;  // XFS_SB_FEAT_INCOMPAT_META_UUID
        std::ranges::copy(super.subspan(uuid, 16), uuid_.begin());
        large_folders_ = number(super, 192, 1) != 0;
        return true;
    }

    [[nodiscard]] Run run(std::uint64_t sector, Bytes bytes, std::uint32_t /*write*/) const override {
        if (sector >= log_first_ && sector < log_end_) {
            return log_run(bytes, log_end_ - sector);
        }
        const std::uint64_t group = sector / group_;
        const std::uint64_t within = sector % group_;
        if (group >= groups_) {
            return {bytes.size() / sector_bytes, "behind the file system"};
        }
        const std::string of = " of group " + std::to_string(group);
        constexpr std::array heads{"backup superblock", "free space header", "inode header", "free list"};
        if (within < heads.size() * unit_) {
            const std::uint64_t head = within / unit_;
            return {unit_ - within % unit_, group == 0 && head == 0 ? "superblock" : heads.at(head) + of};
        }
        if (within < block_) {
            return {block_ - within, "unused sectors behind the headers" + of};
        }
        const std::uint64_t left = block_ - within % block_;
        if (left != block_ || bytes.size() < block_ * sector_bytes) {
            return {left, "data"};  // metadata is written in whole blocks
        }
        return {block_, name_of(sector, within / block_, group, bytes.first(block_ * sector_bytes))};
    }

    // From a header of the log to the end of what it has, or of the log.
    [[nodiscard]] static Run log_run(Bytes bytes, std::uint64_t until_end) {
        const std::uint64_t there = std::min<std::uint64_t>(bytes.size() / sector_bytes, until_end);
        if (be32(bytes, 0) != log_magic) {
            std::uint64_t next = 1;
            while (next < there && be32(bytes, next * sector_bytes) != log_magic) {
                ++next;
            }
            return {next, "log"};
        }
        // Version 2 has a further header for each 32 KiB of its largest record.
        constexpr std::uint64_t covered = 32768;
        const std::uint64_t largest = be32(bytes, 320);
        const std::uint64_t header =
            be32(bytes, 8) == 2 ? std::max<std::uint64_t>((largest + covered - 1) / covered, 1) : 1;
        const std::uint64_t size = (be32(bytes, 12) + sector_bytes - 1) / sector_bytes;
        return {std::min(there, header + size), "log, record of cycle " + std::to_string(be32(bytes, 4)) +
                                                    " at block " + std::to_string(be64(bytes, 16) & 0xffffffffU)};
    }

    [[nodiscard]] std::string name_of(std::uint64_t sector, std::uint64_t block, std::uint64_t group,
                                      Bytes bytes) const {
        const auto told = [&](const Header& header) {
            return std::string(header.name) + (header.owner == 0
                                                   ? " of group " + std::to_string(group)
                                                   : " of inode " + std::to_string(be64(bytes, header.owner)));
        };
        for (const Header& header : headers) {
            if (be32(bytes, 0) == header.magic && be64(bytes, header.address) == sector) {
                return told(header);
            }
        }
        for (const Header& header : da_headers) {
            if (be16(bytes, 8) == header.magic && be64(bytes, header.address) == sector) {
                return told(header);
            }
        }
        const std::uint64_t inode = ((group << log_group_blocks_) + block) << log_inodes_;
        if (be16(bytes, 0) == inode_magic && be64(bytes, 152) == inode) {
            return inodes(inode, bytes);
        }
        if (be16(bytes, 0) == quota_magic && std::ranges::equal(bytes.subspan(120, uuid_.size()), uuid_)) {
            return "quota";
        }
        return large_folders_ ? "data, or the rest of a directory block" : "data";
    }

    // Those that are in use.
    [[nodiscard]] std::string inodes(std::uint64_t first, Bytes bytes) const {
        constexpr std::size_t most = 8;
        const std::uint64_t count = bytes.size() / inode_bytes_;
        std::string text;
        std::size_t used = 0;
        for (std::uint64_t i = 0; i < count; ++i) {
            if (be16(bytes, i * inode_bytes_ + 2) != 0 && used++ < most) {
                text += (text.empty() ? "" : ", ") + std::to_string(first + i);
            }
        }
        if (used == 0) {
            return "inodes, free ones from " + std::to_string(first);
        }
        return (used == 1 ? "inodes, with inode " : "inodes, with inodes ") + text +
               (used > most ? " and " + std::to_string(used - most) + " more" : "");
    }

    std::uint64_t block_ = 0;  // these in sectors of 512 bytes
    std::uint64_t unit_ = 0;   // what xfs calls a sector
    std::uint64_t group_ = 0;
    std::uint64_t log_first_ = 0;
    std::uint64_t log_end_ = 0;
    std::uint64_t groups_ = 0;
    std::uint64_t group_blocks_ = 0;
    std::uint64_t log_group_blocks_ = 0;  // of bits
    std::uint64_t log_inodes_ = 0;
    std::uint64_t inode_bytes_ = 0;
    bool large_folders_ = false;
    std::array<std::byte, 16> uuid_{};
};

}  // namespace xfs

std::unique_ptr<NamesOf> names_of_xfs(const Log& log, Bytes base) {
    auto found = std::make_unique<xfs::Xfs>(log, base);
    if (!found->known()) {
        return nullptr;
    }
    return found;
}

}  // namespace sampleblk::crash
