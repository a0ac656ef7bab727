// SPDX-License-Identifier: MIT
// The one table of job-file keys: name, form, default, what it changes, and how it is applied.
// The parser, the error messages and the documentation all read it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sampleblk/workload/options.hpp"

namespace sampleblk::workload {

enum class Support : std::uint8_t {
    full,      // does what fio does
    accepted,  // read and left alone: it cannot change the result here, and a notice says so
    refused,   // would change the result, and we cannot do it
};

// What a key changes.
enum class Effect : std::uint8_t { result, report };

struct Key {
    std::string_view name;
    std::string_view alias;  // more names, separated by blanks
    std::string_view form;   // "size", "time", "a|b|c", …
    std::string_view default_text;
    Effect effect;
    Support support;
    std::string_view help;  // for accepted and refused keys: why
    // Reads the value into the options; throws InputError. Null for keys that are not supported.
    void (*apply)(JobOptions& options, std::string_view text);
    bool takes_nothing = false;  // an empty value means something
};

// Every key, ours and fio's, in the order of the documentation.
[[nodiscard]] const std::vector<Key>& all_keys();

// By name or alias; null when there is none.
[[nodiscard]] const Key* find_key(std::string_view name);

// The known key that is nearest to a misspelt one, by edit distance.
[[nodiscard]] std::string_view nearest_key(std::string_view name);

// As ioengine= names it.
[[nodiscard]] std::string_view engine_name(Engine engine);

}  // namespace sampleblk::workload
