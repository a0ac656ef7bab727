// SPDX-License-Identifier: MIT
#include "sampleblk/workload/keys.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "key_tables.hpp"

namespace sampleblk::workload {

namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
        }
    }
    return row.back();
}

template <typename Visit>
void each_name(const Key& key, Visit visit) {
    visit(key.name);
    if (!key.alias.empty()) {
        for (const std::string_view alias : split(key.alias, ' ')) {
            visit(alias);
        }
    }
}

}  // namespace

const std::vector<Key>& all_keys() {
    static const std::vector<Key> keys = [] {
        std::vector<Key> all;
        for (const auto part : {job_keys(), pattern_keys(), file_keys(), engine_keys(), data_keys(), pacing_keys(),
                                report_keys(), unsupported_keys()}) {
            all.insert(all.end(), part.begin(), part.end());
        }
        return all;
    }();
    return keys;
}

const Key* find_key(std::string_view name) {
    static const std::unordered_map<std::string_view, const Key*> by_name = [] {
        std::unordered_map<std::string_view, const Key*> map;
        for (const Key& key : all_keys()) {
            each_name(key, [&](std::string_view one) { map.emplace(one, &key); });
        }
        return map;
    }();
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
}

std::string_view nearest_key(std::string_view name) {
    std::string_view best;
    auto least = static_cast<std::size_t>(-1);
    for (const Key& key : all_keys()) {
        each_name(key, [&](std::string_view known) {
            const std::size_t distance = edit_distance(name, known);
            if (distance < least) {
                least = distance;
                best = known;
            }
        });
    }
    return best;
}

}  // namespace sampleblk::workload
