// SPDX-License-Identifier: MIT
#include "sampleblk/profile/stack_tree.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <numeric>
#include <ranges>

#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/text.hpp"
#include "symbols/flat_map.hpp"

namespace sampleblk::profile {

namespace {

std::string percent(std::uint64_t part, std::uint64_t whole) {
    char text[16];
    (void)std::snprintf(text, sizeof(text), "%.2f",
                        whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
    return text;
}

}  // namespace

// parent << 32 | label -> node. A label is of one kind below one parent.
struct StackTree::Index {
    FlatMap map;
};

StackTree::StackTree(std::string unit) : unit_(std::move(unit)), index_(std::make_shared<Index>()) {
    Node root;
    root.label = labels_->intern("all");
    root.kind = FrameKind::note;
    nodes_.push_back(root);
}

std::uint32_t StackTree::child(std::uint32_t parent, std::string_view label, FrameKind kind, std::int32_t module) {
    const std::int32_t code = labels_->intern(label);
    std::uint32_t& number = index_->map.at(std::uint64_t{parent} << 32U | static_cast<std::uint32_t>(code));
    if (number == FlatMap::kNone) {
        number = static_cast<std::uint32_t>(nodes_.size());
        Node node;
        node.parent = parent;
        node.label = code;
        node.kind = kind;
        node.module = module;
        nodes_.push_back(node);
    }
    return number;
}

std::uint32_t StackTree::copy(std::uint32_t parent, const StackTree& other, const Node& node) {
    const std::int32_t module = node.module < 0 ? -1 : labels_->intern(other.labels_->at(node.module));
    const std::uint32_t made = child(parent, other.label(node), node.kind, module);
    add(made, node.self);
    return made;
}

void StackTree::merge(const StackTree& other) {
    std::vector<std::uint32_t> here(other.nodes_.size(), 0);
    nodes_[0].self += other.nodes_[0].self;
    for (std::size_t i = 1; i < other.nodes_.size(); ++i) {
        here[i] = copy(here[other.nodes_[i].parent], other, other.nodes_[i]);
    }
    finish();
}

void StackTree::finish() {
    for (Node& node : nodes_) {
        node.total = node.self;
    }
    for (std::size_t i = nodes_.size(); i-- > 1;) {
        nodes_[nodes_[i].parent].total += nodes_[i].total;
    }
}

std::vector<std::vector<std::uint32_t>> StackTree::children() const {
    std::vector<std::vector<std::uint32_t>> out(nodes_.size());
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
        out[nodes_[i].parent].push_back(static_cast<std::uint32_t>(i));
    }
    for (auto& list : out) {
        std::ranges::sort(list, [this](std::uint32_t a, std::uint32_t b) {
            return nodes_[a].total != nodes_[b].total ? nodes_[a].total > nodes_[b].total
                                                      : label(nodes_[a]) < label(nodes_[b]);
        });
    }
    return out;
}

std::size_t StackTree::find(const std::vector<std::string>& path) const {
    std::uint32_t at = 0;
    for (const std::string& step : path) {
        const auto code = labels_->find(step);
        if (!code) {
            return npos;
        }
        std::size_t next = npos;
        for (std::size_t i = at + 1; i < nodes_.size(); ++i) {
            if (nodes_[i].parent == at && nodes_[i].label == *code) {
                next = i;
                break;
            }
        }
        if (next == npos) {
            return npos;
        }
        at = static_cast<std::uint32_t>(next);
    }
    return at;
}

struct TreeBuilder::State {
    State(const Profile& from, StackTree& to) : profile(from), tree(to) {}
    const Profile& profile;
    StackTree& tree;
    FlatMap known;  // comm << 32 | stack node -> tree node
    std::vector<std::uint32_t> path;
};

TreeBuilder::TreeBuilder(const Profile& profile, StackTree& tree) : state_(std::make_unique<State>(profile, tree)) {}
TreeBuilder::~TreeBuilder() = default;

std::uint32_t TreeBuilder::node(std::int32_t comm, std::uint32_t leaf) {
    State& state = *state_;
    const std::uint64_t high = std::uint64_t{static_cast<std::uint32_t>(comm)} << 32U;
    // Up to where this thread's name has been before, and down again.
    state.path.clear();
    std::uint32_t at = leaf;
    std::uint32_t here = FlatMap::kNone;
    while (at != 0) {
        here = state.known.at(high | at);
        if (here != FlatMap::kNone) {
            break;
        }
        state.path.push_back(at);
        at = state.profile.stacks()[at].parent;
    }
    if (here == FlatMap::kNone) {
        here = state.tree.child(0, state.profile.names().at(comm), FrameKind::note);
    }
    for (auto step = state.path.rbegin(); step != state.path.rend(); ++step) {
        const Frame& frame = state.profile.frames()[state.profile.stacks()[*step].frame];
        const std::int32_t module = state.tree.labels_->intern(state.profile.names().at(frame.module));
        here = state.tree.child(here, state.profile.names().at(frame.name),
                                frame.resolved ? frame.kind : FrameKind::unknown, module);
        state.known.at(high | *step) = here;
    }
    return here;
}

StackTree stack_tree(const Profile& profile, const SampleSelection& selection, Weight weight) {
    const std::size_t event = profile.event_number(selection.event);
    StackTree tree(weight == Weight::samples ? "samples" : profile.file().events()[event].name);
    TreeBuilder builder(profile, tree);
    std::size_t since_check = 0;
    for (const std::uint32_t i : profile.select(selection)) {
        if (++since_check % 262144 == 0) {
            check_interrupt();
        }
        tree.add(builder.node(profile.comms()[i], profile.leaves()[i]),
                 weight == Weight::samples ? 1 : profile.periods()[i]);
    }
    tree.finish();
    return tree;
}

StackTree stacks_below(const StackTree& tree, const std::vector<std::string>& functions) {
    std::vector<bool> wanted(tree.labels().size(), false);
    for (const std::string& function : functions) {
        if (const auto code = tree.labels().find(function)) {
            wanted[static_cast<std::size_t>(*code)] = true;
        }
    }
    StackTree out(tree.unit());
    std::vector<std::uint32_t> there(tree.nodes().size(), 0);  // 0: above them
    for (std::size_t i = 1; i < tree.nodes().size(); ++i) {
        const StackTree::Node& node = tree.nodes()[i];
        const std::uint32_t parent = there[node.parent];
        if (parent != 0 || wanted[static_cast<std::size_t>(node.label)]) {
            there[i] = out.copy(parent, tree, node);
        }
    }
    out.finish();
    return out;
}

std::string folded_text(const StackTree& tree) {
    std::vector<std::string> lines;
    std::vector<std::uint32_t> path;
    for (std::size_t i = 1; i < tree.nodes().size(); ++i) {
        if (i % 65536 == 0) {
            check_interrupt();
        }
        if (tree.nodes()[i].self == 0) {
            continue;
        }
        path.clear();
        for (auto at = static_cast<std::uint32_t>(i); at != 0; at = tree.nodes()[at].parent) {
            path.push_back(at);
        }
        std::string line;
        for (const std::uint32_t step : std::views::reverse(path)) {
            line.append(step == path.back() ? "" : ";");
            const std::size_t start = line.size();
            line += tree.label(tree.nodes()[step]);
            // These two are the format's own.
            std::replace(line.begin() + static_cast<std::ptrdiff_t>(start), line.end(), ';', ':');
            std::replace(line.begin() + static_cast<std::ptrdiff_t>(start), line.end(), '\n', ' ');
        }
        lines.push_back(line + " " + std::to_string(tree.nodes()[i].self));
    }
    std::ranges::sort(lines);
    std::size_t size = 0;
    for (const std::string& line : lines) {
        size += line.size() + 1;
    }
    std::string out;
    out.reserve(size);
    for (const std::string& line : lines) {
        out.append(line).append("\n");
    }
    return out;
}

StackTree read_folded(std::string_view text, const std::string& source, const std::string& unit) {
    StackTree tree(unit);
    std::uint32_t number = 0;
    std::uint64_t sum = 0;
    std::size_t at = 0;
    while (at < text.size()) {
        std::size_t end = text.find('\n', at);
        end = end == std::string_view::npos ? text.size() : end;
        auto line = text.substr(at, end - at);
        at = end + 1;
        if (++number % 65536 == 0) {
            check_interrupt();
        }
        while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) {
            line.remove_suffix(1);
        }
        if (line.empty()) {
            continue;
        }
        const auto space = line.rfind(' ');
        std::uint64_t weight = 0;
        const char* begin = line.data() + (space == std::string_view::npos ? 0 : space + 1);
        const char* stop = line.data() + line.size();
        auto [after, code] = std::from_chars(begin, stop, weight);
        if (code == std::errc() && after != stop && *after == '.') {  // 12.0, as some tools print
            after = std::find_if(after + 1, stop, [](char digit) { return digit != '0'; });
        }
        if (space == std::string_view::npos || code != std::errc() || after != stop) {
            throw InputError("'" + std::string(line.substr(0, 80)) + "'", source, number,
                             "a stack and its count, a whole number: outer;inner 12");
        }
        constexpr std::uint64_t limit = std::uint64_t{1} << 62U;
        if (weight > limit || sum > limit - weight) {
            throw InputError("'" + std::string(begin, stop) + "'", source, number, "counts whose sum is below 2^62");
        }
        auto stack = line.substr(0, space);
        std::uint32_t node = 0;
        while (true) {
            const auto next = stack.find(';');
            auto name = stack.substr(0, next);
            FrameKind kind = node == 0 ? FrameKind::note : FrameKind::user;
            if (name.ends_with("_[k]")) {
                kind = FrameKind::kernel;
                name.remove_suffix(4);
            } else if (name == "[unknown]") {
                kind = FrameKind::unknown;
            }
            node = tree.child(node, plain_text(name), kind);
            if (next == std::string_view::npos) {
                break;
            }
            stack.remove_prefix(next + 1);
        }
        tree.add(node, weight);
        sum += weight;
    }
    tree.finish();
    return tree;
}

std::string tree_text(const StackTree& tree, double min_percent, std::size_t max_depth) {
    const auto children = tree.children();
    const std::uint64_t whole = tree.total();
    const double least = static_cast<double>(whole) * min_percent / 100.0;
    std::string out = "  total%   self%  " + tree.unit() + "\n";
    std::size_t hidden = 0;
    struct Step {
        std::uint32_t node;
        std::size_t depth;
    };
    std::vector<Step> todo;
    const auto push = [&](std::uint32_t node, std::size_t depth) {
        for (const std::uint32_t child : std::views::reverse(children[node])) {
            if (static_cast<double>(tree.nodes()[child].total) < least || depth > max_depth) {
                ++hidden;
            } else {
                todo.push_back({child, depth});
            }
        }
    };
    push(0, 1);
    while (!todo.empty()) {
        const Step step = todo.back();
        todo.pop_back();
        const StackTree::Node& node = tree.nodes()[step.node];
        const std::string total = percent(node.total, whole);
        const std::string self = percent(node.self, whole);
        out.append(8 - std::min<std::size_t>(8, total.size()), ' ').append(total);
        out.append(8 - std::min<std::size_t>(8, self.size()), ' ').append(self);
        out.append(2 * step.depth, ' ');
        // A task may have named itself so.
        for (const char c : tree.label(node)) {
            c == '\n' ? out.append("\\n") : out.append(1, c);
        }
        out += '\n';
        push(step.node, step.depth + 1);
    }
    if (hidden != 0) {
        out += "(" + std::to_string(hidden) + " branches left out)\n";
    }
    return out;
}

Table function_table(const StackTree& tree) {
    const auto& nodes = tree.nodes();
    std::vector<std::uint64_t> total(tree.labels().size(), 0);
    std::vector<std::uint64_t> self(tree.labels().size(), 0);
    // Threads' names are no functions; a function below itself is counted with the outer one.
    std::vector<std::uint32_t> order(tree.labels().size());
    const auto children = tree.children();
    std::vector<std::uint32_t> open(tree.labels().size(), 0);
    struct Step {
        std::uint32_t node;
        bool leaving;
    };
    std::vector<Step> todo{{0, false}};
    while (!todo.empty()) {
        const Step step = todo.back();
        todo.pop_back();
        const StackTree::Node& node = nodes[step.node];
        const auto label = static_cast<std::size_t>(node.label);
        if (step.leaving) {
            --open[label];
            continue;
        }
        if (StackTree::is_function(node)) {
            self[label] += node.self;
            if (open[label]++ == 0) {
                total[label] += node.total;
            }
            todo.push_back({step.node, true});
        }
        for (const std::uint32_t below : children[step.node]) {
            todo.push_back({below, false});
        }
    }
    std::iota(order.begin(), order.end(), 0U);
    std::erase_if(order, [&](std::uint32_t label) { return total[label] == 0; });
    std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) { return total[a] > total[b]; });
    const double whole = tree.total() == 0 ? 1.0 : static_cast<double>(tree.total());
    std::vector<double> total_share;
    std::vector<double> self_share;
    std::vector<std::uint64_t> totals;
    std::vector<std::uint64_t> selves;
    std::vector<std::int32_t> names;
    auto pool = std::make_shared<StringPool>();
    for (const std::uint32_t label : order) {
        total_share.push_back(100.0 * static_cast<double>(total[label]) / whole);
        self_share.push_back(100.0 * static_cast<double>(self[label]) / whole);
        totals.push_back(total[label]);
        selves.push_back(self[label]);
        names.push_back(pool->intern(tree.labels().at(static_cast<std::int32_t>(label))));
    }
    std::vector<Column> columns;
    columns.emplace_back("total_percent", std::move(total_share), "%");
    columns.emplace_back("self_percent", std::move(self_share), "%");
    columns.emplace_back("total", std::move(totals), tree.unit());
    columns.emplace_back("self", std::move(selves), tree.unit());
    columns.emplace_back("function", std::move(names), std::move(pool));
    return Table(std::move(columns), {{"total", std::to_string(tree.total())}, {"unit", tree.unit()}});
}

}  // namespace sampleblk::profile
