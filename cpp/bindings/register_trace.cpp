// SPDX-License-Identifier: MIT
// Recordings: trace.dat files, their formats and their columns.
#include <pybind11/stl.h>

#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/trace/decode.hpp"
#include "sampleblk/trace/file.hpp"

namespace sampleblk::bindings {

namespace {

trace::OnError on_error(const std::string& text) {
    if (text == "strict") {
        return trace::OnError::strict;
    }
    if (text == "skip") {
        return trace::OnError::skip;
    }
    throw InputError("errors='" + text + "'", {}, 0, "'strict' or 'skip'");
}

trace::Selection selection(const std::optional<std::string>& buffer, std::vector<std::uint32_t> cpus,
                           std::optional<std::uint64_t> from, std::optional<std::uint64_t> to) {
    trace::Selection out;
    out.buffer = buffer;
    out.cpus = std::move(cpus);
    out.from = from.value_or(out.from);
    out.to = to.value_or(out.to);
    return out;
}

py::dict format_dict(const trace::EventFormat& format) {
    py::dict out;
    out["system"] = format.system;
    out["name"] = format.name;
    out["id"] = format.id;
    out["print_format"] = format.print_format;
    py::list fields;
    for (const trace::Field& field : format.fields) {
        py::dict entry;
        entry["name"] = field.name;
        entry["type"] = field.type;
        entry["offset"] = field.offset;
        entry["size"] = field.size;
        entry["signed"] = field.is_signed;
        fields.append(entry);
    }
    out["fields"] = fields;
    return out;
}

py::dict damage_dict(const trace::Damage& damage) {
    py::dict out;
    out["pages"] = damage.pages;
    out["bytes"] = damage.bytes;
    out["records"] = damage.records;
    out["notes"] = damage.notes;
    return out;
}

py::list loss_list(const trace::TraceFile& file) {
    py::list out;
    for (const trace::CpuLoss& loss : file.losses()) {
        py::dict entry;
        entry["buffer"] = loss.buffer;
        entry["cpu"] = loss.cpu;
        entry["overrun"] = loss.overrun;
        entry["commit_overrun"] = loss.commit_overrun;
        entry["dropped"] = loss.dropped;
        entry["read"] = loss.read;
        out.append(entry);
    }
    return out;
}

std::shared_ptr<trace::TraceFile> from_bytes(const py::bytes& data, const std::string& name,
                                             const std::string& errors) {
    const std::string_view view = data;
    std::vector<std::byte> bytes(view.size());
    std::memcpy(bytes.data(), view.data(), view.size());
    return std::make_shared<trace::TraceFile>(std::move(bytes), name, on_error(errors));
}

}  // namespace

void register_trace(py::module_& module) {
    using trace::TraceFile;
    py::class_<TraceFile, std::shared_ptr<TraceFile>>(module, "TraceFile")
        .def(py::init([](const std::string& path, const std::string& errors) {
                 const auto how = on_error(errors);
                 const py::gil_scoped_release release;
                 return std::make_shared<TraceFile>(path, how);
             }),
             py::arg("path"), py::arg("errors") = "strict")
        .def_static("from_bytes", &from_bytes, py::arg("data"), py::arg("name") = "<bytes>",
                    py::arg("errors") = "strict")
        .def_property_readonly("path", &TraceFile::path)
        .def_property_readonly("version", &TraceFile::version)
        .def_property_readonly("page_size", &TraceFile::page_size)
        .def_property_readonly("uname", &TraceFile::uname)
        .def_property_readonly("writer", &TraceFile::writer)
        .def_property_readonly("clock", [](const TraceFile& self) { return self.clock(); })
        .def_property_readonly("commands", &TraceFile::commands)
        .def_property_readonly("printk_formats", &TraceFile::printk_formats)
        .def_property_readonly("losses", &loss_list)
        .def_property_readonly("damage", [](const TraceFile& self) { return damage_dict(self.header_damage()); })
        .def_property_readonly("buffers",
                               [](const TraceFile& self) {
                                   std::vector<std::string> names;
                                   for (const auto& buffer : self.buffers()) {
                                       names.push_back(buffer.name);
                                   }
                                   return names;
                               })
        .def(
            "cpus",
            [](const TraceFile& self, const std::optional<std::string>& buffer) {
                std::set<std::uint32_t> cpus;
                for (const auto* one : self.select(buffer)) {
                    for (const auto& cpu : one->cpus) {
                        cpus.insert(cpu.cpu);
                    }
                }
                return std::vector<std::uint32_t>(cpus.begin(), cpus.end());
            },
            py::arg("buffer") = py::none())
        .def(
            "time_unit",
            [](const TraceFile& self, const std::optional<std::string>& buffer) {
                return std::string(self.time_unit(buffer));
            },
            py::arg("buffer") = py::none())
        .def("require_ns", &TraceFile::require_ns, py::arg("buffer"), py::arg("what"))
        .def_property_readonly("events",
                               [](const TraceFile& self) {
                                   std::vector<std::string> names;
                                   names.reserve(self.formats().size());
                                   for (const auto& format : self.formats()) {
                                       names.push_back(format.system + ":" + format.name);
                                   }
                                   return names;
                               })
        .def(
            "format",
            [](const TraceFile& self, const std::string& name) {
                const trace::EventFormat* format = self.find_event(name);
                if (format == nullptr) {
                    throw py::key_error("no event '" + name + "' in " + self.path());
                }
                if (name.find(':') == std::string::npos) {
                    for (const trace::EventFormat& other : self.formats()) {
                        if (other.name == name && other.system != format->system) {
                            throw py::key_error("event '" + name + "' is of several systems in " + self.path() + ": '" +
                                                format->system + ":" + name + "', '" + other.system + ":" + name + "'");
                        }
                    }
                }
                return format_dict(*format);
            },
            py::arg("event"))
        .def(
            "symbol",
            [](const TraceFile& self, std::uint64_t address, bool offset) {
                return self.symbols().describe(address, offset);
            },
            py::arg("address"), py::arg("offset") = false)
        .def(
            "count_events",
            [](const TraceFile& self, const std::optional<std::string>& buffer, std::vector<std::uint32_t> cpus,
               std::optional<std::uint64_t> from, std::optional<std::uint64_t> to) {
                const auto part = selection(buffer, std::move(cpus), from, to);
                const py::gil_scoped_release release;
                return trace::count_events(self, part);
            },
            py::kw_only(), py::arg("buffer") = py::none(), py::arg("cpus") = std::vector<std::uint32_t>{},
            py::arg("start") = py::none(), py::arg("stop") = py::none())
        .def(
            "decode",
            [](const TraceFile& self, std::vector<std::string> events, std::vector<std::string> fields,
               std::vector<std::int32_t> pids, const std::optional<std::string>& buffer,
               std::vector<std::uint32_t> cpus, std::optional<std::uint64_t> from, std::optional<std::uint64_t> to,
               bool comm, bool symbols, unsigned threads) {
                trace::DecodeRequest request;
                request.threads = threads;
                request.events = std::move(events);
                request.fields = std::move(fields);
                request.pids = std::move(pids);
                request.selection = selection(buffer, std::move(cpus), from, to);
                request.comm = comm;
                request.symbols = symbols;
                const py::gil_scoped_release release;
                return trace::decode(self, request).tables;
            },
            py::arg("events"), py::kw_only(), py::arg("fields") = std::vector<std::string>{},
            py::arg("pids") = std::vector<std::int32_t>{}, py::arg("buffer") = py::none(),
            py::arg("cpus") = std::vector<std::uint32_t>{}, py::arg("start") = py::none(), py::arg("stop") = py::none(),
            py::arg("comm") = false, py::arg("symbols") = false, py::arg("threads") = 0)
        .def(
            "decode_batches",
            [](const TraceFile& self, std::vector<std::string> events, std::size_t rows, const py::function& take,
               std::vector<std::string> fields, std::vector<std::int32_t> pids,
               const std::optional<std::string>& buffer, std::vector<std::uint32_t> cpus,
               std::optional<std::uint64_t> from, std::optional<std::uint64_t> to, bool comm, bool symbols) {
                trace::DecodeRequest request;
                request.events = std::move(events);
                request.fields = std::move(fields);
                request.pids = std::move(pids);
                request.selection = selection(buffer, std::move(cpus), from, to);
                request.comm = comm;
                request.symbols = symbols;
                const py::gil_scoped_release release;
                const auto stats =
                    trace::decode_batches(self, request, rows, [&take](const trace::EventFormat& format, Table table) {
                        const py::gil_scoped_acquire acquire;
                        take(format.system + ":" + format.name, std::move(table));
                    });
                return trace::loss_metadata(self, request.selection, stats);
            },
            py::arg("events"), py::arg("rows"), py::arg("take"), py::kw_only(),
            py::arg("fields") = std::vector<std::string>{}, py::arg("pids") = std::vector<std::int32_t>{},
            py::arg("buffer") = py::none(), py::arg("cpus") = std::vector<std::uint32_t>{},
            py::arg("start") = py::none(), py::arg("stop") = py::none(), py::arg("comm") = false,
            py::arg("symbols") = false);
}

}  // namespace sampleblk::bindings
