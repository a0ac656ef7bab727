// SPDX-License-Identifier: MIT
#include <cstddef>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk::bindings {

void register_files(py::module_& module) {
    module.def(
        "read_starts",
        [](const std::vector<std::string>& paths, std::size_t most) {
            py::list texts(paths.size());
            std::size_t at = 0;
            for (const std::string& path : paths) {
                const std::string text = read_start(path, most);
                const std::size_t length = text.find_last_not_of('\n') + 1;
                auto decoded = py::reinterpret_steal<py::object>(
                    PyUnicode_DecodeUTF8(text.data(), static_cast<py::ssize_t>(length), "replace"));
                if (!decoded) {
                    throw py::error_already_set();
                }
                texts[at++] = std::move(decoded);
            }
            return texts;
        },
        py::arg("paths"), py::arg("most"));
}

}  // namespace sampleblk::bindings
