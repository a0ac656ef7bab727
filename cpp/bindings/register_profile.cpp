// SPDX-License-Identifier: MIT
// perf.data and the stacks in it.
#include <pybind11/stl.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "sampleblk/profile/exports.hpp"
#include "sampleblk/profile/flamegraph.hpp"
#include "sampleblk/profile/from_trace.hpp"
#include "sampleblk/profile/off_cpu.hpp"
#include "sampleblk/profile/profile.hpp"
#include "sampleblk/profile/stack_tree.hpp"

namespace sampleblk::bindings {

namespace {

using profile::Profile;
using profile::SampleSelection;
using profile::StackTree;

// event, pids, children, comm, cpus, start, stop, idle: what every view of a profile takes.
SampleSelection selection(const py::dict& fields) {
    SampleSelection out;
    const auto get = [&fields](const char* name, auto& target) {
        if (fields.contains(name) && !fields[name].is_none()) {
            target = fields[name].cast<std::remove_cvref_t<decltype(target)>>();
        }
    };
    if (fields.contains("event") && !fields["event"].is_none()) {
        out.event = fields["event"].cast<std::string>();
    }
    if (fields.contains("comm") && !fields["comm"].is_none()) {
        out.comm = fields["comm"].cast<std::string>();
    }
    get("pids", out.pids);
    get("children", out.children);
    get("cpus", out.cpus);
    get("start", out.from);
    get("stop", out.to);
    get("idle", out.idle);
    return out;
}

py::dict event_dict(const profile::Event& event) {
    py::dict out;
    out["name"] = event.name;
    out["type"] = event.attr.type;
    out["config"] = event.attr.config;
    out["sample_type"] = event.attr.sample_type;
    const bool by_frequency = event.attr.freq != 0;
    out["frequency_hz"] = by_frequency ? py::object(py::int_(event.attr.sample_freq)) : py::object(py::none());
    out["sample_period"] = by_frequency ? py::object(py::none()) : py::object(py::int_(event.attr.sample_period));
    return out;
}

profile::FlameGraphOptions flame_options(std::string title, std::string subtitle, double min_percent,
                                         std::optional<bool> inverted) {
    profile::FlameGraphOptions options;
    options.title = std::move(title);
    options.subtitle = std::move(subtitle);
    options.min_percent = min_percent;
    options.inverted = inverted;
    return options;
}

template <Table (*make)(const Profile&, const SampleSelection&)>
Table make_table(const Profile& self, const py::dict& fields) {
    const auto chosen = selection(fields);
    const py::gil_scoped_release release;
    return make(self, chosen);
}

template <StackTree (*make)(const Profile&, const SampleSelection&)>
std::shared_ptr<StackTree> make_tree(const Profile& self, const py::dict& fields) {
    const auto chosen = selection(fields);
    const py::gil_scoped_release release;
    return std::make_shared<StackTree>(make(self, chosen));
}

}  // namespace

void register_profile(py::module_& module) {
    py::class_<Profile, std::shared_ptr<Profile>>(module, "PerfProfile")
        .def(py::init([](const std::string& path, bool skip, std::string kallsyms,
                         std::vector<std::string> build_id_dirs, std::string root, bool use_paths,
                         bool use_running_kernel, bool inlines) {
                 profile::SymbolSources sources;
                 sources.kallsyms = std::move(kallsyms);
                 sources.build_id_dirs = std::move(build_id_dirs);
                 sources.root = std::move(root);
                 sources.use_paths = use_paths;
                 sources.use_running_kernel = use_running_kernel;
                 sources.inlines = inlines;
                 const py::gil_scoped_release release;
                 return std::make_shared<Profile>(
                     profile::open_recording(path, skip ? profile::OnDamage::skip : profile::OnDamage::strict),
                     sources);
             }),
             py::arg("path"), py::kw_only(), py::arg("skip") = false, py::arg("kallsyms") = "",
             py::arg("build_id_dirs") = std::vector<std::string>{}, py::arg("root") = "", py::arg("use_paths") = true,
             py::arg("use_running_kernel") = true, py::arg("inlines") = true)
        .def_property_readonly("path", [](const Profile& self) { return self.file().path(); })
        .def_property_readonly("is_pipe", [](const Profile& self) { return self.file().is_pipe(); })
        .def_property_readonly("is_compressed", [](const Profile& self) { return self.file().is_compressed(); })
        .def_property_readonly("header", [](const Profile& self) { return self.file().header(); })
        .def_property_readonly("events",
                               [](const Profile& self) {
                                   py::list out;
                                   for (const auto& event : self.file().events()) {
                                       out.append(event_dict(event));
                                   }
                                   return out;
                               })
        .def_property_readonly("metadata", [](const Profile& self) { return self.metadata(); })
        .def_property_readonly("symbol_files", [](const Profile& self) { return self.symbol_files(); })
        .def("__len__", &Profile::size)
        .def(
            "table",
            [](const Profile& self, const py::dict& fields) {
                const auto chosen = selection(fields);
                const py::gil_scoped_release release;
                return self.table(chosen);
            },
            py::arg("selection"))
        .def(
            "stack", [](const Profile& self, std::size_t sample) { return self.stack(sample); }, py::arg("sample"))
        .def(
            "write_perfetto",
            [](const Profile& self, const py::dict& fields, const std::string& path) {
                const auto chosen = selection(fields);
                const py::gil_scoped_release release;
                profile::write_perfetto_samples(self, chosen, path);
            },
            py::arg("selection"), py::arg("path"))
        .def("report", &make_table<profile::report_table>, py::arg("selection"))
        .def("off_cpu_table", &make_table<profile::off_cpu_table>, py::arg("selection"))
        .def("off_cpu_stacks", &make_tree<profile::off_cpu_tree>, py::arg("selection"))
        .def("wall_clock_stacks", &make_tree<profile::wall_clock_tree>, py::arg("selection"))
        .def("syscall_split", &make_table<profile::syscall_split>, py::arg("selection"))
        .def("lock_table", &make_table<profile::lock_table>, py::arg("selection"))
        .def(
            "stacks",
            [](const Profile& self, const py::dict& fields, bool by_period) {
                const auto chosen = selection(fields);
                const py::gil_scoped_release release;
                return std::make_shared<StackTree>(
                    profile::stack_tree(self, chosen, by_period ? profile::Weight::period : profile::Weight::samples));
            },
            py::arg("selection"), py::arg("by_period") = false);

    py::class_<StackTree, std::shared_ptr<StackTree>>(module, "StackTree")
        .def_property_readonly("unit", &StackTree::unit)
        .def_property_readonly("total", &StackTree::total)
        .def("__len__", [](const StackTree& self) { return self.nodes().size(); })
        .def("folded", &profile::folded_text, py::call_guard<py::gil_scoped_release>())
        .def("speedscope", &profile::speedscope_json, py::arg("title"), py::call_guard<py::gil_scoped_release>())
        .def("pprof",
             [](const StackTree& self) {
                 std::string out;
                 {
                     const py::gil_scoped_release release;
                     out = profile::pprof_profile(self);
                 }
                 return py::bytes(out);
             })
        .def("text", &profile::tree_text, py::arg("min_percent"), py::arg("max_depth"),
             py::call_guard<py::gil_scoped_release>())
        .def("functions", &profile::function_table, py::call_guard<py::gil_scoped_release>())
        .def(
            "weight",
            [](const StackTree& self, const std::vector<std::string>& path) -> std::optional<std::uint64_t> {
                const std::size_t node = self.find(path);
                return node == StackTree::npos ? std::nullopt : std::optional(self.nodes()[node].total);
            },
            py::arg("path"))
        .def(
            "below",
            [](const StackTree& self, const std::vector<std::string>& functions) {
                return std::make_shared<StackTree>(profile::stacks_below(self, functions));
            },
            py::arg("functions"), py::call_guard<py::gil_scoped_release>())
        .def(
            "merged",
            [](const StackTree& self, const StackTree& other) {
                auto out = std::make_shared<StackTree>(self.unit());
                out->merge(self);
                out->merge(other);
                return out;
            },
            py::arg("other"), py::call_guard<py::gil_scoped_release>())
        .def(
            "flamegraph",
            [](const StackTree& self, std::string title, std::string subtitle, double min_percent,
               std::optional<bool> inverted) {
                return profile::flame_graph(
                    self, flame_options(std::move(title), std::move(subtitle), min_percent, inverted));
            },
            py::kw_only(), py::arg("title"), py::arg("subtitle") = "", py::arg("min_percent") = 0.05,
            py::arg("inverted") = py::none(), py::call_guard<py::gil_scoped_release>())
        .def(
            "difference",
            [](const StackTree& self, const StackTree& before, std::string title, std::string subtitle,
               double min_percent, std::optional<bool> inverted) {
                return profile::difference_flame_graph(
                    before, self, flame_options(std::move(title), std::move(subtitle), min_percent, inverted));
            },
            py::arg("before"), py::kw_only(), py::arg("title"), py::arg("subtitle") = "", py::arg("min_percent") = 0.05,
            py::arg("inverted") = py::none(), py::call_guard<py::gil_scoped_release>());
    module.def(
        "own_vdso",
        [] {
            const auto bytes = profile::own_vdso();
            return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        },
        "The vDSO that the kernel gave this process.");
    module.def(
        "read_folded",
        [](const std::string& text, const std::string& source, const std::string& unit) {
            const py::gil_scoped_release release;
            return std::make_shared<StackTree>(profile::read_folded(text, source, unit));
        },
        py::arg("text"), py::arg("source"), py::arg("unit") = "samples");
}

}  // namespace sampleblk::bindings
