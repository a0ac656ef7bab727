// SPDX-License-Identifier: MIT
// Views of recordings that are made in the core: system calls, call graphs.
#include <pybind11/stl.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "sampleblk/trace/block.hpp"
#include "sampleblk/trace/graph.hpp"
#include "sampleblk/trace/import_events.hpp"
#include "sampleblk/trace/import_text.hpp"
#include "sampleblk/trace/syscalls.hpp"
#include "sampleblk/trace/timeline.hpp"

namespace sampleblk::bindings {

namespace {

using trace::TraceFile;

trace::SyscallRequest syscall_request(std::vector<std::int32_t> pids, bool children,
                                      const std::optional<std::string>& buffer, std::optional<std::uint64_t> from,
                                      std::optional<std::uint64_t> to) {
    trace::SyscallRequest request;
    request.pids = std::move(pids);
    request.children = children;
    request.selection.buffer = buffer;
    request.selection.from = from.value_or(request.selection.from);
    request.selection.to = to.value_or(request.selection.to);
    return request;
}

// A recording as lines of a timeline, written by `write`.
template <void (*write)(const trace::Timeline&, const std::string&)>
void define_timeline(py::module_& module, const char* name) {
    module.def(
        name,
        [](const TraceFile& file, const std::string& path, std::vector<std::int32_t> pids, bool children,
           const std::optional<std::string>& buffer, std::optional<std::uint64_t> from,
           std::optional<std::uint64_t> to) {
            const auto request = syscall_request(std::move(pids), children, buffer, from, to);
            const py::gil_scoped_release release;
            write(trace::make_timeline(file, request), path);
        },
        py::arg("file"), py::arg("path"), py::kw_only(), py::arg("pids") = std::vector<std::int32_t>{},
        py::arg("children") = false, py::arg("buffer") = py::none(), py::arg("start") = py::none(),
        py::arg("stop") = py::none());
}

template <Table (*make)(const TraceFile&, const trace::SyscallRequest&)>
void define(py::module_& module, const char* name) {
    module.def(
        name,
        [](const TraceFile& file, std::vector<std::int32_t> pids, bool children,
           const std::optional<std::string>& buffer, std::optional<std::uint64_t> from,
           std::optional<std::uint64_t> to) {
            const auto request = syscall_request(std::move(pids), children, buffer, from, to);
            const py::gil_scoped_release release;
            return make(file, request);
        },
        py::arg("file"), py::kw_only(), py::arg("pids") = std::vector<std::int32_t>{}, py::arg("children") = false,
        py::arg("buffer") = py::none(), py::arg("start") = py::none(), py::arg("stop") = py::none());
}

}  // namespace

void register_trace_views(py::module_& module) {
    define<trace::syscall_table>(module, "syscall_table");
    define<trace::syscall_summary>(module, "syscall_summary");
    define_timeline<trace::write_perfetto>(module, "write_perfetto");
    define_timeline<trace::write_chrome>(module, "write_chrome");

    py::class_<trace::CallGraph, std::shared_ptr<trace::CallGraph>>(module, "CallGraph")
        .def(py::init([](const TraceFile& file, std::vector<std::string> functions, std::vector<std::int32_t> pids,
                         const std::optional<std::string>& buffer, std::vector<std::uint32_t> cpus,
                         std::optional<std::uint64_t> from, std::optional<std::uint64_t> to) {
                 trace::GraphRequest request;
                 request.functions = std::move(functions);
                 request.pids = std::move(pids);
                 request.selection.buffer = buffer;
                 request.selection.cpus = std::move(cpus);
                 request.selection.from = from.value_or(request.selection.from);
                 request.selection.to = to.value_or(request.selection.to);
                 const py::gil_scoped_release release;
                 return std::make_shared<trace::CallGraph>(trace::call_graph(file, request));
             }),
             py::arg("file"), py::kw_only(), py::arg("functions") = std::vector<std::string>{},
             py::arg("pids") = std::vector<std::int32_t>{}, py::arg("buffer") = py::none(),
             py::arg("cpus") = std::vector<std::uint32_t>{}, py::arg("start") = py::none(),
             py::arg("stop") = py::none())
        .def("__len__", &trace::CallGraph::size)
        .def("table", [](const trace::CallGraph& self) { return trace::graph_table(self); })
        .def(
            "text",
            [](const trace::CallGraph& self, std::size_t first, std::optional<std::size_t> rows,
               std::optional<std::int32_t> depth) {
                const py::gil_scoped_release release;
                return trace::graph_text(self, first, rows.value_or(self.size()),
                                         depth.value_or(std::numeric_limits<std::int32_t>::max()));
            },
            py::arg("first") = 0, py::arg("rows") = py::none(), py::arg("depth") = py::none());
    module.def(
        "block_table",
        [](const TraceFile& file, const std::optional<std::string>& buffer, std::optional<std::uint64_t> from,
           std::optional<std::uint64_t> to) {
            trace::Selection selection;
            selection.buffer = buffer;
            selection.from = from.value_or(selection.from);
            selection.to = to.value_or(selection.to);
            const py::gil_scoped_release release;
            return trace::block_table(file, selection);
        },
        py::arg("file"), py::kw_only(), py::arg("buffer") = py::none(), py::arg("start") = py::none(),
        py::arg("stop") = py::none());
    module.def("offset_table", &trace::offset_table, py::arg("calls"), py::call_guard<py::gil_scoped_release>());
    module.def("opened_table", &trace::opened_table, py::arg("calls"), py::call_guard<py::gil_scoped_release>());
    const auto how = [](bool skip) { return skip ? trace::OnError::skip : trace::OnError::strict; };
    module.def(
        "read_graph_text",
        [how](const std::string& text, const std::string& source, bool skip) {
            const py::gil_scoped_release release;
            return std::make_shared<trace::CallGraph>(trace::read_graph_text(text, source, how(skip)));
        },
        py::arg("text"), py::arg("source"), py::arg("skip") = false);
    module.def(
        "read_strace_log",
        [how](const std::string& text, const std::string& source, bool skip) {
            const py::gil_scoped_release release;
            return trace::read_strace_log(text, source, how(skip));
        },
        py::arg("text"), py::arg("source"), py::arg("skip") = false);
    module.def(
        "read_strace_summary",
        [](const std::string& text, const std::string& source) { return trace::read_strace_summary(text, source); },
        py::arg("text"), py::arg("source"));
    module.def(
        "import_events",
        [how](const std::vector<std::string>& sources, const std::string& path, bool skip) {
            const py::gil_scoped_release release;
            return trace::import_events(sources, path, how(skip));
        },
        py::arg("sources"), py::arg("path"), py::arg("skip") = false);
    module.def(
        "duration_mark", [](std::uint64_t ns) { return std::string(1, trace::duration_mark(ns)); },
        py::arg("nanoseconds"));
    module.def("duration_text", &trace::duration_text, py::arg("nanoseconds"));
}

}  // namespace sampleblk::bindings
