// SPDX-License-Identifier: MIT
// Structures of the ABI become dicts by field name; sampleblk_lab.device gives them their Python types.
#include <pybind11/stl.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "sampleblk/device.hpp"
#include "sampleblk/device_journal.hpp"

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
    out["io_min_bytes"] = config.io_min_bytes;
    out["io_opt_bytes"] = config.io_opt_bytes;
    out["max_sectors"] = config.max_sectors;
    out["max_segments"] = config.max_segments;
    out["poll_queues"] = config.poll_queues;
    out["mode"] = config.mode;
    out["completion"] = config.completion;
    out["numa_node"] = config.numa_node;
    out["cache_bytes"] = config.cache_bytes;
    return out;
}

py::dict info_dict(const sampleblk_info& info) {
    py::dict out = config_dict(info.config);
    out["openers"] = info.openers;
    out["powered"] = info.powered;
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
    out["delayed"] = counters.delayed;
    out["faults"] = counters.faults;
    out["batched"] = counters.batched;
    out["polled"] = counters.polled;
    return out;
}

// Fields of a structure by keyword; a name that it does not have is a TypeError.
class Fields {
  public:
    explicit Fields(const py::kwargs& given) : given_(given) {}

    template <typename T>
    Fields& take(const char* name, T& field) {
        if (given_.contains(name)) {
            field = given_[name].cast<T>();
            ++taken_;
        }
        return *this;
    }
    void done() const {
        if (taken_ != given_.size()) {
            throw py::type_error("no such field among " + py::str(given_).cast<std::string>());
        }
    }

  private:
    py::kwargs given_;
    std::size_t taken_ = 0;
};

py::dict add(DeviceControl& control, const py::kwargs& given) {
    sampleblk_config config{};
    Fields(given)
        .take("index", config.index)
        .take("flags", config.flags)
        .take("capacity_bytes", config.capacity_bytes)
        .take("queues", config.queues)
        .take("depth", config.depth)
        .take("logical_block_bytes", config.logical_block_bytes)
        .take("physical_block_bytes", config.physical_block_bytes)
        .take("io_min_bytes", config.io_min_bytes)
        .take("io_opt_bytes", config.io_opt_bytes)
        .take("max_sectors", config.max_sectors)
        .take("max_segments", config.max_segments)
        .take("poll_queues", config.poll_queues)
        .take("mode", config.mode)
        .take("completion", config.completion)
        .take("numa_node", config.numa_node)
        .take("cache_bytes", config.cache_bytes)
        .done();
    {
        const py::gil_scoped_release release;
        config = control.add(config);
    }
    return config_dict(config);
}

py::dict tune(DeviceControl& control, std::uint32_t index, const py::kwargs& given) {
    sampleblk_tune tune{};
    tune.index = index;
    Fields(given)
        .take("queues", tune.queues)
        .take("completion", tune.completion)
        .take("histograms", tune.histograms)
        .take("read_only", tune.read_only)
        .take("sector_atomic", tune.sector_atomic)
        .done();
    tune.set = (given.contains("queues") ? SAMPLEBLK_TUNE_QUEUES : 0) |
               (given.contains("completion") ? SAMPLEBLK_TUNE_COMPLETION : 0) |
               (given.contains("histograms") ? SAMPLEBLK_TUNE_HISTOGRAMS : 0) |
               (given.contains("read_only") ? SAMPLEBLK_TUNE_READ_ONLY : 0) |
               (given.contains("sector_atomic") ? SAMPLEBLK_TUNE_SECTOR_ATOMIC : 0);
    {
        const py::gil_scoped_release release;
        tune = control.tune(tune);
    }
    py::dict out;
    out["queues"] = tune.queues;
    out["completion"] = tune.completion;
    out["histograms"] = tune.histograms;
    out["read_only"] = tune.read_only;
    out["sector_atomic"] = tune.sector_atomic;
    return out;
}

void set_timing(DeviceControl& control, std::uint32_t index, std::uint32_t ops, std::uint32_t model, std::uint64_t a,
                std::uint64_t b, std::uint64_t seed, const std::vector<std::pair<std::uint64_t, std::uint64_t>>& bins) {
    sampleblk_timing timing{};
    timing.index = index;
    timing.ops = ops;
    timing.model = model;
    timing.a = a;
    timing.b = b;
    timing.seed = seed;
    std::vector<sampleblk_bin> list;
    for (const auto& [up_to_ns, count] : bins) {
        list.push_back({up_to_ns, count});
    }
    const py::gil_scoped_release release;
    control.set_timing(timing, list);
}

void set_limits(DeviceControl& control, std::uint32_t index, const py::kwargs& given) {
    sampleblk_limits limits{};
    limits.index = index;
    Fields(given)
        .take("bytes_per_second", limits.bytes_per_second)
        .take("iops", limits.iops)
        .take("stall_period_ns", limits.stall_period_ns)
        .take("stall_ns", limits.stall_ns)
        .take("stall_offset_ns", limits.stall_offset_ns)
        .done();
    const py::gil_scoped_release release;
    control.set_limits(limits);
}

py::dict timing(const DeviceControl& control, std::uint32_t index, std::uint32_t op) {
    const auto [timing, bins] = control.timing(index, op);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> list;
    list.reserve(bins.size());
    for (const sampleblk_bin& bin : bins) {
        list.emplace_back(bin.up_to_ns, bin.count);
    }
    py::dict out;
    out["model"] = timing.model;
    out["a"] = timing.a;
    out["b"] = timing.b;
    out["seed"] = timing.seed;
    out["bins"] = list;
    return out;
}

py::dict limits(const DeviceControl& control, std::uint32_t index) {
    const sampleblk_limits limits = control.limits(index);
    py::dict out;
    out["bytes_per_second"] = limits.bytes_per_second;
    out["iops"] = limits.iops;
    out["stall_period_ns"] = limits.stall_period_ns;
    out["stall_ns"] = limits.stall_ns;
    out["stall_offset_ns"] = limits.stall_offset_ns;
    return out;
}

sampleblk_rule rule_from(const py::kwargs& given) {
    sampleblk_rule rule{};
    Fields(given)
        .take("ops", rule.ops)
        .take("action", rule.action)
        .take("first_sector", rule.first_sector)
        .take("last_sector", rule.last_sector)
        .take("skip", rule.skip)
        .take("count", rule.count)
        .take("every", rule.every)
        .take("probability", rule.probability)
        .take("arg0", rule.arg0)
        .take("arg1", rule.arg1)
        .done();
    return rule;
}

void set_faults(DeviceControl& control, std::uint32_t index, const std::vector<py::kwargs>& rules, std::uint64_t seed) {
    std::vector<sampleblk_rule> list;
    for (const py::kwargs& rule : rules) {
        list.push_back(rule_from(rule));
    }
    const py::gil_scoped_release release;
    control.set_faults(index, std::move(list), seed);
}

py::list faults(const DeviceControl& control, std::uint32_t index) {
    py::list out;
    for (const sampleblk_rule& rule : control.faults(index)) {
        py::dict one;
        one["ops"] = rule.ops;
        one["action"] = rule.action;
        one["first_sector"] = rule.first_sector;
        one["last_sector"] = rule.last_sector;
        one["skip"] = rule.skip;
        one["count"] = rule.count;
        one["every"] = rule.every;
        one["probability"] = rule.probability;
        one["arg0"] = rule.arg0;
        one["arg1"] = rule.arg1;
        one["matched"] = rule.matched;
        one["hits"] = rule.hits;
        out.append(one);
    }
    return out;
}

py::dict power_cut(DeviceControl& control, std::uint32_t index, std::uint32_t mode, std::uint32_t flags,
                   std::uint32_t survive_percent, std::uint64_t seed,
                   const std::vector<std::pair<std::uint64_t, std::uint64_t>>& survivors) {
    sampleblk_power power{};
    power.index = index;
    power.mode = mode;
    power.flags = flags;
    power.survive_percent = survive_percent;
    power.seed = seed;
    std::vector<sampleblk_survivor> list;
    for (const auto& [id, sectors] : survivors) {
        list.push_back({id, sectors});
    }
    {
        const py::gil_scoped_release release;
        power = control.power_cut(power, list);
    }
    py::dict out;
    out["dropped"] = power.dropped;
    out["survived"] = power.survived;
    out["torn"] = power.torn;
    return out;
}

py::list volatile_writes(const DeviceControl& control, std::uint32_t index) {
    py::list out;
    for (const sampleblk_volatile& write : control.volatile_writes(index)) {
        py::dict one;
        one["id"] = write.id;
        one["sector"] = write.sector;
        one["sectors"] = write.sectors;
        one["durable"] = (write.flags & SAMPLEBLK_VOLATILE_DURABLE) != 0;
        one["zeroes"] = (write.flags & SAMPLEBLK_VOLATILE_ZEROES) != 0;
        out.append(one);
    }
    return out;
}

py::dict journal(const DeviceControl& control, std::uint32_t index) {
    const sampleblk_journal journal = control.journal(index);
    py::dict out;
    out["bytes"] = journal.bytes;
    out["used_bytes"] = journal.used_bytes;
    out["entries"] = journal.entries;
    out["overflow"] = journal.overflow;
    out["next_sequence"] = journal.next_sequence;
    out["position"] = journal.position;
    out["epoch"] = journal.epoch;
    return out;
}

py::dict histogram(const DeviceControl& control, std::uint32_t index, std::uint32_t op, std::uint32_t queue) {
    const sampleblk_histogram histogram = control.histogram(index, op, queue);
    py::dict out;
    out["total_ns"] = histogram.total_ns;
    out["buckets"] = std::vector<std::uint64_t>(std::begin(histogram.buckets), std::end(histogram.buckets));
    return out;
}

}  // namespace

void register_device(py::module_& module) {
    using release = py::call_guard<py::gil_scoped_release>;
    py::class_<DeviceControl>(module, "DeviceControl")
        .def(py::init<const std::string&>(), py::arg("path") = SAMPLEBLK_CONTROL_PATH)
        .def("close", &DeviceControl::close)
        .def("add", &add)
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
            py::arg("index"), py::arg("queue") = SAMPLEBLK_QUEUE_ALL)
        .def("histogram", &histogram, py::arg("index"), py::arg("op"), py::arg("queue") = SAMPLEBLK_QUEUE_ALL)
        .def("reset", &DeviceControl::reset, py::arg("index"), release())
        .def("tune", &tune, py::arg("index"))
        .def("set_timing", &set_timing, py::arg("index"), py::arg("ops"), py::arg("model"), py::arg("a"), py::arg("b"),
             py::arg("seed"), py::arg("bins"))
        .def("timing", &timing, py::arg("index"), py::arg("op"))
        .def("set_limits", &set_limits, py::arg("index"))
        .def("limits", &limits, py::arg("index"))
        .def("set_faults", &set_faults, py::arg("index"), py::arg("rules"), py::arg("seed"))
        .def("faults", &faults, py::arg("index"))
        .def("power_cut", &power_cut, py::arg("index"), py::arg("mode"), py::arg("flags"), py::arg("survive_percent"),
             py::arg("seed"), py::arg("survivors"))
        .def("power_on", &DeviceControl::power_on, py::arg("index"), release())
        .def("volatile_writes", &volatile_writes, py::arg("index"))
        .def("written_back", &DeviceControl::written_back, py::arg("index"))
        .def("journal_start", &DeviceControl::journal_start, py::arg("index"), py::arg("size_bytes"), release())
        .def("journal_stop", &DeviceControl::journal_stop, py::arg("index"), release())
        .def("journal", &journal, py::arg("index"))
        .def("mark", &DeviceControl::mark, py::arg("index"), py::arg("text"))
        .def("seek", &DeviceControl::seek, py::arg("index"), py::arg("sequence"), py::arg("force"), release())
        .def("snapshot_take", &DeviceControl::snapshot_take, py::arg("index"), release())
        .def("snapshot_take_at", &DeviceControl::snapshot_take_at, py::arg("index"), py::arg("sequence"), release())
        .def("snapshot_restore", &DeviceControl::snapshot_restore, py::arg("index"), py::arg("snapshot"),
             py::arg("force"), release())
        .def("snapshot_delete", &DeviceControl::snapshot_delete, py::arg("index"), py::arg("snapshot"), release())
        .def("snapshots", &DeviceControl::snapshots, py::arg("index"))
        .def("snapshot_clone", &DeviceControl::snapshot_clone, py::arg("index"), py::arg("snapshot"), py::arg("clone"),
             release());
    py::class_<DeviceJournal>(module, "DeviceJournal")
        .def(py::init<const DeviceControl&, std::uint32_t>(), py::arg("control"), py::arg("index"), release())
        .def("__len__", &DeviceJournal::size)
        .def_property_readonly("overflow", &DeviceJournal::overflow)
        .def("table", &DeviceJournal::table, release())
        .def(
            "replay",
            [](const DeviceJournal& journal, std::uint64_t sequence, std::uint64_t sector, std::uint64_t sectors) {
                std::vector<std::byte> data;
                {
                    const py::gil_scoped_release unlocked;
                    data = journal.replay(sequence, sector, sectors);
                }
                return py::bytes(reinterpret_cast<const char*>(data.data()), data.size());
            },
            py::arg("sequence"), py::arg("sector"), py::arg("sectors"))
        .def("export_log_writes", &DeviceJournal::export_log_writes, py::arg("path"), py::arg("sector_bytes") = 512,
             release());
    module.attr("SAMPLEBLK_MAX_LATENCY_NS") = SAMPLEBLK_MAX_LATENCY_NS;
    module.attr("SAMPLEBLK_MAX_BINS") = SAMPLEBLK_MAX_BINS;
    module.attr("SAMPLEBLK_F_EAGER") = SAMPLEBLK_F_EAGER;
    module.attr("SAMPLEBLK_F_SECTOR_ATOMIC") = SAMPLEBLK_F_SECTOR_ATOMIC;
    module.attr("SAMPLEBLK_SEEK_NEWEST") = SAMPLEBLK_SEEK_NEWEST;
    module.attr("SAMPLEBLK_F_READ_ONLY") = SAMPLEBLK_F_READ_ONLY;
    module.attr("SAMPLEBLK_F_ROTATIONAL") = SAMPLEBLK_F_ROTATIONAL;
    module.attr("SAMPLEBLK_F_DISCARD") = SAMPLEBLK_F_DISCARD;
    module.attr("SAMPLEBLK_F_WRITE_ZEROES") = SAMPLEBLK_F_WRITE_ZEROES;
    module.attr("SAMPLEBLK_F_CACHE") = SAMPLEBLK_F_CACHE;
    module.attr("SAMPLEBLK_F_FUA") = SAMPLEBLK_F_FUA;
    module.attr("SAMPLEBLK_F_NO_PARTITIONS") = SAMPLEBLK_F_NO_PARTITIONS;
}

}  // namespace sampleblk::bindings
