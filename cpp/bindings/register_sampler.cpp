// SPDX-License-Identifier: MIT
// Recording a perf.data, and counting.
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "sampleblk/profile/counters.hpp"
#include "sampleblk/profile/sampler.hpp"

namespace sampleblk::bindings {

namespace {

using profile::CounterSet;
using profile::Sampler;
using profile::SampleSource;

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
    py::class_<SampleSource>(module, "SampleSource")
        .def(py::init([](std::string event, std::string filter, std::uint64_t period, std::uint32_t frequency_hz,
                         bool stacks, bool everywhere) {
                 return SampleSource{std::move(event), std::move(filter), period, frequency_hz, stacks, everywhere};
             }),
             py::arg("event"), py::kw_only(), py::arg("filter") = "", py::arg("period") = 1,
             py::arg("frequency_hz") = 0, py::arg("stacks") = true, py::arg("everywhere") = false);

    py::class_<CounterSet>(module, "CounterSet")
        .def(py::init([](std::vector<std::string> events, std::vector<std::int32_t> pids, bool children, bool commands,
                         std::string tracefs) {
                 profile::CounterOptions options;
                 options.events = std::move(events);
                 options.pids = std::move(pids);
                 options.children = children;
                 options.commands = commands;
                 options.tracefs = std::move(tracefs);
                 const py::gil_scoped_release release;
                 return std::make_unique<CounterSet>(options);
             }),
             py::arg("events"), py::kw_only(), py::arg("pids") = std::vector<std::int32_t>{},
             py::arg("children") = true, py::arg("commands") = false, py::arg("tracefs") = "")
        .def("start", &CounterSet::start, py::call_guard<py::gil_scoped_release>())
        .def("stop", &CounterSet::stop, py::call_guard<py::gil_scoped_release>())
        .def("read", [](const CounterSet& self) {
            std::vector<profile::CounterValue> values;
            {
                const py::gil_scoped_release release;
                values = self.read();
            }
            py::list out;
            for (const auto& value : values) {
                py::dict one;
                one["event"] = value.event;
                one["supported"] = value.supported;
                one["counted"] = value.counted();
                one["value"] = value.scaled();
                one["raw"] = value.raw;
                one["enabled"] = value.enabled_ns;
                one["running"] = value.running_ns;
                one["clock"] = value.clock;
                out.append(std::move(one));
            }
            return out;
        });

    py::class_<Sampler>(module, "Sampler")
        .def(py::init([](const std::string& path, std::uint32_t frequency_hz, std::string event,
                         std::vector<std::int32_t> pids, bool children, bool kernel, bool user, bool callchains,
                         std::uint32_t user_stack_bytes, std::vector<SampleSource> sources, std::uint32_t buffer_pages,
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
                 options.sources = std::move(sources);
                 options.buffer_pages = buffer_pages;
                 options.limit_bytes = limit_bytes;
                 options.tracefs = std::move(tracefs);
                 const py::gil_scoped_release release;
                 return std::make_unique<Sampler>(options, path);
             }),
             py::arg("path"), py::kw_only(), py::arg("frequency_hz") = 997, py::arg("event") = "",
             py::arg("pids") = std::vector<std::int32_t>{}, py::arg("children") = true, py::arg("kernel") = true,
             py::arg("user") = true, py::arg("callchains") = true, py::arg("user_stack_bytes") = 0,
             py::arg("sources") = std::vector<SampleSource>{}, py::arg("buffer_pages") = 128,
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
