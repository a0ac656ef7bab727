// SPDX-License-Identifier: MIT
#include "symbols/unwinder.hpp"

#include <dwarf.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <limits>
#include <optional>

#include "sampleblk/linux_headers.hpp"
#include "symbols/dwarf_file.hpp"

namespace sampleblk::profile {

namespace {

constexpr std::size_t kDeepest = 1024;
constexpr unsigned kOffsetBits = 44;

#if defined(__x86_64__)
// DWARF's register number -> perf's.
constexpr std::array<unsigned, kUnwindRegisters> kPerfRegister = {
    PERF_REG_X86_AX,  PERF_REG_X86_DX,  PERF_REG_X86_CX,  PERF_REG_X86_BX,  PERF_REG_X86_SI,  PERF_REG_X86_DI,
    PERF_REG_X86_BP,  PERF_REG_X86_SP,  PERF_REG_X86_R8,  PERF_REG_X86_R9,  PERF_REG_X86_R10, PERF_REG_X86_R11,
    PERF_REG_X86_R12, PERF_REG_X86_R13, PERF_REG_X86_R14, PERF_REG_X86_R15, PERF_REG_X86_IP};
#else
constexpr std::array<unsigned, kUnwindRegisters> kPerfRegister{};
#endif

UnwindRegisters registers_of(std::span<const std::byte> stored, std::uint64_t mask) {
    UnwindRegisters out;
    for (std::size_t number = 0; number < kUnwindRegisters; ++number) {
        const std::uint64_t bit = std::uint64_t{1} << kPerfRegister.at(number);
        // They lie in the order of their bits.
        const std::size_t at = 8U * static_cast<std::size_t>(std::popcount(mask & (bit - 1)));
        if ((mask & bit) != 0 && at + 8 <= stored.size()) {
            out.set(number, load<std::uint64_t>(stored.data() + at));
        }
    }
    return out;
}

std::vector<UnwindOperation> operations_of(const Dwarf_Op* operations, std::size_t count) {
    std::vector<UnwindOperation> out;
    out.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        out.push_back({operations[i].atom, operations[i].number, operations[i].number2});
    }
    return out;
}

struct FreeFrame {
    void operator()(Dwarf_Frame* frame) const noexcept { std::free(frame); }  // NOLINT(cppcoreguidelines-no-malloc)
};

bool fits(std::uint64_t offset) noexcept {
    const auto value = static_cast<std::int64_t>(offset);
    return value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max();
}

// The rule of one register, or none where it keeps its value.
std::optional<UnwindRule> rule_of(Dwarf_Frame* frame, std::size_t number, UnwindRow& row) {
    std::array<Dwarf_Op, 3> memory{};
    Dwarf_Op* operations = nullptr;
    std::size_t count = 0;
    UnwindRule rule;
    rule.target = static_cast<std::uint8_t>(number);
    if (dwarf_frame_register(frame, static_cast<int>(number), memory.data(), &operations, &count) != 0) {
        return rule;
    }
    if (count == 0) {
        return operations == nullptr ? std::nullopt : std::optional(rule);
    }
    const bool value = operations[count - 1].atom == DW_OP_stack_value;
    const std::size_t length = count - (value ? 1 : 0);
    if (count == 1 &&
        (operations[0].atom == DW_OP_regx || (operations[0].atom >= DW_OP_reg0 && operations[0].atom <= DW_OP_reg31))) {
        rule.how = UnwindHow::in_register;
        rule.offset = static_cast<std::int32_t>(
            operations[0].atom == DW_OP_regx ? operations[0].number : operations[0].atom - std::uint64_t{DW_OP_reg0});
        return rule;
    }
    const bool by_cfa = operations[0].atom == DW_OP_call_frame_cfa &&
                        (length == 1 || (length == 2 && operations[1].atom == DW_OP_plus_uconst));
    const std::uint64_t offset = length == 2 ? operations[1].number : 0;
    if (by_cfa && fits(offset)) {
        rule.how = value ? UnwindHow::plus_cfa : UnwindHow::at_cfa;
        rule.offset = static_cast<std::int32_t>(offset);
        return rule;
    }
    rule.how = value ? UnwindHow::expression : UnwindHow::at_expression;
    rule.offset = static_cast<std::int32_t>(row.expressions.size());
    row.expressions.push_back(operations_of(operations, count));
    return rule;
}

UnwindRow row_of(Dwarf_Frame* frame) {
    UnwindRow row;
    Dwarf_Op* operations = nullptr;
    std::size_t count = 0;
    bool signal = false;
    (void)dwarf_frame_info(frame, nullptr, nullptr, &signal);
    if (dwarf_frame_cfa(frame, &operations, &count) != 0 || count == 0) {
        return row;
    }
    row.found = true;
    row.signal = signal;
    const bool numbered = operations[0].atom == DW_OP_bregx;
    const bool named = operations[0].atom >= DW_OP_breg0 && operations[0].atom <= DW_OP_breg31;
    const std::uint64_t offset = numbered ? operations[0].number2 : operations[0].number;
    if (count == 1 && (numbered || named) && fits(offset)) {
        row.cfa_register = static_cast<std::int32_t>(numbered ? operations[0].number
                                                              : operations[0].atom - std::uint64_t{DW_OP_breg0});
        row.cfa_offset = static_cast<std::int32_t>(offset);
    } else {
        row.cfa_offset = static_cast<std::int32_t>(row.expressions.size());
        row.expressions.push_back(operations_of(operations, count));
    }
    for (std::size_t number = 0; number < kUnwindRegisters; ++number) {
        if (const auto rule = rule_of(frame, number, row)) {
            const bool usual = number == kStackPointer && rule->how == UnwindHow::plus_cfa && rule->offset == 0;
            if (!usual) {
                row.rules.push_back(*rule);
            }
        }
    }
    return row;
}

}  // namespace

// One file's call frame information: its .eh_frame, else .debug_frame of it or of its separate debugging information.
struct UserUnwinder::Frames {
    explicit Frames(const ObjectFile& object) : file(object) {
        if (file.info) {
            elf = ElfFile::of(file);
            eh_frame.reset(elf.get() != nullptr ? dwarf_getcfi_elf(elf.get()) : nullptr);
        }
    }

    Dwarf_CFI* debug_frame() {
        if (!dwarf) {
            dwarf.emplace(file);
        }
        return dwarf->get() != nullptr ? dwarf_getcfi(dwarf->get()) : nullptr;
    }

    UnwindRow find(std::uint64_t offset) {
        const auto address = file.address_of(offset);
        if (!address) {
            return {};
        }
        for (const bool debug : {false, true}) {
            Dwarf_CFI* cfi = debug ? debug_frame() : eh_frame.get();
            Dwarf_Frame* found = nullptr;
            if (cfi != nullptr && dwarf_cfi_addrframe(cfi, *address, &found) == 0) {
                const std::unique_ptr<Dwarf_Frame, FreeFrame> frame(found);
                UnwindRow row = row_of(frame.get());
                if (row.found) {
                    return row;
                }
            }
        }
        return {};
    }

    const ObjectFile& file;
    ElfFile elf;
    CfiHandle eh_frame;
    std::optional<DwarfFile> dwarf;
};

UserUnwinder::UserUnwinder(ObjectFiles& objects, bool here) : objects_(objects), here_(here) {
    for (const char* name : {"unwound", "not_unwound", "unwound_to_the_end_of_the_copy", "unwound_to_unknown_code"}) {
        counts_[name] = 0;
    }
}

UserUnwinder::~UserUnwinder() = default;

// nullptr: no file is known there.
const UnwindRow* UserUnwinder::row(const AddressSpace& space, std::uint64_t address) {
    const Mapping* mapping = space.find(address);
    if (mapping == nullptr) {
        return nullptr;
    }
    const std::uint64_t offset = address - mapping->start + mapping->offset;
    if (offset >> kOffsetBits != 0) {
        return nullptr;
    }
    std::uint32_t& number = row_numbers_.at(std::uint64_t{mapping->file} << kOffsetBits | offset);
    if (number == FlatMap::kNone) {
        if (mapping->file >= frames_.size()) {
            frames_.resize(mapping->file + std::size_t{1});
        }
        auto& frames = frames_[mapping->file];
        if (!frames) {
            frames = std::make_unique<Frames>(objects_.file(mapping->file));
        }
        number = static_cast<std::uint32_t>(rows_.size());
        rows_.push_back(frames->find(offset));
    }
    return &rows_[number];
}

void UserUnwinder::unwind(const AddressSpace& space, const Sample& sample, std::uint64_t register_mask,
                          std::vector<std::uint64_t>& out) {
    if (!here_ || sample.user_abi != PERF_SAMPLE_REGS_ABI_64 || kPerfRegister[kReturnAddress] == 0) {
        ++counts_["not_unwound"];
        return;
    }
    UnwindRegisters registers = registers_of(sample.user_registers, register_mask);
    const auto pc = registers.get(kReturnAddress);
    const auto stack_pointer = registers.get(kStackPointer);
    if (!pc || !stack_pointer) {
        return;
    }
    ++counts_["unwound"];
    const StackMemory stack{*stack_pointer, sample.user_stack};
    std::uint64_t address = *pc;
    out.push_back(address);
    for (std::size_t depth = 1; depth < kDeepest; ++depth) {
        const std::uint64_t before = registers.get(kStackPointer).value_or(0);
        const UnwindRow* rules = row(space, address);
        const bool known = rules != nullptr && rules->found;
        const auto step = known ? rules->step(registers, stack) : step_by_frame_pointer(registers, stack);
        if (step != UnwindStep::caller) {
            if (step == UnwindStep::lost) {
                ++counts_[known ? "unwound_to_the_end_of_the_copy" : "unwound_to_unknown_code"];
            }
            return;
        }
        const bool interrupted = known && rules->signal;
        // A caller's frame lies above; what does not would go round for ever.
        if (registers.get(kStackPointer).value_or(0) <= before && !interrupted) {
            return;
        }
        // A call's return address may be the next function's: look at the call itself, unless it was interrupted.
        address = registers.get(kReturnAddress).value_or(1) - (interrupted ? 0 : 1);
        if (!known && space.find(address) == nullptr) {
            ++counts_["unwound_to_unknown_code"];
            return;
        }
        out.push_back(address);
    }
}

}  // namespace sampleblk::profile
