// SPDX-License-Identifier: MIT
// The kernel's own description of its types (Documentation/bpf/btf.rst): /sys/kernel/btf/vmlinux, and one file a module
// that goes on where the kernel's ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sampleblk::inspect {

enum class BtfKind : std::uint8_t {
    none,  // id 0, void
    integer,
    pointer,
    array,
    structure,
    union_,
    enumeration,
    forward,
    type_definition,
    volatile_,
    constant,
    restrict_,
    function,
    function_prototype,
    variable,
    data_section,
    floating,
    declaration_tag,
    type_tag,
    enumeration64,
};

struct BtfMember {
    std::string_view name;  // empty: anonymous
    std::uint32_t type = 0;
    std::uint32_t bit_offset = 0;
    std::uint32_t bit_field_size = 0;  // 0: no bit field
    std::int64_t value = 0;            // of an enumerator
};

struct BtfType {
    std::uint32_t id = 0;
    BtfKind kind = BtfKind::none;
    std::string_view name;
    std::uint32_t size = 0;          // bytes, of what has a size
    std::uint32_t type = 0;          // what is pointed to, qualified, returned, an array's element
    std::uint32_t count = 0;         // an array's elements
    std::uint32_t encoding = 0;      // of an integer: 1 signed, 2 character, 4 boolean
    bool flag = false;               // of an enumeration: signed; of a forward declaration: a union
    std::vector<BtfMember> members;  // members, enumerators or parameters
};

class Btf {
  public:
    // `bytes` are kept. A module's file goes on where `base` ends. Throws FormatError.
    Btf(std::vector<std::byte> bytes, std::string source, std::shared_ptr<const Btf> base = {});

    // One more than the largest id.
    [[nodiscard]] std::uint32_t end() const noexcept { return first_ + static_cast<std::uint32_t>(offsets_.size()); }
    // Throws FormatError for an id that there is not, or one whose parts lie outside the file.
    [[nodiscard]] BtfType type(std::uint32_t id) const;
    // Types of that name and kind, of this file and then of its base.
    [[nodiscard]] std::vector<std::uint32_t> find(std::string_view name, BtfKind kind) const;
    // The enumerations that have a constant of that name, of this file and then of its base.
    [[nodiscard]] std::vector<std::uint32_t> enumerations_of(std::string_view constant) const;
    [[nodiscard]] const std::string& source() const noexcept { return source_; }

  private:
    [[nodiscard]] std::string_view text(std::uint32_t offset) const;
    [[nodiscard]] std::uint32_t number(std::size_t offset) const;

    std::vector<std::byte> bytes_;
    std::string source_;
    std::shared_ptr<const Btf> base_;
    std::span<const std::byte> types_;
    std::span<const std::byte> strings_;
    std::uint32_t first_ = 1;             // the id of offsets_[0]
    std::uint32_t first_string_ = 0;      // the offset of strings_[0]
    std::vector<std::uint32_t> offsets_;  // of each type in types_
    bool tells_signs_ = false;            // of enumerations; else all are signed, as before Linux 6.0
    std::unordered_map<std::string_view, std::vector<std::uint32_t>> by_name_;
    std::unordered_map<std::string_view, std::vector<std::uint32_t>> by_constant_;
};

}  // namespace sampleblk::inspect
