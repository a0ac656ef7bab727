// SPDX-License-Identifier: MIT
// Weighted stacks merged by name into one tree: what folded text, call trees, flame graphs and exports are made from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sampleblk/profile/profile.hpp"
#include "sampleblk/table.hpp"

namespace sampleblk::profile {

class StackTree {
  public:
    struct Node {
        std::uint32_t parent = 0;  // the root is its own
        std::int32_t label = 0;    // code in labels()
        std::int32_t module = -1;  // code in labels(), -1 where unknown
        FrameKind kind = FrameKind::unknown;
        std::uint64_t self = 0;
        std::uint64_t total = 0;  // with everything below; valid after finish()
    };

    // `unit` of the weights: "samples", "ns", or an event's name.
    explicit StackTree(std::string unit);
    StackTree(StackTree&&) noexcept = default;
    StackTree& operator=(StackTree&&) noexcept = default;
    StackTree(const StackTree&) = delete;
    StackTree& operator=(const StackTree&) = delete;
    ~StackTree() = default;

    [[nodiscard]] const std::string& unit() const noexcept { return unit_; }
    [[nodiscard]] const std::vector<Node>& nodes() const noexcept { return nodes_; }
    [[nodiscard]] const StringPool& labels() const noexcept { return *labels_; }
    [[nodiscard]] const std::string& label(const Node& node) const { return labels_->at(node.label); }
    [[nodiscard]] std::uint64_t total() const noexcept { return nodes_.front().total; }

    // The child of that label, made when it is new.
    [[nodiscard]] std::uint32_t child(std::uint32_t parent, std::string_view label, FrameKind kind,
                                      std::int32_t module = -1);
    // Of threads' names there is a node below the root; what stacks_below() left is below none.
    [[nodiscard]] static bool is_function(const Node& node) noexcept {
        return node.parent != 0 || node.kind != FrameKind::note;
    }
    // Adds a node of another tree, without those below it; returns the child that it is here.
    std::uint32_t copy(std::uint32_t parent, const StackTree& other, const Node& node);
    void add(std::uint32_t node, std::uint64_t weight) { nodes_[node].self += weight; }
    // Merges another tree into this one; both in the same unit.
    void merge(const StackTree& other);
    // Sums up; to be called once all is added, and again after more is.
    void finish();
    // Children of each node, largest first. Valid for as long as the tree is not changed.
    [[nodiscard]] std::vector<std::vector<std::uint32_t>> children() const;
    // The node at that path from the root, or npos.
    [[nodiscard]] std::size_t find(const std::vector<std::string>& path) const;

    static constexpr std::size_t npos = static_cast<std::size_t>(-1);

  private:
    friend class TreeBuilder;
    struct Index;
    std::string unit_;
    std::vector<Node> nodes_;
    std::shared_ptr<StringPool> labels_ = std::make_shared<StringPool>();
    std::shared_ptr<Index> index_;
};

enum class Weight : std::uint8_t { samples, period };

// The selected samples' stacks below the names of their threads.
[[nodiscard]] StackTree stack_tree(const Profile& profile, const SampleSelection& selection, Weight weight);

// Adds stacks of a profile to a tree one at a time.
class TreeBuilder {
  public:
    TreeBuilder(const Profile& profile, StackTree& tree);
    ~TreeBuilder();
    TreeBuilder(const TreeBuilder&) = delete;
    TreeBuilder& operator=(const TreeBuilder&) = delete;
    TreeBuilder(TreeBuilder&&) = delete;
    TreeBuilder& operator=(TreeBuilder&&) = delete;

    // The tree's node for a thread's name and a stack of the profile.
    [[nodiscard]] std::uint32_t node(std::int32_t comm, std::uint32_t leaf);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

// Only what these functions called: each stack from the outermost of them inwards.
[[nodiscard]] StackTree stacks_below(const StackTree& tree, const std::vector<std::string>& functions);

// "comm;outer;inner 12" a line, in order of the alphabet. ';' in names becomes ':'.
[[nodiscard]] std::string folded_text(const StackTree& tree);
// Reads folded text, of any tool. Frames that end in _[k] are the kernel's, as stackcollapse-perf.pl marks them.
[[nodiscard]] StackTree read_folded(std::string_view text, const std::string& source, const std::string& unit);

// The tree as indented text, largest first: parts below `min_percent` of the whole are left out, and counted.
[[nodiscard]] std::string tree_text(const StackTree& tree, double min_percent, std::size_t max_depth);
// Every function's share over the whole tree, recursion counted once: percent, self [%], total, self, function.
[[nodiscard]] Table function_table(const StackTree& tree);

}  // namespace sampleblk::profile
