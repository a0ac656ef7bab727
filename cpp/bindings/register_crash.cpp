// SPDX-License-Identifier: MIT
#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "device_parts.hpp"
#include "sampleblk/crash/image.hpp"
#include "sampleblk/crash/log.hpp"
#include "sampleblk/crash/mounting.hpp"
#include "sampleblk/crash/names.hpp"
#include "sampleblk/crash/replay.hpp"
#include "sampleblk/crash/states.hpp"
#include "sampleblk/crash/verdicts.hpp"
#include "sampleblk/crash/walk.hpp"

namespace sampleblk::bindings {

namespace {

using Release = py::call_guard<py::gil_scoped_release>;
using Torn = std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>>;

crash::State make_state(std::size_t submitted, std::vector<std::uint32_t> lost, const Torn& torn) {
    crash::State state{.submitted = submitted, .lost = std::move(lost), .torn = {}};
    for (const auto& [write, first, sectors] : torn) {
        state.torn.push_back({write, first, sectors});
    }
    return state;
}

Torn torn_of(const crash::State& state) {
    Torn torn;
    for (const crash::Tear& tear : state.torn) {
        torn.emplace_back(tear.write, tear.first, tear.sectors);
    }
    return torn;
}

crash::Replayed make_replayed(const std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>>& writes) {
    std::vector<std::vector<crash::Entry>> made(writes.size());
    for (std::size_t i = 0; i < writes.size(); ++i) {
        for (const auto& [sequence, sectors] : writes[i]) {
            made[i].push_back({sequence, sectors});
        }
    }
    return crash::Replayed(std::move(made));
}

py::bytes digest_of(const crash::Image& image) {
    const crash::Digest digest = image.digest();
    return {reinterpret_cast<const char*>(digest.data()), sizeof(digest)};
}

std::vector<std::tuple<std::uint64_t, std::uint64_t, py::str>> marks_of(const crash::Log& log) {
    std::vector<std::tuple<std::uint64_t, std::uint64_t, py::str>> marks;
    for (const crash::Mark& mark : log.marks()) {
        // A mark of dm-log-writes may have any bytes.
        PyObject* text =
            PyUnicode_DecodeUTF8(mark.text.data(), static_cast<py::ssize_t>(mark.text.size()), "backslashreplace");
        if (text == nullptr) {
            throw py::error_already_set();
        }
        marks.emplace_back(mark.sequence, mark.order, py::reinterpret_steal<py::str>(text));
    }
    return marks;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> flushes_of(const crash::Log& log) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> flushes;
    for (const crash::Flush& flush : log.flushes()) {
        flushes.emplace_back(flush.submit, flush.complete);
    }
    return flushes;
}

}  // namespace

void register_crash(py::module_& module) {
    py::class_<crash::Log>(module, "CrashLog")
        .def_static(
            "read",
            [](const std::string& path, bool flush, bool fua) {
                return crash::Log::read(path, {.flush = flush, .fua = fua});
            },
            py::arg("path"), py::arg("flush") = true, py::arg("fua") = true, Release())
        .def("__len__", [](const crash::Log& log) { return log.writes().size(); })
        .def_property_readonly("format", &crash::Log::format)
        .def_property_readonly("flushes", [](const crash::Log& log) { return log.flushes().size(); })
        .def("flush_orders", &flushes_of, "(submission, completion) of each that succeeded.")
        .def_property_readonly("end_sector", &crash::Log::end_sector)
        .def_property_readonly("file_bytes", &crash::Log::file_bytes)
        .def_property_readonly("block_bytes", &crash::Log::block_bytes)
        .def_property_readonly("by_submission", &crash::Log::by_submission)
        .def_property_readonly("marks", &marks_of)
        .def("marks_set", &crash::marks_set, py::arg("state"), "How many of the marks, at the latest.")
        .def("marks_set_first", &crash::marks_set_first, py::arg("state"), "How many of the marks, at the earliest.")
        .def("at_last_mark", &crash::at_last_mark, py::arg("state"))
        .def("table", &crash::Log::table, Release())
        .def("replay", &crash::replay, py::arg("device"), Release());

    py::enum_<crash::Model::Kind>(module, "CrashModelKind")
        .value("prefix", crash::Model::Kind::prefix)
        .value("reorder", crash::Model::Kind::reorder)
        .value("torn", crash::Model::Kind::torn)
        .value("sample", crash::Model::Kind::sample);
    py::class_<crash::Model>(module, "CrashModel")
        .def(py::init<>())
        .def_readwrite("kind", &crash::Model::kind)
        .def_readwrite("complete_up_to", &crash::Model::complete_up_to)
        .def_readwrite("at_most", &crash::Model::at_most)
        .def_readwrite("tears", &crash::Model::tears)
        .def_readwrite("unit_sectors", &crash::Model::unit_sectors)
        .def_readwrite("seed", &crash::Model::seed);

    py::class_<crash::State>(module, "CrashState")
        .def(py::init(&make_state), py::arg("submitted"), py::arg("lost"), py::arg("torn"))
        .def_readonly("submitted", &crash::State::submitted)
        .def_readonly("lost", &crash::State::lost)
        .def_property_readonly("torn", &torn_of)
        .def("__eq__", [](const crash::State& a, const crash::State& b) { return a == b; }, py::is_operator());

    py::class_<crash::States>(module, "CrashStates")
        .def(py::init<const crash::Log&, const crash::Model&>(), py::arg("log"), py::arg("model"),
             py::keep_alive<1, 2>())
        .def("next",
             [](crash::States& states) -> std::optional<crash::State> {
                 crash::State state;
                 return states.next(state) ? std::optional(std::move(state)) : std::nullopt;
             })
        .def("count", &crash::States::count, Release());

    py::class_<crash::Image>(module, "CrashImage")
        .def(py::init<const crash::Log&, std::string, const std::string&, std::uint64_t>(), py::arg("log"),
             py::arg("path"), py::arg("base"), py::arg("size"), py::keep_alive<1, 2>(), Release())
        .def("take", &crash::Image::take, py::arg("state"), Release())
        .def_property_readonly("digest", &digest_of)
        .def("write", &crash::Image::write, Release())
        .def("restore", &crash::Image::restore, Release())
        .def_property_readonly("bytes", &crash::Image::bytes);

    py::class_<crash::Replayed>(module, "CrashReplayed")
        .def(py::init(&make_replayed), py::arg("writes"))
        .def(
            "parts",
            [](const crash::Replayed& replayed, const crash::Image& image) {
                return DeviceParts{replayed.parts(image)};
            },
            py::arg("image"));

    py::class_<crash::Names>(module, "CrashNames")
        .def(py::init<const crash::Log&, const std::string&>(), py::arg("log"), py::arg("base"), py::keep_alive<1, 2>(),
             Release())
        .def(
            "of",
            [](const crash::Names& names, std::uint32_t write) {
                std::vector<std::tuple<std::uint64_t, std::uint64_t, std::string>> found;
                for (crash::Name& name : names.of(write)) {
                    found.emplace_back(name.first, name.sectors, std::move(name.text));
                }
                return found;
            },
            py::arg("write"));

    py::class_<crash::MountedImage>(module, "CrashMount")
        .def(py::init<const std::string&, std::string, const std::string&, const std::string&>(), py::arg("image"),
             py::arg("target"), py::arg("fstype"), py::arg("options"), Release())
        .def_property_readonly("device", &crash::MountedImage::device)
        .def("unmount", &crash::MountedImage::unmount, py::arg("detach") = false, Release());

    py::class_<crash::VerdictBoard>(module, "CrashVerdictBoard").def(py::init<>());

    py::class_<crash::Verdicts>(module, "CrashVerdicts")
        .def(py::init<>())
        .def(py::init<const crash::VerdictBoard&, std::string_view>(), py::arg("board"), py::arg("checker"),
             py::keep_alive<1, 2>(), "With what others learn, that are forked once the board is there.")
        .def("__len__", &crash::Verdicts::size)
        .def("is_sound", &crash::Verdicts::is_sound, py::arg("path"), Release())
        .def(
            "learn",
            [](crash::Verdicts& verdicts, const std::string& path,
               const std::vector<std::pair<std::uint64_t, std::uint64_t>>& reads) {
                std::vector<crash::Read> list;
                for (const auto& [offset, length] : reads) {
                    list.push_back({offset, length});
                }
                verdicts.learn(path, list);
            },
            py::arg("path"), py::arg("reads"), "With the (offset, length) of each read.", Release());

    py::class_<crash::Walk>(module, "CrashWalk")
        .def(py::init<const crash::Log&, const crash::Model&, crash::Image&, std::vector<std::uint32_t>>(),
             py::arg("log"), py::arg("model"), py::arg("image"), py::arg("kinds") = std::vector<std::uint32_t>(),
             py::keep_alive<1, 2>(), py::keep_alive<1, 4>())
        .def(
            "next",
            [](crash::Walk& walk, std::uint64_t limit) -> std::optional<crash::State> {
                crash::State state;
                return walk.next(state, limit) ? std::optional(std::move(state)) : std::nullopt;
            },
            py::arg("limit"), Release())
        .def_property_readonly("looked_at", &crash::Walk::looked_at)
        .def_property_readonly("repeated", &crash::Walk::repeated)
        .def_property_readonly("passed_over", &crash::Walk::passed_over)
        .def_property_readonly("at_end", &crash::Walk::at_end);
}

}  // namespace sampleblk::bindings
