// SPDX-License-Identifier: MIT
// f2fs: areas by the superblock, and nodes by their footer. Documentation/filesystems/f2fs.rst,
// include/linux/f2fs_fs.h. All numbers little-endian.
#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "names_of.hpp"

namespace sampleblk::crash {

// Sources are compiled several at a time.
namespace f2fs {

constexpr std::uint64_t super_offset = 1024;
constexpr std::size_t super_bytes = 512;
constexpr std::uint64_t super_magic = 0xf2f52010;

constexpr std::uint64_t footer_bytes = 24;
constexpr std::uint64_t addresses_offset = 360;
constexpr std::uint64_t nids_bytes = 20;
constexpr std::uint64_t inline_attributes = 0x01;
constexpr std::uint64_t inline_data = 0x02;
constexpr std::uint64_t inline_names = 0x04;
constexpr std::uint64_t extra_attributes = 0x20;
constexpr std::uint64_t attributes_bytes = 200;
constexpr std::uint64_t attributes_node = 0x1fffffff;

class F2fs final : public NamesByHeader {
  public:
    F2fs(const Log& log, Bytes base) : NamesByHeader(log) {
        if (find_super(log, base, super_offset, super_bytes, [this](Bytes super) { return take(super); })) {
            read_versions(base);
            each_piece([this](std::uint64_t sector, Bytes bytes, std::uint32_t write) {
                each_block(sector, bytes,
                           [&](std::uint64_t block, Bytes content) { read_node(block, content, write); });
            });
        }
    }

  private:
    struct Claim {
        std::uint32_t write;
        std::uint64_t inode;
    };
    struct Footer {
        std::uint64_t node;
        std::uint64_t inode;
        std::uint64_t place;  // among the inode's nodes
    };

    bool take(Bytes super) {
        constexpr std::uint64_t smallest = 12;
        constexpr std::uint64_t largest = 16;
        const std::uint64_t log_block = u32(super, 16);
        const std::uint64_t log_segment = u32(super, 20);
        if (u32(super, 0) != super_magic || log_block < smallest || log_block > largest || log_segment > largest) {
            return false;
        }
        block_bytes_ = std::uint64_t{1} << log_block;
        segment_blocks_ = std::uint64_t{1} << log_segment;
        checkpoint_ = u32(super, 76);
        segments_ = u32(super, 80);
        nodes_ = u32(super, 84);
        summaries_ = u32(super, 88);
        main_ = u32(super, 92);
        blocks_ = u64(super, 36);
        // Half of the table is the copy that is not valid; 9 bytes for an entry.
        constexpr std::uint64_t entry_bytes = 9;
        most_nodes_ = (u32(super, 60) / 2 << log_segment) * (block_bytes_ / entry_bytes);
        return checkpoint_ < segments_ && segments_ < nodes_ && nodes_ < summaries_ && summaries_ < main_ &&
               main_ < blocks_;
    }

    template <typename Look>
    void each_block(std::uint64_t sector, Bytes bytes, const Look& look) const {
        const std::uint64_t at = sector * sector_bytes;
        const std::uint64_t first = (block_bytes_ - at % block_bytes_) % block_bytes_;
        for (std::uint64_t i = first; i < bytes.size() && bytes.size() - i >= block_bytes_; i += block_bytes_) {
            look((at + i) / block_bytes_, bytes.subspan(i, block_bytes_));
        }
    }

    // A node has the version of the checkpoint before it: of those that the disk had, to the last one of the log.
    void read_versions(Bytes base) {
        const auto see = [this](std::uint64_t block, Bytes bytes) {
            if (block != checkpoint_ && block != checkpoint_ + segment_blocks_) {
                return;
            }
            if (const std::uint64_t version = u64(bytes, 0) & 0xffffffffU; version != 0) {
                first_version_ = std::min(first_version_, version);
                last_version_ = std::max(last_version_, version);
            }
        };
        for (const std::uint64_t block : {checkpoint_, checkpoint_ + segment_blocks_}) {
            if (base.size() / block_bytes_ > block) {
                see(block, base.subspan(block * block_bytes_, block_bytes_));
            }
        }
        each_piece([&](std::uint64_t sector, Bytes bytes, std::uint32_t) { each_block(sector, bytes, see); });
    }

    [[nodiscard]] bool has_footer(std::uint64_t block, Bytes bytes, Footer& footer) const {
        const Bytes end = bytes.last(footer_bytes);
        footer = {u32(end, 0), u32(end, 4), u32(end, 8) >> 3U};
        const std::uint64_t version = u32(end, 12);
        const std::uint64_t next = u32(end, 20);
        return block >= main_ && block < blocks_ && footer.node != 0 && footer.node < most_nodes_ &&
               footer.inode != 0 && footer.inode < most_nodes_ &&
               (footer.node == footer.inode) == (footer.place == 0) && version >= first_version_ &&
               version <= last_version_ && next >= main_ && next <= blocks_;
    }

    // An indirect node has nodes, not data (IS_DNODE of fs/f2fs/node.h).
    [[nodiscard]] bool is_indirect(std::uint64_t place) const {
        const std::uint64_t per_node = (block_bytes_ - footer_bytes) / 4;
        if (place == 3 || place == 4 + per_node || place == 5 + 2 * per_node) {
            return true;
        }
        return place >= 6 + 2 * per_node && (place - (6 + 2 * per_node)) % (per_node + 1) == 0;
    }

    // Whose data lies where.
    void read_node(std::uint64_t block, Bytes bytes, std::uint32_t write) {
        Footer footer{};
        if (!has_footer(block, bytes, footer) || footer.place == attributes_node || is_indirect(footer.place)) {
            return;
        }
        std::uint64_t at = 0;
        std::uint64_t end = block_bytes_ - footer_bytes;
        if (footer.place == 0) {
            constexpr std::uint64_t type_mask = 0xf000;
            constexpr std::uint64_t directory = 0x4000;
            folders_[footer.inode] = (u16(bytes, 0) & type_mask) == directory;
            const std::uint64_t flags = number(bytes, 3, 1);
            if ((flags & (inline_data | inline_names)) != 0) {
                return;
            }
            at = addresses_offset + ((flags & extra_attributes) != 0 ? u16(bytes, addresses_offset) : 0);
            end -= nids_bytes + ((flags & inline_attributes) != 0 ? attributes_bytes : 0);
        }
        for (; at + 4 <= end; at += 4) {
            if (const std::uint64_t claimed = u32(bytes, at); claimed >= main_ && claimed < blocks_) {
                std::vector<Claim>& claims = claims_[claimed];
                if (claims.empty() || claims.back().inode != footer.inode || claims.back().write != write) {
                    claims.push_back({write, footer.inode});
                }
            }
        }
    }

    [[nodiscard]] Run run(std::uint64_t sector, Bytes bytes, std::uint32_t write) const override {
        const std::uint64_t per_block = block_bytes_ / sector_bytes;
        const std::uint64_t block = sector / per_block;
        const std::uint64_t left = per_block - sector % per_block;
        if (block < checkpoint_) {
            constexpr std::uint64_t copies = 2;
            if (block >= copies) {
                return {left, "unused blocks behind the superblock"};
            }
            return {left, block == 0 ? "superblock" : "superblock, copy 1"};
        }
        struct Area {
            std::uint64_t end;
            const char* name;
        };
        const std::array areas{Area{checkpoint_ + segment_blocks_, "checkpoint 1"},
                               Area{checkpoint_ + 2 * segment_blocks_, "checkpoint 2"},
                               Area{segments_, "checkpoint"},
                               Area{nodes_, "segment information table"},
                               Area{summaries_, "node address table"},
                               Area{main_, "segment summaries"}};
        for (const Area& area : areas) {
            if (block < area.end) {
                return {left, area.name};
            }
        }
        if (block >= blocks_) {
            return {left, "behind the file system"};
        }
        Footer footer{};
        if (left == per_block && bytes.size() >= block_bytes_ && has_footer(block, bytes.first(block_bytes_), footer)) {
            const std::string of = std::to_string(footer.inode);
            if (footer.place == 0) {
                return {left, "inode " + of};
            }
            if (footer.place == attributes_node) {
                return {left, "extended attributes of inode " + of};
            }
            return {left, (is_indirect(footer.place) ? "indirect node of inode " : "direct node of inode ") + of};
        }
        return {left, data_name(block, write)};
    }

    // Data is written before the node that has it.
    [[nodiscard]] std::string data_name(std::uint64_t block, std::uint32_t write) const {
        const auto found = claims_.find(block);
        if (found == claims_.end()) {
            return "data";
        }
        const auto after = std::ranges::lower_bound(found->second, write, {}, &Claim::write);
        const std::uint64_t inode = after == found->second.end() ? found->second.back().inode : after->inode;
        const auto folder = folders_.find(inode);
        return (folder != folders_.end() && folder->second ? "directory block of inode " : "data of inode ") +
               std::to_string(inode);
    }

    std::uint64_t block_bytes_ = 0;
    std::uint64_t segment_blocks_ = 0;
    std::uint64_t checkpoint_ = 0;  // first blocks of the areas
    std::uint64_t segments_ = 0;
    std::uint64_t nodes_ = 0;
    std::uint64_t summaries_ = 0;
    std::uint64_t main_ = 0;
    std::uint64_t blocks_ = 0;
    std::uint64_t most_nodes_ = 0;
    std::uint64_t first_version_ = ~std::uint64_t{0};
    std::uint64_t last_version_ = 0;
    std::unordered_map<std::uint64_t, std::vector<Claim>> claims_;  // by block, in order
    std::unordered_map<std::uint64_t, bool> folders_;               // inode -> whether it is a directory
};

}  // namespace f2fs

std::unique_ptr<NamesOf> names_of_f2fs(const Log& log, Bytes base) {
    auto found = std::make_unique<f2fs::F2fs>(log, base);
    if (!found->known()) {
        return nullptr;
    }
    return found;
}

}  // namespace sampleblk::crash
