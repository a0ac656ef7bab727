// SPDX-License-Identifier: MIT
// One register_<topic>() a file; the bindings translate and do nothing else.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

// A path on Linux is bytes, and Python holds those that are not UTF-8 as surrogates (PEP 383). So does every string
// here, both ways: a file of any name can be opened, and is named in what comes back as Python names it.
template <>
struct pybind11::detail::type_caster<std::string> : string_caster<std::string> {
    bool load(handle source, bool convert) {
        if (string_caster::load(source, convert)) {
            return true;
        }
        if (!source || PyUnicode_Check(source.ptr()) == 0) {
            return false;
        }
        const auto bytes =
            reinterpret_steal<object>(PyUnicode_AsEncodedString(source.ptr(), "utf-8", "surrogateescape"));
        if (!bytes) {
            PyErr_Clear();
            return false;
        }
        value.assign(PyBytes_AS_STRING(bytes.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr())));
        return true;
    }

    static handle cast(const std::string& source, return_value_policy /*policy*/, handle /*parent*/) {
        const handle text =
            PyUnicode_DecodeUTF8(source.data(), static_cast<Py_ssize_t>(source.size()), "surrogateescape");
        if (!text) {
            throw error_already_set();
        }
        return text;
    }
};

namespace sampleblk::bindings {

namespace py = pybind11;

void register_crash(py::module_& module);
void register_device(py::module_& module);
void register_error(py::module_& module);
void register_files(py::module_& module);
void register_inspect(py::module_& module);
void register_profile(py::module_& module);
void register_sampler(py::module_& module);
void register_table(py::module_& module);
void register_trace(py::module_& module);
void register_trace_views(py::module_& module);
void register_tracefs(py::module_& module);
void register_units(py::module_& module);
void register_workload(py::module_& module);

}  // namespace sampleblk::bindings
