// SPDX-License-Identifier: MIT
// ext4's structures: https://docs.kernel.org/filesystems/ext4/, all numbers little-endian but those of the journal.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "names_of.hpp"
#include "sampleblk/interrupt.hpp"

namespace sampleblk::crash {

namespace {

constexpr std::size_t super_offset = 1024;
constexpr std::size_t super_bytes = 1024;
constexpr std::uint64_t super_magic = 0xef53;
constexpr std::uint64_t compat_sparse_super2 = 0x200;
constexpr std::uint64_t incompat_meta_bg = 0x10;
constexpr std::uint64_t incompat_64bit = 0x80;
constexpr std::uint64_t incompat_mmp = 0x100;
constexpr std::uint64_t ro_compat_sparse_super = 0x1;
constexpr std::uint64_t ro_compat_gdt_csum = 0x10;
constexpr std::uint64_t ro_compat_metadata_csum = 0x400;
constexpr std::uint64_t group_inode_uninit = 0x1;

constexpr std::uint64_t inode_extents = 0x80000;
constexpr std::uint64_t inode_inline_data = 0x10000000;
constexpr std::uint64_t extent_magic = 0xf30a;
constexpr std::uint64_t deepest_extent_tree = 5;

constexpr std::uint64_t journal_magic = 0xc03b3998;
constexpr std::uint64_t journal_descriptor = 1;
constexpr std::uint64_t journal_commit = 2;
constexpr std::uint64_t journal_revoke = 5;
constexpr std::uint64_t journal_64bit = 0x2;
constexpr std::uint64_t journal_csum_v2 = 0x8;
constexpr std::uint64_t journal_csum_v3 = 0x10;
constexpr std::uint64_t journal_fast_commit = 0x20;
constexpr std::uint64_t default_fast_commit_blocks = 256;

// A discard of more blocks is not told apart into what each of them was.
constexpr std::uint64_t most_zeroes = 4096;
constexpr std::size_t most_inodes_named = 8;
constexpr std::size_t blocks_between_checks = 4096;

// Before all writes.
constexpr std::int64_t in_base = -1;

enum class Use : std::uint8_t { data, directory, symlink, extent_tree, indirect, attributes };

class Ext4 final : public NamesOf {
  public:
    Ext4(const Log& log, Bytes base) : log_(log), base_(base) {
        blocks_bytes_ = std::max<std::uint64_t>(base_.size(), log.end_sector() * sector_bytes);
        if (find_super(log_, base_, super_offset, super_bytes, [this](Bytes super) { return take_super(super); })) {
            index_writes();
            read_groups();
            read_journal();
            read_inodes();
        }
    }

    [[nodiscard]] std::vector<Name> of(std::uint32_t write) const override {
        std::vector<Name> found;
        if (write >= log_.writes().size()) {
            return found;
        }
        std::uint64_t at = 0;  // sectors of the write before this piece
        const std::uint64_t per_block = block_bytes_ / sector_bytes;
        for (const Piece& piece : log_.writes()[write].pieces) {
            if (piece.data == nullptr && piece.sectors / per_block > most_zeroes) {
                append(found, {at, piece.sectors, "blocks of many kinds"});
                at += piece.sectors;
                continue;
            }
            for (std::uint64_t done = 0; done < piece.sectors;) {
                const std::uint64_t sector = piece.sector + done;
                const std::uint64_t length = std::min(per_block - sector % per_block, piece.sectors - done);
                append(found, {at + done, length, name_of(sector / per_block, write)});
                done += length;
            }
            at += piece.sectors;
        }
        return found;
    }

  private:
    // What a block held from a write on; its bytes are one block's, or none for zeros.
    struct Version {
        std::int64_t order = in_base;
        const std::byte* data = nullptr;
        bool from_journal = false;
    };
    enum class Place : std::uint8_t {
        superblock,
        backup_superblock,
        descriptors,
        backup_descriptors,
        reserved_descriptors,
        block_bitmap,
        inode_bitmap,
        inode_table,
        mmp
    };
    struct Range {
        std::uint64_t end;
        Place place;
        std::uint64_t group;
    };
    struct Descriptor {
        std::int64_t order;
        std::uint64_t home;
    };
    // From `order` on a block is an inode's, or its no more.
    struct Claim {
        std::int64_t order;
        std::uint64_t inode;
        Use use;
        bool released;
    };

    void step() {
        if (++steps_ % blocks_between_checks == 0) {
            check_interrupt();
        }
    }

    // --- contents

    [[nodiscard]] Bytes base_block(std::uint64_t block) const {
        if (block >= base_.size() / block_bytes_) {
            return zeros();
        }
        return base_.subspan(block * block_bytes_, block_bytes_);
    }

    [[nodiscard]] Bytes zeros() const { return zeros_; }

    [[nodiscard]] Bytes bytes_of(const Version& version) const {
        return version.data == nullptr ? zeros() : Bytes(version.data, block_bytes_);
    }

    // Of what does not change while it is in use: what the base has, or where that has no file system yet, the last.
    [[nodiscard]] Bytes steady(std::uint64_t block) const {
        if (!made_in_log()) {
            return base_block(block);
        }
        const auto versions = versions_.find(block);
        return versions == versions_.end() ? base_block(block) : bytes_of(versions->second.back());
    }

    bool take_super(Bytes super) {
        if (u16(super, 0x38) != super_magic || u32(super, 0x18) > 6) {
            return false;
        }
        block_bytes_ = std::uint64_t{1024} << u32(super, 0x18);
        const bool old = u32(super, 0x4c) == 0;
        compat_ = old ? 0 : u32(super, 0x5c);
        incompat_ = old ? 0 : u32(super, 0x60);
        ro_compat_ = old ? 0 : u32(super, 0x64);
        inode_bytes_ = old ? 128 : u16(super, 0x58);
        descriptor_bytes_ = (incompat_ & incompat_64bit) != 0 ? u16(super, 0xfe) : 32;
        first_data_block_ = u32(super, 0x14);
        blocks_per_group_ = u32(super, 0x20);
        inodes_per_group_ = u32(super, 0x28);
        journal_inode_ = u32(super, 0xe0);
        reserved_descriptor_blocks_ = u16(super, 0xce);
        first_meta_group_ = u32(super, 0x104);
        backup_groups_ = {u32(super, 0x24c), u32(super, 0x250)};
        user_quota_ = u32(super, 0x240);
        group_quota_ = u32(super, 0x244);
        project_quota_ = u32(super, 0x26c);
        orphan_file_ = u32(super, 0x280);
        mmp_block_ = (incompat_ & incompat_mmp) != 0 ? number(super, 0x168, 8) : 0;
        const auto power_of_two = [](std::uint64_t value) { return (value & (value - 1)) == 0; };
        if (!power_of_two(inode_bytes_) || inode_bytes_ < 128 || inode_bytes_ > block_bytes_ ||
            !power_of_two(descriptor_bytes_) || descriptor_bytes_ < 32 || descriptor_bytes_ > block_bytes_ ||
            blocks_per_group_ < 8 || inodes_per_group_ == 0 || inodes_per_group_ > 8 * block_bytes_) {
            return false;
        }
        std::uint64_t blocks = u32(super, 0x4);
        if ((incompat_ & incompat_64bit) != 0) {
            blocks |= u32(super, 0x150) << 32U;
        }
        // What the disk has not cannot be asked for.
        blocks_ = std::min(blocks, blocks_bytes_ / block_bytes_);
        if (first_data_block_ >= blocks_) {
            return false;
        }
        groups_ = (blocks_ - first_data_block_ + blocks_per_group_ - 1) / blocks_per_group_;
        zeros_.assign(block_bytes_, std::byte{0});
        return true;
    }

    // Whole blocks only: what is written in parts, such as a superblock, is named by its place.
    void index_writes() {
        const std::uint64_t per_block = block_bytes_ / sector_bytes;
        for (std::size_t i = 0; i < log_.writes().size(); ++i) {
            for (const Piece& piece : log_.writes()[i].pieces) {
                const std::uint64_t first = (piece.sector + per_block - 1) / per_block;
                const std::uint64_t end = (piece.sector + piece.sectors) / per_block;
                if (first >= end || (piece.data == nullptr && end - first > most_zeroes)) {
                    continue;
                }
                for (std::uint64_t block = first; block < end; ++block) {
                    step();
                    const std::byte* data = piece.data == nullptr
                                                ? nullptr
                                                : piece.data + (block * per_block - piece.sector) * sector_bytes;
                    versions_[block].push_back({static_cast<std::int64_t>(i), data, false});
                }
            }
        }
        for (const auto& [block, _] : versions_) {
            touched_.push_back(block);
        }
        std::ranges::sort(touched_);
    }

    // --- what has its place

    // The first group never has its superblock in the boot block, also where clusters count from that (bigalloc).
    [[nodiscard]] std::uint64_t first_of_group(std::uint64_t group) const {
        return std::max(first_data_block_ + group * blocks_per_group_, super_offset / block_bytes_);
    }

    [[nodiscard]] bool has_super(std::uint64_t group) const {
        if (group == 0) {
            return true;
        }
        if ((compat_ & compat_sparse_super2) != 0) {
            return group == backup_groups_[0] || group == backup_groups_[1];
        }
        if (group == 1 || (ro_compat_ & ro_compat_sparse_super) == 0) {
            return true;
        }
        return std::ranges::any_of(std::array<std::uint64_t, 3>{3, 5, 7}, [&](std::uint64_t base) {
            std::uint64_t power = base;
            while (power < group) {
                power *= base;
            }
            return power == group;
        });
    }

    void add_range(std::uint64_t first, std::uint64_t count, Place place, std::uint64_t group) {
        if (count != 0 && first < blocks_ && count <= blocks_ - first) {
            ranges_.try_emplace(first, Range{first + count, place, group});
        }
    }

    [[nodiscard]] Bytes descriptor(std::uint64_t group) const {
        const std::uint64_t per_block = block_bytes_ / descriptor_bytes_;
        const std::uint64_t at = group / per_block;
        std::uint64_t block = first_of_group(0) + 1 + at;
        if ((incompat_ & incompat_meta_bg) != 0 && at >= first_meta_group_) {
            block = first_of_group(at * per_block) + (has_super(at * per_block) ? 1 : 0);
        }
        return steady(block).subspan(group % per_block * descriptor_bytes_, descriptor_bytes_);
    }

    [[nodiscard]] std::uint64_t place_in(Bytes descriptor, std::size_t low, std::size_t high) const {
        return u32(descriptor, low) | (descriptor_bytes_ >= 64 ? u32(descriptor, high) << 32U : 0);
    }

    void read_groups() {
        const std::uint64_t per_block = block_bytes_ / descriptor_bytes_;
        const std::uint64_t descriptor_blocks = (groups_ + per_block - 1) / per_block;
        const bool meta = (incompat_ & incompat_meta_bg) != 0;
        const std::uint64_t gathered = meta ? std::min(first_meta_group_, descriptor_blocks) : descriptor_blocks;
        const std::uint64_t table_blocks = (inodes_per_group_ * inode_bytes_ + block_bytes_ - 1) / block_bytes_;
        for (std::uint64_t group = 0; group < groups_; ++group) {
            step();
            const std::uint64_t first = first_of_group(group);
            const bool own = group == 0;
            std::uint64_t next = first;
            if (has_super(group)) {
                add_range(first, 1, own ? Place::superblock : Place::backup_superblock, group);
                ++next;
                add_range(next, gathered, own ? Place::descriptors : Place::backup_descriptors, group);
                next += gathered;
                if (!meta) {
                    add_range(next, reserved_descriptor_blocks_, Place::reserved_descriptors, group);
                }
            }
            if (meta && group / per_block >= first_meta_group_ &&
                (group % per_block < 2 || group % per_block == per_block - 1)) {
                const bool copy = group % per_block != 0;
                add_range(first + (has_super(group) ? 1 : 0), 1, copy ? Place::backup_descriptors : Place::descriptors,
                          group);
            }
            const Bytes about = descriptor(group);
            add_range(place_in(about, 0x0, 0x20), 1, Place::block_bitmap, group);
            add_range(place_in(about, 0x4, 0x24), 1, Place::inode_bitmap, group);
            add_range(place_in(about, 0x8, 0x28), table_blocks, Place::inode_table, group);
        }
        if (mmp_block_ != 0) {
            add_range(mmp_block_, 1, Place::mmp, 0);
        }
    }

    [[nodiscard]] const Range* range_of(std::uint64_t block, std::uint64_t* first = nullptr) const {
        auto found = ranges_.upper_bound(block);
        if (found == ranges_.begin()) {
            return nullptr;
        }
        --found;
        if (block >= found->second.end) {
            return nullptr;
        }
        if (first != nullptr) {
            *first = found->first;
        }
        return &found->second;
    }

    // --- inodes

    // The block of the inode table that has it, and where it is in there.
    [[nodiscard]] std::optional<std::pair<std::uint64_t, std::uint64_t>> place_of_inode(std::uint64_t inode) const {
        if (inode == 0 || (inode - 1) / inodes_per_group_ >= groups_) {
            return std::nullopt;
        }
        const std::uint64_t table = place_in(descriptor((inode - 1) / inodes_per_group_), 0x8, 0x28);
        const std::uint64_t at = (inode - 1) % inodes_per_group_ * inode_bytes_;
        return std::pair(table + at / block_bytes_, at % block_bytes_);
    }

    // What a node of an extent tree or a list of blocks leads to, below `bytes`.
    struct Visit {
        std::int64_t order;
        Use use;
        std::map<std::uint64_t, Use>& claims;
        std::set<std::tuple<std::uint64_t, const std::byte*, std::uint64_t>> met;
    };

    void claim(Visit& visit, std::uint64_t first, std::uint64_t count, Use use) {
        if (first >= blocks_ || count > blocks_ - first) {
            return;
        }
        for (auto block = std::ranges::lower_bound(touched_, first); block != touched_.end() && *block < first + count;
             ++block) {
            step();
            visit.claims.insert_or_assign(*block, use);
        }
    }

    // Calls `look` with all that a block has held that may have been this inode's.
    template <typename Look>
    void each_content(Visit& visit, std::uint64_t block, std::uint64_t level, bool sure_only, const Look& look) {
        if (block >= blocks_) {
            return;
        }
        const auto once = [&](Bytes bytes) {
            step();
            if (visit.met.emplace(block, bytes.data(), level).second) {
                look(bytes);
            }
        };
        if (!sure_only || visit.order == in_base) {
            once(base_block(block));
        }
        const auto versions = versions_.find(block);
        if (versions == versions_.end()) {
            return;
        }
        for (const Version& version : versions->second) {
            if (version.data != nullptr && (!sure_only || version.from_journal)) {
                once(bytes_of(version));
            }
        }
    }

    void visit_extents(Visit& visit, Bytes node, std::uint64_t deepest) {
        constexpr std::size_t entry_bytes = 12;
        if (u16(node, 0) != extent_magic || u16(node, 6) > deepest) {
            return;
        }
        const std::uint64_t depth = u16(node, 6);
        const std::uint64_t entries = std::min<std::uint64_t>(u16(node, 2), (node.size() - entry_bytes) / entry_bytes);
        for (std::uint64_t i = 0; i < entries; ++i) {
            const Bytes entry = node.subspan((i + 1) * entry_bytes, entry_bytes);
            if (depth == 0) {
                // More than 32768 says that nothing was written there yet.
                const std::uint64_t length = u16(entry, 4);
                claim(visit, u16(entry, 6) << 32U | u32(entry, 8), length > 32768 ? length - 32768 : length, visit.use);
                continue;
            }
            const std::uint64_t child = u16(entry, 8) << 32U | u32(entry, 4);
            claim(visit, child, 1, Use::extent_tree);
            each_content(visit, child, depth, false, [&](Bytes bytes) {
                if (u16(bytes, 6) == depth - 1) {
                    visit_extents(visit, bytes, depth - 1);
                }
            });
        }
    }

    // ext2's and ext3's way: `level` 0 is a block of data.
    void visit_list(Visit& visit, std::uint64_t block, std::uint64_t level) {
        if (block == 0) {
            return;
        }
        claim(visit, block, 1, level == 0 ? visit.use : Use::indirect);
        if (level == 0) {
            return;
        }
        // Nothing in such a block says what it is: only what was journalled, or in use in the base, was one.
        each_content(visit, block, level, true, [&](Bytes bytes) {
            for (std::size_t at = 0; at < bytes.size(); at += 4) {
                visit_list(visit, u32(bytes, at), level - 1);
            }
        });
    }

    [[nodiscard]] std::map<std::uint64_t, Use> claims_of(std::uint64_t inode, Bytes bytes, std::int64_t order) {
        std::map<std::uint64_t, Use> found;
        const std::uint64_t mode = u16(bytes, 0);
        const std::uint64_t type = mode & 0xf000U;
        const std::uint64_t flags = u32(bytes, 0x20);
        const bool directory = type == 0x4000;
        const bool symlink = type == 0xa000;
        Use use = Use::data;
        if (directory) {
            use = Use::directory;
        } else if (symlink) {
            use = Use::symlink;
        }
        // The resize inode (7) has the reserved descriptors, which have their place.
        if (mode == 0 || (u16(bytes, 0x1a) == 0 && u32(bytes, 0x14) != 0) || inode == 7) {
            return found;
        }
        Visit visit{order, use, found, {}};
        claim(visit, u32(bytes, 0x68) | u16(bytes, 0x76) << 32U, u32(bytes, 0x68) == 0 ? 0 : 1, Use::attributes);
        const bool has_blocks = directory || type == 0x8000 || (symlink && (flags & inode_extents) != 0) ||
                                (symlink && u32(bytes, 0x4) >= 60);
        if (!has_blocks || (flags & inode_inline_data) != 0) {
            return found;
        }
        const Bytes root = bytes.subspan(0x28, 60);
        if ((flags & inode_extents) != 0) {
            visit_extents(visit, root, deepest_extent_tree);
            return found;
        }
        for (std::size_t i = 0; i < 15; ++i) {
            visit_list(visit, u32(root, i * 4), i < 12 ? 0 : i - 11);
        }
        return found;
    }

    void read_inodes() {
        for (const auto& [first, range] : ranges_) {
            if (range.place != Place::inode_table) {
                continue;
            }
            // How much of the table is in use in the base.
            const Bytes about = descriptor(range.group);
            std::uint64_t used = inodes_per_group_;
            if ((ro_compat_ & (ro_compat_gdt_csum | ro_compat_metadata_csum)) != 0) {
                const std::uint64_t unused = u16(about, 0x1c) | (descriptor_bytes_ >= 64 ? u16(about, 0x32) << 16U : 0);
                used = (u16(about, 0x12) & group_inode_uninit) != 0 ? 0 : used - std::min(unused, used);
            }
            const std::uint64_t per_block = block_bytes_ / inode_bytes_;
            for (std::uint64_t block = first; block < range.end; ++block) {
                step();
                const std::uint64_t number_of_first = range.group * inodes_per_group_ + (block - first) * per_block + 1;
                const bool in_use = (block - first) * per_block < used;
                const auto versions = versions_.find(block);
                if (in_use || versions != versions_.end()) {
                    read_inode_block(number_of_first, in_use ? base_block(block) : zeros(),
                                     versions == versions_.end() ? std::span<const Version>{} : versions->second);
                }
            }
        }
        for (auto& [_, claims] : claims_) {
            std::ranges::stable_sort(claims, {}, &Claim::order);
        }
    }

    void read_inode_block(std::uint64_t first, Bytes in_base_block, std::span<const Version> versions) {
        const std::uint64_t per_block = block_bytes_ / inode_bytes_;
        for (std::uint64_t i = 0; i < per_block; ++i) {
            std::map<std::uint64_t, Use> last;
            Bytes before;
            const auto look = [&](Bytes block, std::int64_t order) {
                step();
                const Bytes bytes = block.subspan(i * inode_bytes_, inode_bytes_);
                if (!before.empty() && std::ranges::equal(before, bytes)) {
                    return;
                }
                before = bytes;
                std::map<std::uint64_t, Use> now = claims_of(first + i, bytes, order);
                for (const auto& [claimed, use] : last) {
                    if (!now.contains(claimed)) {
                        claims_[claimed].push_back({order, first + i, use, true});
                    }
                }
                for (const auto& [claimed, use] : now) {
                    claims_[claimed].push_back({order, first + i, use, false});
                }
                last = std::move(now);
            };
            look(in_base_block, in_base);
            for (const Version& version : versions) {
                look(bytes_of(version), version.order);
            }
        }
    }

    // --- the journal

    void read_journal() {
        const auto place = place_of_inode(journal_inode_);
        if (!place || place->first >= blocks_) {
            return;
        }
        const Bytes inode = steady(place->first).subspan(place->second, inode_bytes_);
        std::vector<std::uint64_t> blocks;
        if ((u32(inode, 0x20) & inode_extents) != 0) {
            journal_extents(blocks, inode.subspan(0x28, 60), deepest_extent_tree);
        } else {
            for (std::size_t i = 0; i < 15; ++i) {
                journal_list(blocks, u32(inode, 0x28 + i * 4), i < 12 ? 0 : i - 11);
            }
        }
        for (std::uint64_t at = 0; at < blocks.size(); ++at) {
            journal_.try_emplace(blocks[at], at);
        }
        journal_blocks_ = std::move(blocks);
        if (!journal_blocks_.empty()) {
            read_transactions();
        }
    }

    // Never more than the disk has.
    void journal_add(std::vector<std::uint64_t>& blocks, std::uint64_t first, std::uint64_t count) {
        for (std::uint64_t i = 0; i < count && blocks.size() < blocks_ && first + i < blocks_; ++i) {
            step();
            blocks.push_back(first + i);
        }
    }

    void journal_extents(std::vector<std::uint64_t>& blocks, Bytes node, std::uint64_t deepest) {
        constexpr std::size_t entry_bytes = 12;
        const std::uint64_t depth = u16(node, 6);
        if (u16(node, 0) != extent_magic || depth > deepest) {
            return;
        }
        const std::uint64_t entries = std::min<std::uint64_t>(u16(node, 2), (node.size() - entry_bytes) / entry_bytes);
        for (std::uint64_t i = 0; i < entries && blocks.size() < blocks_; ++i) {
            step();
            const Bytes entry = node.subspan((i + 1) * entry_bytes, entry_bytes);
            if (depth == 0) {
                journal_add(blocks, u16(entry, 6) << 32U | u32(entry, 8),
                            std::min<std::uint64_t>(u16(entry, 4), 32768));
                continue;
            }
            const std::uint64_t child = u16(entry, 8) << 32U | u32(entry, 4);
            if (child < blocks_ && visited_nodes_.insert(child).second) {
                journal_extents(blocks, steady(child), depth - 1);
            }
        }
    }

    void journal_list(std::vector<std::uint64_t>& blocks, std::uint64_t block, std::uint64_t level) {
        step();
        if (block == 0 || block >= blocks_) {
            return;
        }
        if (level == 0) {
            journal_add(blocks, block, 1);
            return;
        }
        if (!visited_nodes_.insert(block).second) {
            return;
        }
        const Bytes bytes = steady(block);
        for (std::size_t at = 0; at < bytes.size() && blocks.size() < blocks_; at += 4) {
            journal_list(blocks, u32(bytes, at), level - 1);
        }
    }

    // At the journal's end, as long as it is in use: a clean unmount takes the feature back.
    [[nodiscard]] std::uint64_t fast_commit_blocks() const {
        const auto wanted = [](Bytes super) -> std::uint64_t {
            if (be32(super, 0) != journal_magic || be32(super, 4) != 4 ||
                (be32(super, 0x28) & journal_fast_commit) == 0) {
                return 0;
            }
            const std::uint64_t blocks = be32(super, 0x54);
            return blocks == 0 ? default_fast_commit_blocks : blocks;
        };
        std::uint64_t found = wanted(base_block(journal_blocks_.front()));
        if (const auto versions = versions_.find(journal_blocks_.front()); versions != versions_.end()) {
            for (const Version& version : versions->second) {
                found = std::max(found, wanted(bytes_of(version)));
            }
        }
        return found;
    }

    void read_transactions() {
        // As the last mount left it: its features do not change while it is in use.
        Bytes super = base_block(journal_blocks_.front());
        if (const auto versions = versions_.find(journal_blocks_.front()); versions != versions_.end()) {
            super = bytes_of(versions->second.back());
        }
        if (be32(super, 0) != journal_magic) {
            return;
        }
        const bool second_version = be32(super, 4) == 4;
        const std::uint64_t features = second_version ? be32(super, 0x28) : 0;
        journal_first_ = be32(super, 0x14);
        journal_end_ = std::min<std::uint64_t>(be32(super, 0x10), journal_blocks_.size());
        journal_end_ -= std::min(fast_commit_blocks(), journal_end_);
        if (journal_first_ == 0 || journal_first_ >= journal_end_) {
            journal_end_ = 0;
            return;
        }
        // The journal's copies are versions of the blocks that they are of: first all, then in order.
        std::map<std::uint64_t, std::vector<Version>> copies;
        for (std::uint64_t at = journal_first_; at < journal_end_; ++at) {
            step();
            const auto versions = versions_.find(journal_blocks_[at]);
            if (versions == versions_.end()) {
                continue;
            }
            for (const Version& version : versions->second) {
                const Bytes bytes = bytes_of(version);
                if (be32(bytes, 0) == journal_magic && be32(bytes, 4) == journal_descriptor) {
                    read_descriptor(at, bytes, version.order, features);
                }
            }
        }
        for (auto& [_, descriptors] : descriptors_) {
            std::ranges::stable_sort(descriptors, {}, &Descriptor::order);
        }
        for (const auto& [at, _] : descriptors_) {
            const auto versions = versions_.find(journal_blocks_[at]);
            if (versions == versions_.end()) {
                continue;
            }
            for (const Version& version : versions->second) {
                step();
                if (be32(bytes_of(version), 0) == journal_magic) {
                    continue;
                }
                if (const auto home = home_of(at, version.order)) {
                    copies[*home].push_back({version.order, version.data, true});
                }
            }
        }
        for (auto& [block, added] : copies) {
            std::vector<Version>& all = versions_[block];
            all.insert(all.end(), added.begin(), added.end());
            std::ranges::stable_sort(all, {}, &Version::order);
        }
        // A block of which only the journal has a copy so far may be claimed too, so that its name is known.
        touched_.clear();
        for (const auto& [block, _] : versions_) {
            touched_.push_back(block);
        }
        std::ranges::sort(touched_);
    }

    void read_descriptor(std::uint64_t at, Bytes bytes, std::int64_t order, std::uint64_t features) {
        const bool wide = (features & journal_64bit) != 0;
        const bool third = (features & journal_csum_v3) != 0;
        const bool checked = third || (features & journal_csum_v2) != 0;
        // journal_tag_bytes() of fs/jbd2/journal.c.
        const std::size_t tag_bytes = third ? 16 : 12 + ((features & journal_csum_v2) != 0 ? 2 : 0) - (wide ? 0 : 4);
        constexpr std::uint64_t same_uuid = 2;
        constexpr std::uint64_t last_tag = 8;
        const std::size_t end = bytes.size() - (checked ? 4 : 0);
        std::uint64_t next = at;
        for (std::size_t tag = 12; tag + tag_bytes <= end;) {
            step();
            next = next + 1 == journal_end_ ? journal_first_ : next + 1;
            if (next == at) {
                return;
            }
            const std::uint64_t flags = third ? be32(bytes, tag + 4) : number(bytes, tag + 6, 2, true);
            const std::uint64_t home = be32(bytes, tag) | (wide ? be32(bytes, tag + 8) << 32U : 0);
            if (home < blocks_) {
                descriptors_[next].push_back({order, home});
            }
            tag += tag_bytes + ((flags & same_uuid) != 0 ? 0 : 16);
            if ((flags & last_tag) != 0) {
                return;
            }
        }
    }

    // Which block a block of the journal is a copy of, by the descriptor that was written last before it.
    [[nodiscard]] std::optional<std::uint64_t> home_of(std::uint64_t at, std::int64_t order) const {
        const auto found = descriptors_.find(at);
        if (found == descriptors_.end()) {
            return std::nullopt;
        }
        const auto after = std::ranges::upper_bound(found->second, order, {}, &Descriptor::order);
        // A device may execute what was submitted together in any order.
        return after == found->second.begin() ? after->home : std::prev(after)->home;
    }

    // --- names

    [[nodiscard]] std::string name_of(std::uint64_t block, std::int64_t order) const {
        if (const auto journal = journal_.find(block); journal != journal_.end()) {
            return journal_name(block, journal->second, order);
        }
        return home_name(block, order, false);
    }

    // What a write put there; zeros for what is not known.
    [[nodiscard]] Bytes written(std::uint64_t block, std::int64_t order, bool from_journal) const {
        if (const auto versions = versions_.find(block); versions != versions_.end()) {
            for (const Version& version : versions->second) {
                if (version.order == order && version.from_journal == from_journal) {
                    return bytes_of(version);
                }
            }
        }
        return zeros();
    }

    [[nodiscard]] std::string journal_name(std::uint64_t block, std::uint64_t at, std::int64_t order) const {
        const Bytes bytes = written(block, order, false);
        if (at == 0) {
            return "journal superblock";
        }
        if (journal_end_ != 0 && at >= journal_end_) {
            return "journal, fast commit";
        }
        if (be32(bytes, 0) == journal_magic) {
            const std::string of = " of transaction " + std::to_string(be32(bytes, 8));
            switch (be32(bytes, 4)) {
                case journal_descriptor:
                    return "journal, descriptor" + of;
                case journal_commit:
                    return "journal, commit" + of;
                case journal_revoke:
                    return "journal, revoke" + of;
                default:
                    break;
            }
        }
        if (const auto home = home_of(at, order)) {
            return "journal, copy of " + home_name(*home, order, true);
        }
        return "journal";
    }

    [[nodiscard]] std::string home_name(std::uint64_t block, std::int64_t order, bool from_journal) const {
        std::uint64_t first = 0;
        if (const Range* range = range_of(block, &first); range != nullptr) {
            const std::string of = " of group " + std::to_string(range->group);
            switch (range->place) {
                case Place::superblock:
                    return "superblock";
                case Place::backup_superblock:
                    return "backup superblock" + of;
                case Place::descriptors:
                    return "group descriptors";
                case Place::backup_descriptors:
                    return "backup group descriptors" + of;
                case Place::reserved_descriptors:
                    return "reserved group descriptors";
                case Place::block_bitmap:
                    return "block bitmap" + of;
                case Place::inode_bitmap:
                    return "inode bitmap" + of;
                case Place::mmp:
                    return "multiple mount protection";
                case Place::inode_table:
                    return inode_table_name(
                        block, range->group * inodes_per_group_ + (block - first) * (block_bytes_ / inode_bytes_) + 1,
                        order, from_journal);
            }
        }
        // The superblock lies in the first block where those are larger than 1 KiB, and the boot sector with it.
        if (block < first_of_group(0)) {
            return "boot block";
        }
        return claimed_name(block, order);
    }

    // With the inodes that the write changes: in their place, or a copy beside what was known of them before.
    [[nodiscard]] std::string inode_table_name(std::uint64_t block, std::uint64_t first, std::int64_t order,
                                               bool from_journal) const {
        Bytes before = base_block(block);
        Bytes now = zeros();
        if (const auto versions = versions_.find(block); versions != versions_.end()) {
            for (const Version& version : versions->second) {
                if (version.order >= order && version.from_journal == from_journal) {
                    now = bytes_of(version);
                    break;
                }
                if (from_journal || !version.from_journal) {
                    before = bytes_of(version);
                }
            }
        }
        std::vector<std::uint64_t> changed;
        const std::uint64_t per_block = block_bytes_ / inode_bytes_;
        for (std::uint64_t i = 0; i < per_block; ++i) {
            if (!std::ranges::equal(before.subspan(i * inode_bytes_, inode_bytes_),
                                    now.subspan(i * inode_bytes_, inode_bytes_))) {
                changed.push_back(first + i);
            }
        }
        if (changed.empty()) {
            return "inode table, inodes " + std::to_string(first) + " to " + std::to_string(first + per_block - 1) +
                   " as they were";
        }
        std::string text = changed.size() == 1 ? "inode table, inode " : "inode table, inodes ";
        for (std::size_t i = 0; i < std::min(changed.size(), most_inodes_named); ++i) {
            text += (i == 0 ? "" : ", ") + std::to_string(changed[i]);
        }
        if (changed.size() > most_inodes_named) {
            text += " and " + std::to_string(changed.size() - most_inodes_named) + " more";
        }
        return text;
    }

    [[nodiscard]] std::string claimed_name(std::uint64_t block, std::int64_t order) const {
        const auto found = claims_.find(block);
        if (found == claims_.end()) {
            return "a block of no file that was committed";
        }
        // Data is on its way before the inode that has it; a block is given to another file only after the first one's
        // inode has been committed without it.
        const Claim* chosen = nullptr;
        const Claim* last = &found->second.front();
        for (const Claim& claim : found->second) {
            if (claim.order <= order) {
                if (!claim.released) {
                    chosen = last = &claim;
                } else if (chosen != nullptr && chosen->inode == claim.inode) {
                    chosen = nullptr;
                }
            } else if (chosen == nullptr && !claim.released) {
                chosen = &claim;
                break;
            }
        }
        const Claim& claim = chosen != nullptr ? *chosen : *last;
        if (claim.inode == user_quota_ || claim.inode == group_quota_ || claim.inode == project_quota_) {
            return "quota file, inode " + std::to_string(claim.inode);
        }
        if (claim.inode == orphan_file_) {
            return "orphan file, inode " + std::to_string(claim.inode);
        }
        const std::string of = " of inode " + std::to_string(claim.inode);
        switch (claim.use) {
            case Use::data:
                return "data" + of;
            case Use::directory:
                return "directory block" + of;
            case Use::symlink:
                return "symbolic link, inode " + std::to_string(claim.inode);
            case Use::extent_tree:
                return "extent tree" + of;
            case Use::indirect:
                return "indirect block" + of;
            case Use::attributes:
                return "extended attributes" + of;
        }
        return "";
    }

    const Log& log_;
    Bytes base_;
    std::uint64_t steps_ = 0;
    std::uint64_t blocks_bytes_ = 0;
    std::vector<std::byte> zeros_;

    std::uint64_t block_bytes_ = 0;
    std::uint64_t blocks_ = 0;
    std::uint64_t groups_ = 0;
    std::uint64_t compat_ = 0;
    std::uint64_t incompat_ = 0;
    std::uint64_t ro_compat_ = 0;
    std::uint64_t inode_bytes_ = 0;
    std::uint64_t descriptor_bytes_ = 0;
    std::uint64_t first_data_block_ = 0;
    std::uint64_t blocks_per_group_ = 0;
    std::uint64_t inodes_per_group_ = 0;
    std::uint64_t journal_inode_ = 0;
    std::uint64_t reserved_descriptor_blocks_ = 0;
    std::uint64_t first_meta_group_ = 0;
    std::array<std::uint64_t, 2> backup_groups_{};
    std::uint64_t user_quota_ = 0;
    std::uint64_t group_quota_ = 0;
    std::uint64_t project_quota_ = 0;
    std::uint64_t orphan_file_ = 0;
    std::uint64_t mmp_block_ = 0;

    std::unordered_map<std::uint64_t, std::vector<Version>> versions_;  // of whole blocks that the log has, in order
    std::vector<std::uint64_t> touched_;                                // those blocks, ascending
    std::map<std::uint64_t, Range> ranges_;                             // by their first block
    std::unordered_map<std::uint64_t, std::vector<Claim>> claims_;      // in order
    std::vector<std::uint64_t> journal_blocks_;                         // by their place in the journal
    std::unordered_map<std::uint64_t, std::uint64_t> journal_;          // block -> that place
    std::set<std::uint64_t> visited_nodes_;                             // of the journal's own inode
    std::uint64_t journal_first_ = 0;
    std::uint64_t journal_end_ = 0;                                 // 0: its blocks are not known
    std::map<std::uint64_t, std::vector<Descriptor>> descriptors_;  // by the place of the copy, in order
};

}  // namespace

std::unique_ptr<NamesOf> names_of_ext4(const Log& log, Bytes base) {
    auto found = std::make_unique<Ext4>(log, base);
    if (!found->known()) {
        return nullptr;
    }
    return found;
}

}  // namespace sampleblk::crash
