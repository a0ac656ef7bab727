// SPDX-License-Identifier: MIT
// Flame graphs (https://queue.acm.org/detail.cfm?id=2927301) as one SVG that needs nothing else: it can be read and
// hovered without JavaScript, and with it zoomed and searched by mouse, touch or keyboard.
#pragma once

#include <optional>
#include <string>

#include "sampleblk/profile/stack_tree.hpp"

namespace sampleblk::profile {

struct FlameGraphOptions {
    std::string title = "Flame graph";
    std::string subtitle;          // losses and the like
    double min_percent = 0.05;     // frames narrower than this are left out, and counted in the subtitle
    std::optional<bool> inverted;  // roots at the top; by itself where a tall graph would hide its root below the fold
};

[[nodiscard]] std::string flame_graph(const StackTree& tree, const FlameGraphOptions& options);

// The same with each frame coloured by how much its share grew (red) or shrank (blue) since `before`. Frames that only
// `before` has are named in a list of their own below the title.
[[nodiscard]] std::string difference_flame_graph(const StackTree& before, const StackTree& after,
                                                 const FlameGraphOptions& options);

}  // namespace sampleblk::profile
