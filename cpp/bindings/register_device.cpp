// SPDX-License-Identifier: MIT
// Structures of the ABI become dicts by field name; sampleblk_lab.device gives them their Python types.
#include <pybind11/stl.h>

#include <cstdint>
#include <string>

#include "bindings.hpp"
#include "sampleblk/device.hpp"

namespace sampleblk::bindings {

namespace {

py::dict config_dict(const sampleblk_config& config) {
    py::dict out;
    out["index"] = config.index;
    out["flags"] = config.flags;
    out["capacity_bytes"] = config.capacity_bytes;
    out["queues"] = config.queues;
    out["depth"] = config.depth;
    out["logical_block_bytes"] = config.logical_block_bytes;
    out["physical_block_bytes"] = config.physical_block_bytes;
    return out;
}

py::dict info_dict(const sampleblk_info& info) {
    py::dict out = config_dict(info.config);
    out["openers"] = info.openers;
    out["allocated_bytes"] = info.allocated_bytes;
    return out;
}

py::dict counters_dict(const sampleblk_counters& counters) {
    py::dict out;
    out["reads"] = counters.reads;
    out["writes"] = counters.writes;
    out["discards"] = counters.discards;
    out["write_zeroes"] = counters.write_zeroes;
    out["flushes"] = counters.flushes;
    out["fua_writes"] = counters.fua_writes;
    out["read_bytes"] = counters.read_bytes;
    out["write_bytes"] = counters.write_bytes;
    out["discard_bytes"] = counters.discard_bytes;
    out["write_zeroes_bytes"] = counters.write_zeroes_bytes;
    out["errors"] = counters.errors;
    out["deferred"] = counters.deferred;
    return out;
}

py::dict add(DeviceControl& control, std::uint64_t capacity_bytes, std::uint32_t flags, std::uint32_t index,
             std::uint32_t queues, std::uint32_t depth, std::uint32_t logical_block_bytes,
             std::uint32_t physical_block_bytes) {
    sampleblk_config config{};
    config.index = index;
    config.flags = flags;
    config.capacity_bytes = capacity_bytes;
    config.queues = queues;
    config.depth = depth;
    config.logical_block_bytes = logical_block_bytes;
    config.physical_block_bytes = physical_block_bytes;
    {
        const py::gil_scoped_release release;
        config = control.add(config);
    }
    return config_dict(config);
}

}  // namespace

void register_device(py::module_& module) {
    using release = py::call_guard<py::gil_scoped_release>;
    py::class_<DeviceControl>(module, "DeviceControl")
        .def(py::init<const std::string&>(), py::arg("path") = SAMPLEBLK_CONTROL_PATH)
        .def("close", &DeviceControl::close)
        .def("add", &add, py::arg("capacity_bytes"), py::kw_only(), py::arg("flags"),
             py::arg("index") = SAMPLEBLK_INDEX_ANY, py::arg("queues") = 0, py::arg("depth") = 0,
             py::arg("logical_block_bytes") = 0, py::arg("physical_block_bytes") = 0)
        .def("remove", &DeviceControl::remove, py::arg("index"), py::arg("force") = false, release())
        .def("list", &DeviceControl::list, release())
        .def(
            "info", [](const DeviceControl& control, std::uint32_t index) { return info_dict(control.info(index)); },
            py::arg("index"))
        .def(
            "counters",
            [](const DeviceControl& control, std::uint32_t index, std::uint32_t queue) {
                return counters_dict(control.counters(index, queue));
            },
            py::arg("index"), py::arg("queue") = SAMPLEBLK_QUEUE_ALL);
    module.attr("SAMPLEBLK_F_READ_ONLY") = SAMPLEBLK_F_READ_ONLY;
    module.attr("SAMPLEBLK_F_ROTATIONAL") = SAMPLEBLK_F_ROTATIONAL;
    module.attr("SAMPLEBLK_F_DISCARD") = SAMPLEBLK_F_DISCARD;
    module.attr("SAMPLEBLK_F_WRITE_ZEROES") = SAMPLEBLK_F_WRITE_ZEROES;
    module.attr("SAMPLEBLK_F_CACHE") = SAMPLEBLK_F_CACHE;
    module.attr("SAMPLEBLK_F_FUA") = SAMPLEBLK_F_FUA;
    module.attr("SAMPLEBLK_F_NO_PARTITIONS") = SAMPLEBLK_F_NO_PARTITIONS;
}

}  // namespace sampleblk::bindings
