// SPDX-License-Identifier: MIT
#include <string>

#include "bindings.hpp"
#include "sampleblk/units.hpp"

namespace sampleblk::bindings {

void register_units(py::module_& module) {
    module.def(
        "parse_bytes", [](const std::string& text, const std::string& what) { return parse_bytes(text, what); },
        py::arg("text"), py::arg("what") = "size");
    module.def("format_bytes", &format_bytes, py::arg("size_bytes"));
    module.def("format_duration", &format_duration, py::arg("nanoseconds"));
}

}  // namespace sampleblk::bindings
