// SPDX-License-Identifier: MIT
// One register_<topic>() a file; the bindings translate and do nothing else.
#pragma once

#include <pybind11/pybind11.h>

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
