// SPDX-License-Identifier: MIT
// A structure's fields, named once, for the way to Python and back.
#pragma once

#include <pybind11/pybind11.h>

#include <concepts>
#include <limits>
#include <string>
#include <tuple>

#include "sampleblk/error.hpp"

namespace sampleblk::bindings {

namespace py = pybind11;

template <typename S, typename T>
struct Field {
    const char* name;
    T S::* member;
};

template <typename S, typename... T>
void add_to(py::dict& out, const S& value, const std::tuple<Field<S, T>...>& fields) {
    std::apply([&](const auto&... field) { ((out[field.name] = value.*field.member), ...); }, fields);
}

template <typename S, typename... T>
[[nodiscard]] py::dict to_dict(const S& value, const std::tuple<Field<S, T>...>& fields) {
    py::dict out;
    add_to(out, value, fields);
    return out;
}

template <std::integral V>
[[nodiscard]] V whole_number(const char* name, const py::handle& given) {
    py::detail::make_caster<V> taken;
    // A Decimal or a float of numpy's has an __int__() too, which would cut off its fraction.
    if (PyIndex_Check(given.ptr()) == 0 || !taken.load(given, true)) {
        throw InputError(std::string(name) + "=" + py::repr(given).cast<std::string>(), {}, 0,
                         "a whole number from " + std::to_string(std::numeric_limits<V>::min()) + " to " +
                             std::to_string(std::numeric_limits<V>::max()));
    }
    return py::detail::cast_op<V>(taken);
}

// What is not given stays zero; a name of no field is a TypeError.
template <typename S, typename... T>
[[nodiscard]] S from_keywords(const py::kwargs& given, const std::tuple<Field<S, T>...>& fields) {
    S value{};
    std::size_t taken = 0;
    const auto take = [&]<typename V>(const Field<S, V>& field) {
        if (given.contains(field.name)) {
            value.*field.member = whole_number<V>(field.name, given[field.name]);
            ++taken;
        }
    };
    std::apply([&](const auto&... field) { (take(field), ...); }, fields);
    if (taken != given.size()) {
        throw py::type_error("no such field among " + py::str(given).cast<std::string>());
    }
    return value;
}

}  // namespace sampleblk::bindings
