// SPDX-License-Identifier: MIT
// Structures of the ABI become dicts by field name; sampleblk_lab.device gives them their Python types.
#include <pybind11/stl.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "device_parts.hpp"
#include "fields.hpp"
#include "sampleblk/device.hpp"
#include "sampleblk/device_journal.hpp"

namespace sampleblk::bindings {

namespace {

// (sequence, first sector of it, sectors)
using Parts = std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>>;

constexpr std::tuple kConfig{Field{"index", &sampleblk_config::index},
                             Field{"flags", &sampleblk_config::flags},
                             Field{"capacity_bytes", &sampleblk_config::capacity_bytes},
                             Field{"queues", &sampleblk_config::queues},
                             Field{"depth", &sampleblk_config::depth},
                             Field{"logical_block_bytes", &sampleblk_config::logical_block_bytes},
                             Field{"physical_block_bytes", &sampleblk_config::physical_block_bytes},
                             Field{"io_min_bytes", &sampleblk_config::io_min_bytes},
                             Field{"io_opt_bytes", &sampleblk_config::io_opt_bytes},
                             Field{"max_sectors", &sampleblk_config::max_sectors},
                             Field{"max_segments", &sampleblk_config::max_segments},
                             Field{"poll_queues", &sampleblk_config::poll_queues},
                             Field{"mode", &sampleblk_config::mode},
                             Field{"completion", &sampleblk_config::completion},
                             Field{"numa_node", &sampleblk_config::numa_node},
                             Field{"cache_bytes", &sampleblk_config::cache_bytes},
                             Field{"atomic_write_unit_max_bytes", &sampleblk_config::atomic_write_unit_max_bytes},
                             Field{"atomic_write_unit_min_bytes", &sampleblk_config::atomic_write_unit_min_bytes},
                             Field{"atomic_write_boundary_bytes", &sampleblk_config::atomic_write_boundary_bytes},
                             Field{"discard_granularity_bytes", &sampleblk_config::discard_granularity_bytes},
                             Field{"discard_alignment_bytes", &sampleblk_config::discard_alignment_bytes},
                             Field{"zone_bytes", &sampleblk_config::zone_bytes},
                             Field{"zone_capacity_bytes", &sampleblk_config::zone_capacity_bytes},
                             Field{"conventional_zones", &sampleblk_config::conventional_zones},
                             Field{"max_open_zones", &sampleblk_config::max_open_zones},
                             Field{"max_active_zones", &sampleblk_config::max_active_zones}};
constexpr std::tuple kInfo{Field{"openers", &sampleblk_info::openers}, Field{"powered", &sampleblk_info::powered},
                           Field{"allocated_bytes", &sampleblk_info::allocated_bytes}};
constexpr std::tuple kCounters{Field{"reads", &sampleblk_counters::reads},
                               Field{"writes", &sampleblk_counters::writes},
                               Field{"discards", &sampleblk_counters::discards},
                               Field{"write_zeroes", &sampleblk_counters::write_zeroes},
                               Field{"flushes", &sampleblk_counters::flushes},
                               Field{"fua_writes", &sampleblk_counters::fua_writes},
                               Field{"read_bytes", &sampleblk_counters::read_bytes},
                               Field{"write_bytes", &sampleblk_counters::write_bytes},
                               Field{"discard_bytes", &sampleblk_counters::discard_bytes},
                               Field{"write_zeroes_bytes", &sampleblk_counters::write_zeroes_bytes},
                               Field{"errors", &sampleblk_counters::errors},
                               Field{"deferred", &sampleblk_counters::deferred},
                               Field{"delayed", &sampleblk_counters::delayed},
                               Field{"faults", &sampleblk_counters::faults},
                               Field{"batched", &sampleblk_counters::batched},
                               Field{"polled", &sampleblk_counters::polled}};
constexpr std::tuple kTune{Field{"queues", &sampleblk_tune::queues}, Field{"completion", &sampleblk_tune::completion},
                           Field{"histograms", &sampleblk_tune::histograms},
                           Field{"read_only", &sampleblk_tune::read_only},
                           Field{"sector_atomic", &sampleblk_tune::sector_atomic}};
constexpr std::tuple kTiming{Field{"model", &sampleblk_timing::model}, Field{"a", &sampleblk_timing::a},
                             Field{"b", &sampleblk_timing::b}, Field{"seed", &sampleblk_timing::seed}};
constexpr std::tuple kLimits{
    Field{"bytes_per_second", &sampleblk_limits::bytes_per_second}, Field{"iops", &sampleblk_limits::iops},
    Field{"stall_period_ns", &sampleblk_limits::stall_period_ns}, Field{"stall_ns", &sampleblk_limits::stall_ns},
    Field{"stall_offset_ns", &sampleblk_limits::stall_offset_ns}};
constexpr std::tuple kRule{Field{"ops", &sampleblk_rule::ops},
                           Field{"action", &sampleblk_rule::action},
                           Field{"first_sector", &sampleblk_rule::first_sector},
                           Field{"last_sector", &sampleblk_rule::last_sector},
                           Field{"skip", &sampleblk_rule::skip},
                           Field{"count", &sampleblk_rule::count},
                           Field{"every", &sampleblk_rule::every},
                           Field{"probability", &sampleblk_rule::probability},
                           Field{"arg0", &sampleblk_rule::arg0},
                           Field{"arg1", &sampleblk_rule::arg1},
                           Field{"up_ns", &sampleblk_rule::up_ns},
                           Field{"down_ns", &sampleblk_rule::down_ns}};
// Out only.
constexpr std::tuple kHits{Field{"matched", &sampleblk_rule::matched}, Field{"hits", &sampleblk_rule::hits}};
constexpr std::tuple kCut{Field{"dropped", &sampleblk_power::dropped}, Field{"survived", &sampleblk_power::survived},
                          Field{"torn", &sampleblk_power::torn}};
constexpr std::tuple kVolatile{Field{"id", &sampleblk_volatile::id}, Field{"sector", &sampleblk_volatile::sector},
                               Field{"sectors", &sampleblk_volatile::sectors}};
constexpr std::tuple kJournal{Field{"bytes", &sampleblk_journal::bytes},
                              Field{"used_bytes", &sampleblk_journal::used_bytes},
                              Field{"entries", &sampleblk_journal::entries},
                              Field{"overflow", &sampleblk_journal::overflow},
                              Field{"next_sequence", &sampleblk_journal::next_sequence},
                              Field{"position", &sampleblk_journal::position},
                              Field{"epoch", &sampleblk_journal::epoch}};

py::dict info_dict(const sampleblk_info& info) {
    py::dict out = to_dict(info.config, kConfig);
    add_to(out, info, kInfo);
    return out;
}

py::dict add(DeviceControl& control, const py::kwargs& given) {
    auto config = from_keywords(given, kConfig);
    {
        const py::gil_scoped_release release;
        config = control.add(config);
    }
    return to_dict(config, kConfig);
}

py::dict tune(DeviceControl& control, std::uint32_t index, const py::kwargs& given) {
    auto tune = from_keywords(given, kTune);
    tune.index = index;
    tune.set = (given.contains("queues") ? SAMPLEBLK_TUNE_QUEUES : 0) |
               (given.contains("completion") ? SAMPLEBLK_TUNE_COMPLETION : 0) |
               (given.contains("histograms") ? SAMPLEBLK_TUNE_HISTOGRAMS : 0) |
               (given.contains("read_only") ? SAMPLEBLK_TUNE_READ_ONLY : 0) |
               (given.contains("sector_atomic") ? SAMPLEBLK_TUNE_SECTOR_ATOMIC : 0);
    {
        const py::gil_scoped_release release;
        tune = control.tune(tune);
    }
    return to_dict(tune, kTune);
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
    auto limits = from_keywords(given, kLimits);
    limits.index = index;
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
    py::dict out = to_dict(timing, kTiming);
    out["bins"] = list;
    return out;
}

py::dict limits(const DeviceControl& control, std::uint32_t index) {
    return to_dict(control.limits(index), kLimits);
}

void set_faults(DeviceControl& control, std::uint32_t index, const std::vector<py::kwargs>& rules, std::uint64_t seed,
                bool add) {
    std::vector<sampleblk_rule> list;
    for (const py::kwargs& rule : rules) {
        list.push_back(from_keywords(rule, kRule));
    }
    const py::gil_scoped_release release;
    control.set_faults(index, std::move(list), seed, add);
}

py::list faults(const DeviceControl& control, std::uint32_t index) {
    py::list out;
    for (const sampleblk_rule& rule : control.faults(index)) {
        py::dict one = to_dict(rule, kRule);
        add_to(one, rule, kHits);
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
    return to_dict(power, kCut);
}

DeviceParts parts_of(const Parts& parts) {
    DeviceParts made;
    made.list.reserve(parts.size());
    for (const auto& [sequence, first, sectors] : parts) {
        made.list.push_back({sequence, first, sectors});
    }
    return made;
}

void state_give(DeviceControl& control, std::uint32_t index, std::uint32_t snapshot, const DeviceParts& parts,
                std::uint32_t target, bool force) {
    control.state_give(index, snapshot, parts.list, target, force);
}

std::uint32_t state_take(DeviceControl& control, std::uint32_t index, std::uint32_t snapshot,
                         const DeviceParts& parts) {
    return control.state_take(index, snapshot, parts.list);
}

py::list volatile_writes(const DeviceControl& control, std::uint32_t index) {
    py::list out;
    for (const sampleblk_volatile& write : control.volatile_writes(index)) {
        py::dict one = to_dict(write, kVolatile);
        one["durable"] = (write.flags & SAMPLEBLK_VOLATILE_DURABLE) != 0;
        one["zeroes"] = (write.flags & SAMPLEBLK_VOLATILE_ZEROES) != 0;
        one["in_flight"] = (write.flags & SAMPLEBLK_VOLATILE_IN_FLIGHT) != 0;
        out.append(one);
    }
    return out;
}

py::dict journal(const DeviceControl& control, std::uint32_t index) {
    return to_dict(control.journal(index), kJournal);
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
                return to_dict(control.counters(index, queue), kCounters);
            },
            py::arg("index"), py::arg("queue") = SAMPLEBLK_QUEUE_ALL)
        .def("histogram", &histogram, py::arg("index"), py::arg("op"), py::arg("queue") = SAMPLEBLK_QUEUE_ALL)
        .def("reset", &DeviceControl::reset, py::arg("index"), release())
        .def("tune", &tune, py::arg("index"))
        .def("resize", &DeviceControl::resize, py::arg("index"), py::arg("capacity_bytes"), release())
        .def("set_timing", &set_timing, py::arg("index"), py::arg("ops"), py::arg("model"), py::arg("a"), py::arg("b"),
             py::arg("seed"), py::arg("bins"))
        .def("timing", &timing, py::arg("index"), py::arg("op"))
        .def("set_limits", &set_limits, py::arg("index"))
        .def("limits", &limits, py::arg("index"))
        .def("set_faults", &set_faults, py::arg("index"), py::arg("rules"), py::arg("seed"), py::arg("add"))
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
             release())
        .def("state_give", &state_give, py::arg("index"), py::arg("snapshot"), py::arg("parts"), py::arg("target"),
             py::arg("force"), release())
        .def("state_take", &state_take, py::arg("index"), py::arg("snapshot"), py::arg("parts"), release());
    py::class_<DeviceParts>(module, "DeviceParts")
        .def(py::init(&parts_of), py::arg("parts"))
        .def(
            "as_tuples",
            [](const DeviceParts& parts) {
                Parts found;
                for (const sampleblk_part& part : parts.list) {
                    found.emplace_back(part.sequence, part.first, part.sectors);
                }
                return found;
            },
            "(sequence of the entry, first sector of it, sectors) of each.");
    py::class_<DeviceJournal>(module, "DeviceJournal")
        .def(py::init<const DeviceControl&, std::uint32_t>(), py::arg("control"), py::arg("index"), release())
        .def("__len__", &DeviceJournal::size)
        .def_property_readonly("overflow", &DeviceJournal::overflow)
        .def("table", &DeviceJournal::table, release())
        .def("save", &DeviceJournal::save, py::arg("path"), release())
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
    module.attr("SAMPLEBLK_F_INTEGRITY") = SAMPLEBLK_F_INTEGRITY;
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
