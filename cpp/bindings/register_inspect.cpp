// SPDX-License-Identifier: MIT
// The kernel's types.
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bindings.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/inspect/btf.hpp"
#include "sampleblk/inspect/kernel_names.hpp"

namespace sampleblk::bindings {

namespace {

using inspect::Btf;
using inspect::BtfKind;
using inspect::BtfType;

py::dict type_dict(const BtfType& type) {
    py::dict out;
    out["kind"] = static_cast<int>(type.kind);
    out["name"] = type.name;
    out["size"] = type.size;
    out["type"] = type.type;
    out["count"] = type.count;
    out["encoding"] = type.encoding;
    out["flag"] = type.flag;
    // Half of the unsigned ones are negative as signed.
    const bool is_unsigned = type.kind == BtfKind::enumeration64 && !type.flag;
    py::list members;
    for (const auto& member : type.members) {
        members.append(
            py::make_tuple(member.name, member.type, member.bit_offset, member.bit_field_size,
                           is_unsigned ? py::int_(static_cast<std::uint64_t>(member.value)) : py::int_(member.value)));
    }
    out["members"] = std::move(members);
    return out;
}

py::tuple name_tuple(const inspect::KernelName& name) {
    return py::make_tuple(name.name, name.address, name.size, name.module, name.global);
}

}  // namespace

void register_inspect(py::module_& module) {
    py::class_<Btf, std::shared_ptr<Btf>>(module, "Btf")
        .def(py::init([](const std::string& path, const std::shared_ptr<Btf>& base) {
                 const py::gil_scoped_release release;
                 const std::string text = read_file(path);
                 const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
                 return std::make_shared<Btf>(std::vector<std::byte>(bytes, bytes + text.size()), path, base);
             }),
             py::arg("path"), py::arg("base") = std::shared_ptr<Btf>{})
        .def("__len__", &Btf::end)
        .def_property_readonly("source", &Btf::source)
        .def(
            "enumerations_of",
            [](const Btf& self, const std::string& constant) { return self.enumerations_of(constant); },
            py::arg("constant"))
        .def(
            "type", [](const Btf& self, std::uint32_t id) { return type_dict(self.type(id)); }, py::arg("id"))
        .def(
            "find",
            [](const Btf& self, const std::string& name, int kind) {
                return self.find(name, static_cast<BtfKind>(kind));
            },
            py::arg("name"), py::arg("kind"));

    py::class_<inspect::KernelNames>(module, "KernelNames")
        .def(py::init([](const std::string& path) {
                 const py::gil_scoped_release release;
                 return std::make_unique<inspect::KernelNames>(read_file(path));
             }),
             py::arg("path") = "/proc/kallsyms")
        .def("__len__", &inspect::KernelNames::size)
        .def(
            "at",
            [](const inspect::KernelNames& self, std::uint64_t address) -> py::object {
                const auto found = self.find(address);
                return found ? py::object(name_tuple(*found)) : py::object(py::none());
            },
            py::arg("address"))
        .def(
            "named",
            [](const inspect::KernelNames& self, const std::string& name) {
                py::list out;
                for (const auto& found : self.find(name)) {
                    out.append(name_tuple(found));
                }
                return out;
            },
            py::arg("name"));
}

}  // namespace sampleblk::bindings
