// SPDX-License-Identifier: MIT
#include "symbols/unwind_rules.hpp"

#include <dwarf.h>

#include <cstring>
#include <utility>

namespace sampleblk::profile {

std::optional<std::uint64_t> UnwindRegisters::get(std::size_t number) const noexcept {
    if (number >= kUnwindRegisters || (known >> number & 1U) == 0) {
        return std::nullopt;
    }
    return values.at(number);
}

void UnwindRegisters::set(std::size_t number, std::uint64_t value) noexcept {
    if (number < kUnwindRegisters) {
        values.at(number) = value;
        known |= 1U << number;
    }
}

std::optional<std::uint64_t> StackMemory::read(std::uint64_t address, std::size_t size) const noexcept {
    const std::uint64_t at = address - start;
    if (address < start || size == 0 || size > sizeof(std::uint64_t) || at > bytes.size() || bytes.size() - at < size) {
        return std::nullopt;
    }
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, size);
    return value;
}

namespace {

using Stack = std::vector<std::uint64_t>;

std::int64_t as_signed(std::uint64_t value) noexcept {
    return static_cast<std::int64_t>(value);
}

// Those that make one value of the two on top; nullopt for any other code and where there is no answer.
std::optional<std::uint64_t> binary(std::uint8_t code, std::uint64_t left, std::uint64_t right) noexcept {
    constexpr std::uint64_t bits = 64;
    switch (code) {
        case DW_OP_and:
            return left & right;
        case DW_OP_or:
            return left | right;
        case DW_OP_xor:
            return left ^ right;
        case DW_OP_plus:
            return left + right;
        case DW_OP_minus:
            return left - right;
        case DW_OP_mul:
            return left * right;
        case DW_OP_div:
            // The one quotient that does not fit is a trap on this machine.
            if (right == 0 || (as_signed(right) == -1 && left == std::uint64_t{1} << 63U)) {
                return std::nullopt;
            }
            return static_cast<std::uint64_t>(as_signed(left) / as_signed(right));
        case DW_OP_mod:
            return right == 0 ? std::nullopt : std::optional(left % right);
        case DW_OP_shl:
            return right >= bits ? 0 : left << right;
        case DW_OP_shr:
            return right >= bits ? 0 : left >> right;
        case DW_OP_shra:
            return static_cast<std::uint64_t>(as_signed(left) >> (right >= bits ? bits - 1 : right));
        case DW_OP_eq:
            return left == right ? 1 : 0;
        case DW_OP_ne:
            return left != right ? 1 : 0;
        case DW_OP_lt:
            return as_signed(left) < as_signed(right) ? 1 : 0;
        case DW_OP_le:
            return as_signed(left) <= as_signed(right) ? 1 : 0;
        case DW_OP_gt:
            return as_signed(left) > as_signed(right) ? 1 : 0;
        case DW_OP_ge:
            return as_signed(left) >= as_signed(right) ? 1 : 0;
        default:
            return std::nullopt;
    }
}

bool is_binary(std::uint8_t code) noexcept {
    switch (code) {
        case DW_OP_and:
        case DW_OP_or:
        case DW_OP_xor:
        case DW_OP_plus:
        case DW_OP_minus:
        case DW_OP_mul:
        case DW_OP_div:
        case DW_OP_mod:
        case DW_OP_shl:
        case DW_OP_shr:
        case DW_OP_shra:
            return true;
        default:
            return code >= DW_OP_eq && code <= DW_OP_ne;
    }
}

// Those that push one value: a constant, a register, the frame's address.
bool pushes(std::uint8_t code) noexcept {
    switch (code) {
        case DW_OP_const1u:
        case DW_OP_const1s:
        case DW_OP_const2u:
        case DW_OP_const2s:
        case DW_OP_const4u:
        case DW_OP_const4s:
        case DW_OP_const8u:
        case DW_OP_const8s:
        case DW_OP_constu:
        case DW_OP_consts:
        case DW_OP_bregx:
        case DW_OP_call_frame_cfa:
            return true;
        default:
            return (code >= DW_OP_lit0 && code <= DW_OP_lit31) || (code >= DW_OP_breg0 && code <= DW_OP_breg31);
    }
}

std::optional<std::uint64_t> pushed(const UnwindOperation& operation, const UnwindRegisters& registers,
                                    std::optional<std::uint64_t> cfa) noexcept {
    const std::uint8_t code = operation.code;
    if (code >= DW_OP_lit0 && code <= DW_OP_lit31) {
        return code - DW_OP_lit0;
    }
    if (code == DW_OP_call_frame_cfa) {
        return cfa;
    }
    if (code == DW_OP_bregx || (code >= DW_OP_breg0 && code <= DW_OP_breg31)) {
        const bool numbered = code == DW_OP_bregx;
        const auto base = registers.get(numbered ? operation.first : std::uint64_t{code} - DW_OP_breg0);
        return base ? std::optional(*base + (numbered ? operation.second : operation.first)) : std::nullopt;
    }
    return operation.first;
}

// Those that change what is on the stack; false for what is unknown or has too little there.
bool shuffle(const UnwindOperation& operation, Stack& stack, const StackMemory& memory) {
    const auto at_least = [&stack](std::size_t count) { return stack.size() >= count; };
    switch (operation.code) {
        case DW_OP_nop:
        case DW_OP_stack_value:
            return true;
        case DW_OP_dup:
        case DW_OP_over:
        case DW_OP_pick: {
            const std::uint64_t depth = operation.code == DW_OP_dup    ? 0
                                        : operation.code == DW_OP_over ? 1
                                                                       : operation.first;
            if (depth >= stack.size()) {
                return false;
            }
            stack.push_back(stack[stack.size() - 1 - depth]);
            return true;
        }
        case DW_OP_drop:
            if (!at_least(1)) {
                return false;
            }
            stack.pop_back();
            return true;
        case DW_OP_swap:
            if (!at_least(2)) {
                return false;
            }
            std::swap(stack[stack.size() - 1], stack[stack.size() - 2]);
            return true;
        case DW_OP_rot:
            if (!at_least(3)) {
                return false;
            }
            std::swap(stack[stack.size() - 1], stack[stack.size() - 2]);
            std::swap(stack[stack.size() - 2], stack[stack.size() - 3]);
            return true;
        case DW_OP_deref:
        case DW_OP_deref_size: {
            const auto value = at_least(1)
                                   ? memory.read(stack.back(), operation.code == DW_OP_deref ? 8 : operation.first)
                                   : std::nullopt;
            if (value) {
                stack.back() = *value;
            }
            return value.has_value();
        }
        case DW_OP_abs:
        case DW_OP_neg:
        case DW_OP_not:
        case DW_OP_plus_uconst: {
            if (!at_least(1)) {
                return false;
            }
            std::uint64_t& top = stack.back();
            if (operation.code == DW_OP_plus_uconst) {
                top += operation.first;
            } else if (operation.code == DW_OP_not) {
                top = ~top;
            } else if (operation.code == DW_OP_neg || as_signed(top) < 0) {
                top = 0 - top;
            }
            return true;
        }
        default:
            return false;  // DW_OP_bra and what has no place in call frames
    }
}

}  // namespace

std::optional<std::uint64_t> evaluate(std::span<const UnwindOperation> operations, const UnwindRegisters& registers,
                                      const StackMemory& stack, std::optional<std::uint64_t> cfa) {
    constexpr std::size_t deepest = 64;
    Stack values;
    for (const UnwindOperation& operation : operations) {
        if (pushes(operation.code)) {
            const auto value = pushed(operation, registers, cfa);
            if (!value) {
                return std::nullopt;
            }
            values.push_back(*value);
        } else if (is_binary(operation.code)) {
            if (values.size() < 2) {
                return std::nullopt;
            }
            const auto value = binary(operation.code, values[values.size() - 2], values.back());
            if (!value) {
                return std::nullopt;
            }
            values.pop_back();
            values.back() = *value;
        } else if (!shuffle(operation, values, stack)) {
            return std::nullopt;
        }
        if (values.size() > deepest) {
            return std::nullopt;
        }
    }
    return values.empty() ? std::nullopt : std::optional(values.back());
}

UnwindStep UnwindRow::step(UnwindRegisters& registers, const StackMemory& stack) const {
    std::optional<std::uint64_t> cfa;
    if (cfa_register >= 0) {
        const auto base = registers.get(static_cast<std::size_t>(cfa_register));
        cfa = base ? std::optional(*base + static_cast<std::uint64_t>(std::int64_t{cfa_offset})) : std::nullopt;
    } else if (static_cast<std::size_t>(cfa_offset) < expressions.size()) {
        cfa = evaluate(expressions[static_cast<std::size_t>(cfa_offset)], registers, stack, std::nullopt);
    }
    if (!cfa) {
        return UnwindStep::lost;
    }
    bool outermost = false;
    UnwindRegisters caller = registers;
    caller.known &= ~(1U << kReturnAddress);
    caller.set(kStackPointer, *cfa);
    for (const UnwindRule& rule : rules) {
        std::optional<std::uint64_t> value;
        const auto offset = static_cast<std::uint64_t>(std::int64_t{rule.offset});
        switch (rule.how) {
            case UnwindHow::at_cfa:
                value = stack.read(*cfa + offset);
                break;
            case UnwindHow::plus_cfa:
                value = *cfa + offset;
                break;
            case UnwindHow::in_register:
                value = registers.get(static_cast<std::size_t>(rule.offset));
                break;
            case UnwindHow::at_expression:
            case UnwindHow::expression:
                if (offset < expressions.size()) {
                    value = evaluate(expressions[offset], registers, stack, cfa);
                }
                if (value && rule.how == UnwindHow::at_expression) {
                    value = stack.read(*value);
                }
                break;
            case UnwindHow::undefined:
                outermost = outermost || rule.target == kReturnAddress;
                break;
        }
        caller.known &= ~(1U << rule.target % 32U);
        if (value) {
            caller.set(rule.target, *value);
        }
    }
    const auto address = caller.get(kReturnAddress);
    if (outermost || (address && *address == 0)) {
        return UnwindStep::outermost;
    }
    if (!address) {
        return UnwindStep::lost;
    }
    registers = caller;
    return UnwindStep::caller;
}

UnwindStep step_by_frame_pointer(UnwindRegisters& registers, const StackMemory& stack) noexcept {
    const auto frame = registers.get(kFramePointer);
    const auto pointer = registers.get(kStackPointer);
    if (!frame || !pointer || *frame < *pointer) {
        return UnwindStep::lost;
    }
    const auto before = stack.read(*frame);
    const auto address = stack.read(*frame + 8);
    if (!before || !address || *address == 0) {
        return UnwindStep::lost;
    }
    registers.set(kFramePointer, *before);
    registers.set(kStackPointer, *frame + 16);
    registers.set(kReturnAddress, *address);
    return UnwindStep::caller;
}

}  // namespace sampleblk::profile
