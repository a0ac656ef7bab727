// SPDX-License-Identifier: MIT
#include "sampleblk/profile/flamegraph.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string_view>
#include <utility>

#include "sampleblk/interrupt.hpp"
#include "sampleblk/text.hpp"
#include "sampleblk/units.hpp"
#include "views/flamegraph_assets.hpp"

namespace sampleblk::profile {

namespace {

constexpr std::size_t kRow = 17;      // pixels from one depth to the next
constexpr std::size_t kHead = 110;    // title, subtitle, tools, a frame's name, its numbers
constexpr double kTextPercent = 1.5;  // narrower frames get their text from the script, when they are zoomed

std::string number(double value) {
    std::array<char, 32> text{};
    const auto [end, code] = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, 5);
    (void)code;
    std::string out(text.data(), end);
    out.erase(out.find_last_not_of('0') + 1);
    if (!out.empty() && out.back() == '.') {
        out.pop_back();
    }
    return out;
}

std::string percent(double value) {
    std::array<char, 32> text{};
    (void)std::snprintf(text.data(), text.size(), "%.2f%%", value);
    return text.data();
}

std::string amount(std::uint64_t value, const std::string& unit) {
    if (unit == "ns") {
        return format_duration(value);
    }
    std::string digits = std::to_string(value);
    for (std::size_t at = digits.size(); at > 3;) {
        at -= 3;
        digits.insert(at, ",");
    }
    return digits + " " + unit;
}

char letter(FrameKind kind) {
    switch (kind) {
        case FrameKind::kernel:
            return 'k';
        case FrameKind::module:
            return 'm';
        case FrameKind::user:
            return 'u';
        case FrameKind::note:
            return 'n';
        case FrameKind::inlined:
            return 'i';
        case FrameKind::unknown:
            break;
    }
    return 'x';
}

// A frame's colour class, the same as attributes for viewers that know no variables in styles or have the style taken
// out, and a line more for its title.
struct Look {
    std::string classes;
    std::string_view fill;
    std::string_view opacity;
    std::string note;
};

// By the first letters of the class: what kFlameStyle has for a light background.
std::string_view fill_of(std::string_view colour) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 9> fills{{
        {"k", "#f5a15a"},
        {"m", "#6cc7a1"},
        {"u", "#f2d16b"},
        {"i", "#f2d16b"},
        {"n", "#b9b4e8"},
        {"x", "#c9c9c9"},
        {"up", "#e5484d"},
        {"down", "#4a82e0"},
        {"same", "#d5d5d5"},
    }};
    return std::ranges::find(fills, colour, &std::pair<std::string_view, std::string_view>::first)->second;
}

struct Painter {
    const StackTree& tree;
    const FlameGraphOptions& options;
    std::function<Look(std::uint32_t)> look;
};

struct Placed {
    std::uint32_t node;
    std::size_t depth;
    double x;
};

// `extra` is a line of text more below the head.
std::string draw(const Painter& painter, const std::string& extra) {
    const StackTree& tree = painter.tree;
    const auto children = tree.children();
    const double whole = static_cast<double>(std::max<std::uint64_t>(tree.total(), 1));
    const auto width_of = [&](std::uint32_t node) {
        return 100.0 * static_cast<double>(tree.nodes()[node].total) / whole;
    };
    std::vector<Placed> placed;
    std::vector<Placed> todo{{0, 0, 0.0}};
    std::size_t deepest = 0;
    std::size_t hidden = 0;
    while (!todo.empty()) {
        const Placed frame = todo.back();
        todo.pop_back();
        if (frame.depth != 0 && width_of(frame.node) < painter.options.min_percent) {
            ++hidden;
            continue;
        }
        if (placed.size() % 65536 == 0) {
            check_interrupt();
        }
        placed.push_back(frame);
        deepest = std::max(deepest, frame.depth);
        // By name from left to right, so that two graphs of one job lie alike.
        auto below = children[frame.node];
        std::ranges::sort(below, [&](std::uint32_t a, std::uint32_t b) {
            return tree.label(tree.nodes()[a]) < tree.label(tree.nodes()[b]);
        });
        double x = frame.x;
        const std::size_t from = todo.size();
        for (const std::uint32_t child : below) {
            todo.push_back({child, frame.depth + 1, x});
            x += width_of(child);
        }
        std::reverse(todo.begin() + static_cast<std::ptrdiff_t>(from), todo.end());
    }

    constexpr std::size_t tall = 40;
    const bool inverted = painter.options.inverted.value_or(deepest > tall);
    const std::size_t head = kHead + (extra.empty() ? 0 : kRow);
    const std::size_t height = head + (deepest + 1) * kRow + 8;
    std::string subtitle = amount(tree.total(), tree.unit());
    if (!painter.options.subtitle.empty()) {
        subtitle += "; " + painter.options.subtitle;
    }
    if (hidden != 0) {
        subtitle +=
            "; " + std::to_string(hidden) + " branches below " + number(painter.options.min_percent) + "% left out";
    }
    std::string out = R"(<svg xmlns="http://www.w3.org/2000/svg" class="sblk-flame" width="100%" height=")";
    out += std::to_string(height) + R"(" font-family="monospace" font-size="12" role="group" aria-label=")" +
           xml_text(painter.options.title) + "\"";
    out += inverted ? " data-inverted=\"\">" : ">";
    out.append("<style>").append(kFlameStyle).append("</style>");
    out += R"(<rect class="bg" width="100%" height="100%" fill="#fff"/>)";
    out += R"(<text class="h" x="8" y="20" font-size="16">)" + xml_text(painter.options.title) + "</text>";
    out += R"(<text class="d" x="8" y="38">)" + xml_text(subtitle) + "</text>";
    out += R"(<g class="tools"><text class="d matched" x="242" y="62"></text></g>)";
    out += R"(<text class="details" x="8" y="84"></text><text class="d numbers" x="8" y="101"></text>)";
    if (!extra.empty()) {
        out += R"(<text class="d gone" x="8" y="118">)" + xml_text(extra) + "</text>";
    }
    out += R"(<g class="frames">)";
    out += "\n";
    for (const Placed& frame : placed) {
        const StackTree::Node& node = tree.nodes()[frame.node];
        const double width = width_of(frame.node);
        const Look look = painter.look(frame.node);
        const std::size_t row = inverted ? frame.depth : deepest - frame.depth;
        const std::string name = xml_text(tree.label(node));
        out += R"(<svg class="f )" + look.classes + "\" data-d=\"" + std::to_string(frame.depth) + "\" x=\"" +
               number(frame.x) + "%\" y=\"" + std::to_string(head + row * kRow) + "\" width=\"" + number(width) +
               R"(%" height="17"><title>)" + name + "\n" + amount(node.total, tree.unit()) + ", " + percent(width);
        if (node.self != 0 && node.self != node.total) {
            out += "\nself " + percent(100.0 * static_cast<double>(node.self) / whole);
        }
        if (node.module >= 0) {
            out += "\n" + xml_text(tree.labels().at(node.module));
        }
        if (!look.note.empty()) {
            out += "\n" + look.note;
        }
        out += R"(</title><rect width="100%" height="100%" fill=")";
        out.append(look.fill).append("\" stroke=\"#fff\" stroke-width=\".6");
        if (!look.opacity.empty()) {
            out.append("\" fill-opacity=\"").append(look.opacity);
        }
        out += "\"/>";
        if (width >= kTextPercent) {
            out += R"(<text x="3" y="12">)" + name + "</text>";
        }
        out += "</svg>\n";
    }
    out += "</g><script><![CDATA[";
    out += kFlameScript;
    out += "]]></script></svg>\n";
    return out;
}

}  // namespace

std::string flame_graph(const StackTree& tree, const FlameGraphOptions& options) {
    const Painter painter{tree, options, [&tree](std::uint32_t number) {
                              const StackTree::Node& node = tree.nodes()[number];
                              std::size_t hash = std::hash<std::string>{}(tree.label(node));
                              const std::string colour(1, letter(node.kind));
                              constexpr std::array<std::string_view, 4> shades{"", ".93", ".86", ".79"};
                              const std::size_t shade = (hash ^ hash >> 7U) % shades.size();
                              return Look{colour + " s" + std::to_string(shade), fill_of(colour), shades.at(shade), ""};
                          }};
    return draw(painter, "");
}

std::string difference_flame_graph(const StackTree& before, const StackTree& after, const FlameGraphOptions& options) {
    // Where each node of `after` is in `before`.
    std::vector<std::size_t> there(after.nodes().size(), StackTree::npos);
    there[0] = 0;
    const auto below = before.children();
    std::vector<bool> met(before.nodes().size(), false);
    for (std::size_t i = 1; i < after.nodes().size(); ++i) {
        const StackTree::Node& node = after.nodes()[i];
        if (there[node.parent] == StackTree::npos) {
            continue;
        }
        for (const std::uint32_t candidate : below[there[node.parent]]) {
            if (before.label(before.nodes()[candidate]) == after.label(node)) {
                there[i] = candidate;
                met[candidate] = true;
                break;
            }
        }
    }
    const double whole_before = static_cast<double>(std::max<std::uint64_t>(before.total(), 1));
    const double whole_after = static_cast<double>(std::max<std::uint64_t>(after.total(), 1));
    const auto share_before = [&](std::size_t node) {
        return 100.0 * static_cast<double>(before.nodes()[node].total) / whole_before;
    };
    const Painter painter{
        after, options, [&](std::uint32_t number) {
            const double now = 100.0 * static_cast<double>(after.nodes()[number].total) / whole_after;
            const double then = there[number] == StackTree::npos ? 0.0 : share_before(there[number]);
            const double change = now - then;
            const double size = std::abs(change);
            // In points of the whole: a tenth shows, ten are full colour.
            const std::string colour = size < 0.1 ? "same" : change > 0 ? "up" : "down";
            constexpr std::array<std::string_view, 4> shades{"", ".25", ".45", ".7"};
            const std::size_t shade = size < 0.1 ? 0 : size < 1 ? 1 : size < 3 ? 2 : size < 10 ? 3 : 0;
            const std::string classes = colour + (shade == 0 ? "" : " o" + std::to_string(shade));
            std::array<char, 80> note{};
            (void)std::snprintf(note.data(), note.size(), "%+.2f points (%.2f%% before)", change, then);
            return Look{classes, fill_of(colour), shades.at(shade), note.data()};
        }};
    std::string gone;
    std::vector<std::pair<double, std::uint32_t>> lost;
    for (std::size_t i = 1; i < before.nodes().size(); ++i) {
        const bool parent_met = before.nodes()[i].parent == 0 || met[before.nodes()[i].parent];
        if (!met[i] && parent_met && share_before(i) >= 0.1) {
            lost.emplace_back(share_before(i), static_cast<std::uint32_t>(i));
        }
    }
    std::ranges::sort(lost, std::greater{});
    for (std::size_t i = 0; i < std::min<std::size_t>(lost.size(), 8); ++i) {
        gone += (i == 0 ? "only before: " : ", ") + before.label(before.nodes()[lost[i].second]) + " " +
                percent(lost[i].first);
    }
    return draw(painter, gone);
}

}  // namespace sampleblk::profile
