// SPDX-License-Identifier: MIT
#include "fuzz_inspect.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sampleblk/error.hpp"
#include "sampleblk/inspect/btf.hpp"
#include "sampleblk/inspect/kernel_names.hpp"

namespace sampleblk::fuzz {

namespace {

void visit(const inspect::Btf& file) {
    for (std::uint32_t id = 0; id < file.end(); ++id) {
        try {
            const inspect::BtfType type = file.type(id);
            if (!type.name.empty()) {
                const auto found = file.find(type.name, type.kind);
                if (std::ranges::find(found, id) == found.end()) {
                    std::abort();
                }
            }
            const bool constants =
                type.kind == inspect::BtfKind::enumeration || type.kind == inspect::BtfKind::enumeration64;
            for (const auto& member : type.members) {
                if (constants) {
                    const auto found = file.enumerations_of(member.name);
                    if (std::ranges::find(found, id) == found.end()) {
                        std::abort();
                    }
                }
            }
        } catch (const FormatError&) {  // a name outside of the file
        }
    }
    try {
        (void)file.type(file.end());
        std::abort();
    } catch (const FormatError&) {
    }
}

}  // namespace

int btf(const std::uint8_t* data, std::size_t size) {
    const auto* begin = reinterpret_cast<const std::byte*>(data);
    const std::vector<std::byte> bytes(begin, begin + size);
    try {
        const auto base = std::make_shared<const inspect::Btf>(bytes, "fuzz");
        visit(*base);
        visit(inspect::Btf(bytes, "fuzz", base));
    } catch (const FormatError&) {
    }
    return 0;
}

int kernel_names(const std::uint8_t* data, std::size_t size) {
    const inspect::KernelNames names(std::string(reinterpret_cast<const char*>(data), size));
    std::size_t at = 0;
    for (std::size_t i = 0; i < size; ++i) {
        if (i + 1 < size && data[i] != '\n') {
            continue;
        }
        const std::string line(reinterpret_cast<const char*>(data) + at, i - at);
        at = i + 1;
        std::uint64_t address = 0;
        for (const char c : line.substr(0, 16)) {
            address = address << 4U | (static_cast<unsigned char>(c) & 0xfU);
        }
        const auto found = names.find(address);
        if (found && (address < found->address || address - found->address >= found->size)) {
            std::abort();
        }
        if (found && names.find(found->name).empty()) {
            std::abort();
        }
    }
    return 0;
}

}  // namespace sampleblk::fuzz
