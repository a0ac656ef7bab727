// SPDX-License-Identifier: MIT
#include "sampleblk/inspect/btf.hpp"

#include <cstring>
#include <utility>

#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"

namespace sampleblk::inspect {

namespace {

constexpr std::uint16_t kMagic = 0xeb9f;
constexpr std::size_t kHeader = 24;
constexpr std::size_t kHead = 12;

// Seven bits and 24 since 7.1; the bits that five and 16 left between them were zero.
BtfKind kind_of(std::uint32_t info) {
    return static_cast<BtfKind>(info >> 24U & 0x7fU);
}

std::uint32_t length_of(std::uint32_t info) {
    return info & 0xffffffU;
}

// Bytes after a type's head; SIZE_MAX for a kind that we do not know.
std::size_t tail_bytes(std::uint32_t info) {
    const std::size_t length = length_of(info);
    switch (kind_of(info)) {
        case BtfKind::integer:
        case BtfKind::variable:
        case BtfKind::declaration_tag:
            return 4;
        case BtfKind::array:
            return 12;
        case BtfKind::structure:
        case BtfKind::union_:
        case BtfKind::data_section:
        case BtfKind::enumeration64:
            return length * 12;
        case BtfKind::enumeration:
        case BtfKind::function_prototype:
            return length * 8;
        case BtfKind::pointer:
        case BtfKind::forward:
        case BtfKind::type_definition:
        case BtfKind::volatile_:
        case BtfKind::constant:
        case BtfKind::restrict_:
        case BtfKind::function:
        case BtfKind::floating:
        case BtfKind::type_tag:
            return 0;
        case BtfKind::none:
            break;
    }
    return SIZE_MAX;
}

}  // namespace

Btf::Btf(std::vector<std::byte> bytes, std::string source, std::shared_ptr<const Btf> base)
    : bytes_(std::move(bytes)), source_(std::move(source)), base_(std::move(base)) {
    const std::span<const std::byte> all = bytes_;
    std::uint16_t magic = 0;
    if (all.size() < kHeader) {
        throw FormatError(source_, 0, "a BTF header of 24 bytes");
    }
    std::memcpy(&magic, all.data(), sizeof(magic));
    if (magic != kMagic) {
        throw FormatError(source_, 0, "the magic 0xeb9f of BTF in this machine's byte order");
    }
    if (all[2] != std::byte{1}) {
        throw FormatError(source_, 2, "version 1 of BTF");
    }
    std::uint32_t header[5];  // header length, offset and length of types, of strings
    std::memcpy(header, all.data() + 4, sizeof(header));
    const auto part = [&](std::uint64_t offset, std::uint64_t length) {
        const std::uint64_t from = header[0] + offset;
        if (header[0] < kHeader || from > all.size() || length > all.size() - from) {
            throw FormatError(source_, 4, "sections of types and strings inside the file");
        }
        return all.subspan(from, length);
    };
    types_ = part(header[1], header[2]);
    strings_ = part(header[3], header[4]);
    if (strings_.empty() || strings_.back() != std::byte{0}) {
        throw FormatError(source_, 20, "a string section that ends in a NUL");
    }
    if (!base_ && strings_.front() != std::byte{0}) {
        throw FormatError(source_, header[0] + header[3], "an empty first string, the name of what has none");
    }
    if (base_) {
        first_ = base_->end();
        first_string_ = base_->first_string_ + static_cast<std::uint32_t>(base_->strings_.size());
        tells_signs_ = base_->tells_signs_;
    }
    std::size_t at = 0;
    while (at < types_.size()) {
        if (offsets_.size() % 65536 == 0) {
            check_interrupt();
        }
        if (types_.size() - at < kHead) {
            throw FormatError(source_, header[0] + header[1] + at, "a whole type");
        }
        const std::uint32_t info = number(at + 4);
        const std::size_t tail = tail_bytes(info);
        if (tail == SIZE_MAX || tail > types_.size() - at - kHead) {
            throw FormatError(source_, header[0] + header[1] + at, "a type of a known kind, with all its parts");
        }
        const auto id = first_ + static_cast<std::uint32_t>(offsets_.size());
        offsets_.push_back(static_cast<std::uint32_t>(at));
        if (const auto name = text(number(at)); !name.empty()) {
            by_name_[name].push_back(id);
        }
        if (const BtfKind kind = kind_of(info); kind == BtfKind::enumeration || kind == BtfKind::enumeration64) {
            const std::size_t each = kind == BtfKind::enumeration ? 8 : 12;
            tells_signs_ = tells_signs_ || kind == BtfKind::enumeration64 || info >> 31U != 0;
            for (std::size_t i = 0; i < length_of(info); ++i) {
                by_constant_[text(number(at + kHead + each * i))].push_back(id);
            }
        }
        at += kHead + tail;
    }
}

std::uint32_t Btf::number(std::size_t offset) const {
    std::uint32_t value = 0;
    std::memcpy(&value, types_.data() + offset, sizeof(value));
    return value;
}

std::string_view Btf::text(std::uint32_t offset) const {
    if (offset < first_string_) {
        return base_->text(offset);
    }
    offset -= first_string_;
    if (offset >= strings_.size()) {
        throw FormatError(source_, 0, "a name inside the string section");
    }
    // The section ends in a NUL.
    return reinterpret_cast<const char*>(strings_.data()) + offset;
}

BtfType Btf::type(std::uint32_t id) const {
    if (id == 0) {
        return {};
    }
    if (id < first_ && base_) {
        return base_->type(id);
    }
    if (id < first_ || id >= end()) {
        throw FormatError(source_, 0, "a type id below " + std::to_string(end()) + ", not " + std::to_string(id));
    }
    const std::size_t at = offsets_[id - first_];
    const std::uint32_t info = number(at + 4);
    const std::uint32_t last = number(at + 8);
    const bool flag = info >> 31U != 0;
    BtfType out;
    out.id = id;
    out.kind = kind_of(info);
    out.name = text(number(at));
    out.flag = flag;
    const std::size_t parts = at + kHead;
    const std::uint32_t length = length_of(info);
    switch (out.kind) {
        case BtfKind::integer: {
            out.size = last;
            out.encoding = number(parts) >> 24U & 0xfU;
            // An older pahole(1) does not say so, such as that which Linux 5.10 was built with.
            out.encoding |= out.name == "signed char" ? 1U : 0U;
            break;
        }
        case BtfKind::array:
            out.type = number(parts);
            out.count = number(parts + 8);
            break;
        case BtfKind::structure:
        case BtfKind::union_:
            out.size = last;
            for (std::uint32_t i = 0; i < length; ++i) {
                const std::size_t one = parts + std::size_t{12} * i;
                const std::uint32_t place = number(one + 8);
                BtfMember member;
                member.name = text(number(one));
                member.type = number(one + 4);
                member.bit_offset = flag ? place & 0xffffffU : place;
                member.bit_field_size = flag ? place >> 24U : 0;
                out.members.push_back(member);
            }
            break;
        case BtfKind::enumeration:
            out.size = last;
            out.flag = flag || !tells_signs_;
            for (std::uint32_t i = 0; i < length; ++i) {
                const std::size_t one = parts + std::size_t{8} * i;
                BtfMember member;
                member.name = text(number(one));
                const std::uint32_t value = number(one + 4);
                member.value = out.flag ? static_cast<std::int32_t>(value) : static_cast<std::int64_t>(value);
                out.members.push_back(member);
            }
            break;
        case BtfKind::enumeration64:
            out.size = last;
            for (std::uint32_t i = 0; i < length; ++i) {
                const std::size_t one = parts + std::size_t{12} * i;
                BtfMember member;
                member.name = text(number(one));
                member.value = static_cast<std::int64_t>(std::uint64_t{number(one + 8)} << 32U | number(one + 4));
                out.members.push_back(member);
            }
            break;
        case BtfKind::function_prototype:
            out.type = last;
            for (std::uint32_t i = 0; i < length; ++i) {
                const std::size_t one = parts + std::size_t{8} * i;
                BtfMember member;
                member.name = text(number(one));
                member.type = number(one + 4);
                out.members.push_back(member);
            }
            break;
        case BtfKind::floating:
        case BtfKind::data_section:
            out.size = last;
            break;
        case BtfKind::forward:
            break;
        default:
            out.type = last;
            break;
    }
    return out;
}

std::vector<std::uint32_t> Btf::enumerations_of(std::string_view constant) const {
    std::vector<std::uint32_t> out;
    if (const auto found = by_constant_.find(constant); found != by_constant_.end()) {
        out = found->second;
    }
    if (base_) {
        const auto below = base_->enumerations_of(constant);
        out.insert(out.end(), below.begin(), below.end());
    }
    return out;
}

std::vector<std::uint32_t> Btf::find(std::string_view name, BtfKind kind) const {
    std::vector<std::uint32_t> out;
    if (const auto found = by_name_.find(name); found != by_name_.end()) {
        for (const std::uint32_t id : found->second) {
            if (kind_of(number(offsets_[id - first_] + 4)) == kind) {
                out.push_back(id);
            }
        }
    }
    if (base_) {
        const auto below = base_->find(name, kind);
        out.insert(out.end(), below.begin(), below.end());
    }
    return out;
}

}  // namespace sampleblk::inspect
