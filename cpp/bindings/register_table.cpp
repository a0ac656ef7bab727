// SPDX-License-Identifier: MIT
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "sampleblk/arrow.hpp"
#include "sampleblk/table.hpp"

namespace sampleblk::bindings {

namespace {

py::dtype numpy_type(ColumnType type) {
    if (type == ColumnType::string) {
        return py::dtype::of<std::int32_t>();
    }
    return py::dtype(std::string(type_name(type)));
}

// A read-only numpy view that keeps the column's data alive.
py::array view(const Column& column) {
    auto owner = std::make_unique<std::shared_ptr<const void>>(column.data());
    const py::capsule base(owner.get(),
                           [](void* pointer) { delete static_cast<std::shared_ptr<const void>*>(pointer); });
    (void)owner.release();
    py::array array(numpy_type(column.type()), {static_cast<py::ssize_t>(column.size())},
                    {static_cast<py::ssize_t>(element_size(column.type()))}, column.data().get(), base);
    array.attr("setflags")(py::arg("write") = false);
    return array;
}

py::object categories(const Column& column) {
    if (!column.pool()) {
        return py::none();
    }
    py::list out;
    for (std::size_t i = 0; i < column.pool()->size(); ++i) {
        out.append(column.pool()->at(static_cast<std::int32_t>(i)));
    }
    return out;
}

// That of one code: all of them, for each row, are quadratic.
const std::string& category(const Column& column, std::int32_t code) {
    if (!column.pool() || code < 0 || static_cast<std::size_t>(code) >= column.pool()->size()) {
        throw py::index_error("no category " + std::to_string(code));
    }
    return column.pool()->at(code);
}

// A capsule of the PyCapsule interface: whoever does not consume it must release what it holds.
template <typename Arrow>
py::capsule arrow_capsule(std::unique_ptr<Arrow> value, const char* name) {
    return py::capsule(value.release(), name, [](PyObject* capsule) {
        auto* held = static_cast<Arrow*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
        if (held->release != nullptr) {
            held->release(held);
        }
        delete held;
    });
}

template <typename What>
py::capsule schema_of(const What& what) {
    auto schema = std::make_unique<ArrowSchema>();
    export_schema(what, schema.get());
    return arrow_capsule(std::move(schema), "arrow_schema");
}

// A producer may ignore the schema that a consumer asks for, says the specification.
template <typename What>
py::capsule stream_of(const What& what, const py::object& requested_schema) {
    (void)requested_schema;
    auto stream = std::make_unique<ArrowArrayStream>();
    export_stream(what, stream.get());
    return arrow_capsule(std::move(stream), "arrow_array_stream");
}

py::tuple array_of(const Column& column, const py::object& requested_schema) {
    (void)requested_schema;
    auto array = std::make_unique<ArrowArray>();
    export_batch(column, array.get());
    auto held = arrow_capsule(std::move(array), "arrow_array");
    return py::make_tuple(schema_of(column), std::move(held));
}

// The code of a missing string.
constexpr std::int32_t kMissing = -1;

Column string_column(std::string name, const std::vector<std::optional<std::string>>& values) {
    auto pool = std::make_shared<StringPool>();
    std::vector<std::int32_t> codes;
    codes.reserve(values.size());
    for (const auto& value : values) {
        codes.push_back(value ? pool->intern(*value) : kMissing);
    }
    return {std::move(name), std::move(codes), std::move(pool)};
}

// Rows of a column, in any order, each any number of times.
template <typename T>
Column picked(const Column& column, const py::array_t<std::int64_t>& rows) {
    const auto* from = static_cast<const T*>(column.data().get());
    const auto wanted = rows.unchecked<1>();
    std::vector<T> values;
    values.reserve(static_cast<std::size_t>(wanted.size()));
    for (py::ssize_t i = 0; i < wanted.size(); ++i) {
        if (wanted(i) < 0 || static_cast<std::size_t>(wanted(i)) >= column.size()) {
            throw py::index_error("row " + std::to_string(wanted(i)) + " of " + std::to_string(column.size()));
        }
        values.push_back(from[wanted(i)]);
    }
    if constexpr (std::is_same_v<T, std::int32_t>) {
        if (column.type() == ColumnType::string) {
            return {column.name(), std::move(values), column.pool()};
        }
    }
    return {column.name(), std::move(values), column.unit()};
}

Column take(const Column& column, const py::array_t<std::int64_t>& rows) {
    switch (column.type()) {
        case ColumnType::i8:
            return picked<std::int8_t>(column, rows);
        case ColumnType::i16:
            return picked<std::int16_t>(column, rows);
        case ColumnType::string:
        case ColumnType::i32:
            return picked<std::int32_t>(column, rows);
        case ColumnType::i64:
            return picked<std::int64_t>(column, rows);
        case ColumnType::u8:
            return picked<std::uint8_t>(column, rows);
        case ColumnType::u16:
            return picked<std::uint16_t>(column, rows);
        case ColumnType::u32:
            return picked<std::uint32_t>(column, rows);
        case ColumnType::u64:
            return picked<std::uint64_t>(column, rows);
        case ColumnType::f64:
            return picked<double>(column, rows);
    }
    throw py::type_error("column '" + column.name() + "' of an unknown type");
}

template <typename T>
Column numeric_column(std::string name, const py::array& values, std::string unit) {
    const auto typed = py::array_t < T, py::array::c_style | py::array::forcecast > ::ensure(values);
    return {std::move(name), std::vector<T>(typed.data(), typed.data() + typed.size()), std::move(unit)};
}

Column column_from_numpy(const std::string& name, const py::array& values, const std::string& unit) {
    const std::string type = py::str(values.dtype());
    if (values.ndim() != 1) {
        throw py::value_error("column '" + name + "': expected a one-dimensional array");
    }
    if (type == "int8") {
        return numeric_column<std::int8_t>(name, values, unit);
    }
    if (type == "int16") {
        return numeric_column<std::int16_t>(name, values, unit);
    }
    if (type == "int32") {
        return numeric_column<std::int32_t>(name, values, unit);
    }
    if (type == "int64") {
        return numeric_column<std::int64_t>(name, values, unit);
    }
    if (type == "uint8" || type == "bool") {
        return numeric_column<std::uint8_t>(name, values, unit);
    }
    if (type == "uint16") {
        return numeric_column<std::uint16_t>(name, values, unit);
    }
    if (type == "uint32") {
        return numeric_column<std::uint32_t>(name, values, unit);
    }
    if (type == "uint64") {
        return numeric_column<std::uint64_t>(name, values, unit);
    }
    if (type == "float64" || type == "float32") {
        return numeric_column<double>(name, values, unit);
    }
    throw py::type_error("column '" + name + "': no column type for numpy dtype " + type);
}

}  // namespace

void register_table(py::module_& module) {
    py::class_<Column>(module, "Column")
        .def(py::init(&column_from_numpy), py::arg("name"), py::arg("values"), py::arg("unit") = "")
        .def_static("of_strings", &string_column, py::arg("name"), py::arg("values"))
        .def("take", &take, py::arg("rows"))
        .def_property_readonly("name", &Column::name)
        .def_property_readonly("unit", &Column::unit)
        .def_property_readonly("type", [](const Column& self) { return std::string(type_name(self.type())); })
        .def_property_readonly("values", &view)
        .def_property_readonly("categories", &categories)
        .def("category", &category, py::arg("code"))
        .def("__len__", &Column::size)
        .def("__arrow_c_schema__", &schema_of<Column>)
        .def("__arrow_c_array__", &array_of, py::arg("requested_schema") = py::none())
        .def("__arrow_c_stream__", &stream_of<Column>, py::arg("requested_schema") = py::none());

    py::class_<Table>(module, "Table")
        .def(py::init<std::vector<Column>, std::map<std::string, std::string>>(), py::arg("columns"),
             py::arg("metadata") = std::map<std::string, std::string>{})
        .def_property_readonly("columns", &Table::columns)
        .def_property_readonly("metadata", &Table::metadata)
        .def(
            "column",
            [](const Table& self, const std::string& name) {
                const Column* found = self.find(name);
                if (found == nullptr) {
                    throw py::key_error(name);
                }
                return *found;
            },
            py::arg("name"))
        .def("__len__", &Table::rows)
        .def("__arrow_c_schema__", &schema_of<Table>)
        .def("__arrow_c_stream__", &stream_of<Table>, py::arg("requested_schema") = py::none());
}

}  // namespace sampleblk::bindings
