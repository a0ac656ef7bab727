// SPDX-License-Identifier: MIT
// Live tracing: control files with their undo log, readers, the writer of trace.dat.
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "sampleblk/trace/file.hpp"
#include "sampleblk/trace/readers.hpp"
#include "sampleblk/trace/tracefs.hpp"
#include "sampleblk/trace/writer.hpp"

namespace sampleblk::bindings {

void register_tracefs(py::module_& module) {
    module.def("tracefs_dir", &trace::tracefs_dir);
    module.def(
        "write_control",
        [](const std::string& path, const std::string& text, bool append) {
            const py::gil_scoped_release release;
            trace::write_control(path, text, append);
        },
        py::arg("path"), py::arg("text"), py::arg("append") = false);
    module.def("grow_buffer", &trace::grow_buffer, py::arg("instance_dir"), py::call_guard<py::gil_scoped_release>());
    module.def("recover_tracing", &trace::recover, py::arg("directory"), py::call_guard<py::gil_scoped_release>());

    py::class_<trace::Marker>(module, "Marker")
        .def(py::init<const std::string&>(), py::arg("instance_dir"))
        .def(
            "write",
            [](const trace::Marker& self, const std::string& text) {
                const py::gil_scoped_release release;
                self.write(text);
            },
            py::arg("text"));

    py::class_<trace::UndoLog>(module, "UndoLog")
        .def(py::init<const std::string&>(), py::arg("directory"))
        .def_property_readonly("path", &trace::UndoLog::path)
        .def(
            "set",
            [](trace::UndoLog& self, const std::string& path, const std::string& text, bool append) {
                const py::gil_scoped_release release;
                self.set(path, text, append);
            },
            py::arg("path"), py::arg("text"), py::arg("append") = false)
        .def("make_instance", &trace::UndoLog::make_instance, py::arg("path"))
        .def(
            "add_dynamic",
            [](trace::UndoLog& self, const std::string& path, const std::string& line, const std::string& remove) {
                const py::gil_scoped_release release;
                self.add_dynamic(path, line, remove);
            },
            py::arg("path"), py::arg("line"), py::arg("remove"))
        .def(
            "add_line",
            [](trace::UndoLog& self, const std::string& path, const std::string& line, const std::string& remove) {
                const py::gil_scoped_release release;
                self.add_line(path, line, remove);
            },
            py::arg("path"), py::arg("line"), py::arg("remove"))
        .def("undo", &trace::UndoLog::undo, py::call_guard<py::gil_scoped_release>());

    py::class_<trace::SpoolFile>(module, "SpoolFile")
        .def(py::init([](std::uint32_t cpu, std::string path, std::uint64_t bytes) {
                 return trace::SpoolFile{cpu, std::move(path), bytes};
             }),
             py::arg("cpu"), py::arg("path"), py::arg("bytes"))
        .def_readonly("cpu", &trace::SpoolFile::cpu)
        .def_readonly("path", &trace::SpoolFile::path)
        .def_readonly("bytes", &trace::SpoolFile::bytes);

    py::class_<trace::BufferReaders>(module, "BufferReaders")
        .def(py::init<const std::string&, const std::string&>(), py::arg("instance_dir"), py::arg("spool_dir"),
             py::call_guard<py::gil_scoped_release>())
        .def("stop", &trace::BufferReaders::stop, py::call_guard<py::gil_scoped_release>())
        .def_property_readonly("thread_ids", &trace::BufferReaders::thread_ids)
        .def_property_readonly("bytes", &trace::BufferReaders::bytes);

    module.def(
        "export_trace_file",
        [](const trace::TraceFile& file, const std::string& path, const std::optional<std::string>& buffer,
           std::optional<std::uint64_t> from, std::optional<std::uint64_t> to, bool prune) {
            trace::ExportRequest request;
            request.buffer = buffer;
            request.from = from.value_or(request.from);
            request.to = to.value_or(request.to);
            request.prune = prune;
            const py::gil_scoped_release release;
            trace::export_trace_file(file, path, request);
        },
        py::arg("file"), py::arg("path"), py::kw_only(), py::arg("buffer") = py::none(), py::arg("start") = py::none(),
        py::arg("stop") = py::none(), py::arg("prune") = false);
    module.def(
        "write_trace_file",
        [](const std::string& path, const std::string& instance_dir, const std::vector<std::string>& events,
           bool kallsyms, const std::vector<trace::SpoolFile>& cpus) {
            const py::gil_scoped_release release;
            trace::HeaderOptions options;
            options.events = events;
            options.kallsyms = kallsyms;
            trace::write_trace_file(path, trace::gather_header(instance_dir, options), {{{}, cpus}});
        },
        py::arg("path"), py::arg("instance_dir"), py::arg("events"), py::arg("kallsyms"), py::arg("cpus"));
}

}  // namespace sampleblk::bindings
