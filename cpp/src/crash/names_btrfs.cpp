// SPDX-License-Identifier: MIT
// btrfs, whose tree blocks say whose they are: https://btrfs.readthedocs.io/en/latest/dev/On-disk-format.html,
// include/uapi/linux/btrfs_tree.h. All numbers little-endian.
#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>

#include "names_of.hpp"

namespace sampleblk::crash {

// Sources are compiled several at a time.
namespace btrfs {

constexpr std::uint64_t super_offset = 65536;
constexpr std::size_t super_bytes = 4096;
constexpr std::uint64_t super_magic = 0x4d5f53665248425f;
constexpr std::array<std::uint64_t, 3> supers{super_offset, std::uint64_t{64} << 20U, std::uint64_t{256} << 30U};
constexpr std::uint64_t incompat_metadata_uuid = 1U << 10U;

constexpr std::size_t header_bytes = 101;
constexpr std::size_t item_bytes = 25;
constexpr std::size_t pointer_bytes = 33;
constexpr std::size_t key_bytes = 17;
constexpr std::size_t chunk_bytes = 48;
constexpr std::size_t stripe_bytes = 32;
constexpr std::uint64_t highest_level = 7;

constexpr std::uint64_t chunk_tree = 3;
constexpr std::uint64_t file_tree = 5;
constexpr std::uint64_t log_tree = std::uint64_t{0} - 6;
constexpr std::uint64_t first_subvolume = 256;
constexpr std::uint64_t chunk_item = 228;
constexpr std::uint64_t holds_data = 1;
constexpr std::uint64_t raid0 = 8;
constexpr std::uint64_t raid10 = 64;
constexpr std::uint64_t raid5 = 128;
constexpr std::uint64_t raid6 = 256;
constexpr std::uint64_t profiles = 0x7f8;

constexpr std::size_t most_inodes_named = 8;

std::string name_of_tree(std::uint64_t owner) {
    constexpr std::array<const char*, 13> known{
        nullptr,      "root tree",     "extent tree", "chunk tree", "device tree",     "file system tree",
        nullptr,      "checksum tree", "quota tree",  "UUID tree",  "free space tree", "block group tree",
        "stripe tree"};
    if (owner < known.size() && known.at(owner) != nullptr) {
        return known.at(owner);
    }
    switch (std::uint64_t{0} - owner) {
        case 6:
            return "log tree";
        case 8:
            return "relocation tree";
        case 9:
            return "data relocation tree";
        default:
            break;
    }
    return owner >= first_subvolume ? "tree of subvolume " + std::to_string(owner) : "tree " + std::to_string(owner);
}

class Btrfs final : public NamesByHeader {
  public:
    Btrfs(const Log& log, Bytes base) : NamesByHeader(log) {
        if (!find_super(log, base, super_offset, super_bytes, [this](Bytes super) { return take(super); })) {
            return;
        }
        if (!made_in_log()) {
            std::set<std::uint64_t> met;
            walk_chunks(base, chunk_root_, highest_level, met);
        }
        each_piece([this](std::uint64_t sector, Bytes bytes, std::uint32_t) {
            const std::uint64_t first = (block_bytes_ - sector * sector_bytes % block_bytes_) % block_bytes_;
            for (std::uint64_t at = first; at < bytes.size() && bytes.size() - at >= node_bytes_; at += block_bytes_) {
                const Bytes node = bytes.subspan(at, node_bytes_);
                if (is_node(node) && u64(node, 88) == chunk_tree && number(node, 100, 1) == 0) {
                    take_leaf(node);
                }
            }
        });
    }

  private:
    struct Chunk {
        std::uint64_t end;
        std::uint64_t logical;
        std::uint64_t kind;
    };

    bool take(Bytes super) {
        block_bytes_ = u32(super, 144);
        node_bytes_ = u32(super, 148);
        if (u64(super, 64) != super_magic || !std::has_single_bit(block_bytes_) || block_bytes_ < 4096 ||
            block_bytes_ > 65536 || !std::has_single_bit(node_bytes_) || node_bytes_ < block_bytes_ ||
            node_bytes_ > 65536) {
            return false;
        }
        const bool other = (u64(super, 188) & incompat_metadata_uuid) != 0;
        std::ranges::copy(super.subspan(other ? 571 : 32, uuid_.size()), uuid_.begin());
        chunk_root_ = u64(super, 88);
        device_ = u64(super, 201);
        constexpr std::size_t array_offset = 811;
        constexpr std::size_t largest_array = 2048;
        const std::size_t size = std::min<std::uint64_t>(u32(super, 160), largest_array);
        const Bytes array = super.subspan(array_offset, size);
        for (std::size_t at = 0; at + key_bytes + chunk_bytes <= array.size();) {
            const Bytes chunk = array.subspan(at + key_bytes);
            take_chunk(u64(array, at + 9), chunk);
            at += key_bytes + chunk_bytes + u16(chunk, 44) * stripe_bytes;
        }
        return true;
    }

    // Of a chunk the part that lies here.
    void take_chunk(std::uint64_t logical, Bytes chunk) {
        const std::uint64_t stripes = u16(chunk, 44);
        const std::uint64_t kind = u64(chunk, 24);
        std::uint64_t parts = 1;  // of the chunk, of which each device has one
        switch (kind & profiles) {
            case raid0:
                parts = stripes;
                break;
            case raid10:
                parts = stripes / std::max<std::uint64_t>(u16(chunk, 46), 1);
                break;
            case raid5:
                parts = stripes - 1;
                break;
            case raid6:
                parts = stripes - 2;
                break;
            default:
                break;
        }
        if (stripes == 0 || parts == 0 || parts > stripes) {
            return;
        }
        const std::uint64_t length = u64(chunk, 0) / parts;
        for (std::uint64_t i = 0; i < stripes && chunk_bytes + (i + 1) * stripe_bytes <= chunk.size(); ++i) {
            const std::uint64_t first = u64(chunk, chunk_bytes + i * stripe_bytes + 8);
            if (u64(chunk, chunk_bytes + i * stripe_bytes) == device_ && length != 0 && first + length > first) {
                chunks_.insert_or_assign(first, Chunk{first + length, logical, kind});
            }
        }
    }

    void take_leaf(Bytes node) {
        for (std::uint64_t i = 0; i < u32(node, 96) && header_bytes + (i + 1) * item_bytes <= node.size(); ++i) {
            const Bytes item = node.subspan(header_bytes + i * item_bytes, item_bytes);
            const std::uint64_t at = header_bytes + u32(item, 17);
            if (number(item, 8, 1) == chunk_item && at < node.size()) {
                take_chunk(u64(item, 9), node.subspan(at, std::min<std::uint64_t>(u32(item, 21), node.size() - at)));
            }
        }
    }

    // By the chunks that are known: the superblock has those of the chunk tree itself.
    void walk_chunks(Bytes base, std::uint64_t logical, std::uint64_t level, std::set<std::uint64_t>& met) {
        if (!met.insert(logical).second) {
            return;
        }
        for (const auto& [first, chunk] : chunks_) {
            if (logical < chunk.logical || logical - chunk.logical >= chunk.end - first) {
                continue;
            }
            const std::uint64_t at = first + (logical - chunk.logical);
            if (base.size() < node_bytes_ || at > base.size() - node_bytes_) {
                continue;
            }
            const Bytes node = base.subspan(at, node_bytes_);
            if (!is_node(node) || number(node, 100, 1) > level) {
                continue;
            }
            if (number(node, 100, 1) == 0) {
                take_leaf(node);
                return;
            }
            for (std::uint64_t i = 0; i < u32(node, 96) && header_bytes + (i + 1) * pointer_bytes <= node.size(); ++i) {
                walk_chunks(base, u64(node, header_bytes + i * pointer_bytes + key_bytes), number(node, 100, 1) - 1,
                            met);
            }
            return;
        }
    }

    [[nodiscard]] bool is_node(Bytes node) const {
        return std::ranges::equal(node.subspan(32, uuid_.size()), uuid_) && u64(node, 48) % block_bytes_ == 0 &&
               number(node, 100, 1) <= highest_level;
    }

    [[nodiscard]] Run run(std::uint64_t sector, Bytes bytes, std::uint32_t /*write*/) const override {
        const std::uint64_t at = sector * sector_bytes;
        for (std::size_t copy = 0; copy < supers.size(); ++copy) {
            const std::uint64_t first = supers.at(copy);
            if (at >= first && at - first < super_bytes) {
                return {(first + super_bytes - at) / sector_bytes,
                        copy == 0 ? "superblock" : "superblock, copy " + std::to_string(copy)};
            }
        }
        const auto after = chunks_.upper_bound(at);
        const auto found = after == chunks_.begin() ? chunks_.end() : std::prev(after);
        const bool within = found != chunks_.end() && at < found->second.end;
        const std::uint64_t kind = within ? found->second.kind & 7U : 0;
        if (kind == holds_data) {
            return {(found->second.end - at) / sector_bytes, "data"};
        }
        const std::uint64_t to_next = (block_bytes_ - at % block_bytes_) / sector_bytes;
        if (at % block_bytes_ == 0 && bytes.size() >= node_bytes_ && is_node(bytes.first(node_bytes_))) {
            return {node_bytes_ / sector_bytes, name_of(bytes.first(node_bytes_))};
        }
        if ((kind & holds_data) != 0) {
            return {to_next, "data"};
        }
        return {to_next, within ? "metadata" : "outside of all chunks"};
    }

    [[nodiscard]] static std::string name_of(Bytes node) {
        const std::uint64_t owner = u64(node, 88);
        const std::uint64_t level = number(node, 100, 1);
        std::string text = name_of_tree(owner);
        if (level != 0) {
            return text + ", node of level " + std::to_string(level);
        }
        text += ", leaf";
        if (owner != file_tree && owner != log_tree && (owner < first_subvolume || owner >= std::uint64_t{0} - 256)) {
            return text;
        }
        std::set<std::uint64_t> inodes;
        for (std::uint64_t i = 0; i < u32(node, 96) && header_bytes + (i + 1) * item_bytes <= node.size(); ++i) {
            if (const std::uint64_t inode = u64(node, header_bytes + i * item_bytes);
                inode >= first_subvolume && inode < std::uint64_t{0} - 256) {
                inodes.insert(inode);
            }
        }
        std::size_t told = 0;
        for (const std::uint64_t inode : inodes) {
            if (told == most_inodes_named) {
                text += " and " + std::to_string(inodes.size() - told) + " more";
                break;
            }
            text +=
                (told++ == 0 ? (inodes.size() == 1 ? " with inode " : " with inodes ") : ", ") + std::to_string(inode);
        }
        return text;
    }

    std::uint64_t block_bytes_ = 0;
    std::uint64_t node_bytes_ = 0;
    std::uint64_t chunk_root_ = 0;
    std::uint64_t device_ = 0;
    std::array<std::byte, 16> uuid_{};
    std::map<std::uint64_t, Chunk> chunks_;  // by their first byte here
};

}  // namespace btrfs

std::unique_ptr<NamesOf> names_of_btrfs(const Log& log, Bytes base) {
    auto found = std::make_unique<btrfs::Btrfs>(log, base);
    if (!found->known()) {
        return nullptr;
    }
    return found;
}

}  // namespace sampleblk::crash
