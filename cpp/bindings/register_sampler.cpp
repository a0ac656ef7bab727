// SPDX-License-Identifier: MIT
// Recording a perf.data.
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "sampleblk/profile/sampler.hpp"

namespace sampleblk::bindings {

namespace {

using profile::Sampler;

py::dict stats_dict(const profile::SamplerStats& stats) {
    py::dict out;
    out["event"] = stats.event;
    out["fallback"] = stats.fallback;
    out["bytes"] = stats.bytes;
    out["samples"] = stats.samples;
    out["lost"] = stats.lost;
    out["throttled"] = stats.throttled;
    out["dropped_bytes"] = stats.dropped_bytes;
    return out;
}

}  // namespace

void register_sampler(py::module_& module) {
    py::class_<Sampler>(module, "Sampler")
        .def(py::init([](const std::string& path, std::uint32_t frequency_hz, std::string event,
                         std::vector<std::int32_t> pids, bool children, bool kernel, bool user, bool callchains,
                         std::uint32_t user_stack_bytes, std::vector<std::string> trace_points,
                         std::vector<std::string> count_only_trace_points, std::uint32_t buffer_pages,
                         std::uint64_t limit_bytes, std::string tracefs) {
                 profile::SamplerOptions options;
                 options.frequency_hz = frequency_hz;
                 options.event = std::move(event);
                 options.pids = std::move(pids);
                 options.children = children;
                 options.kernel = kernel;
                 options.user = user;
                 options.callchains = callchains;
                 options.user_stack_bytes = user_stack_bytes;
                 options.trace_points = std::move(trace_points);
                 options.count_only_trace_points = std::move(count_only_trace_points);
                 options.buffer_pages = buffer_pages;
                 options.limit_bytes = limit_bytes;
                 options.tracefs = std::move(tracefs);
                 const py::gil_scoped_release release;
                 return std::make_unique<Sampler>(options, path);
             }),
             py::arg("path"), py::kw_only(), py::arg("frequency_hz") = 997, py::arg("event") = "",
             py::arg("pids") = std::vector<std::int32_t>{}, py::arg("children") = true, py::arg("kernel") = true,
             py::arg("user") = true, py::arg("callchains") = true, py::arg("user_stack_bytes") = 0,
             py::arg("trace_points") = std::vector<std::string>{},
             py::arg("count_only_trace_points") = std::vector<std::string>{}, py::arg("buffer_pages") = 128,
             py::arg("limit_bytes") = std::uint64_t{1} << 30U, py::arg("tracefs") = "")
        .def("start", &Sampler::start, py::call_guard<py::gil_scoped_release>())
        .def("stop", [](Sampler& self) {
            profile::SamplerStats stats;
            {
                const py::gil_scoped_release release;
                stats = self.stop();
            }
            return stats_dict(stats);
        });
}

}  // namespace sampleblk::bindings
