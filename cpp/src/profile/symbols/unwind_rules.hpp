// SPDX-License-Identifier: MIT
// How to get from one frame to its caller's, of x86-64: rules as DWARF's call frame information gives them, and the
// little machine for those that are expressions. Everything that a rule reads may be nonsense: a step then fails.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sampleblk::profile {

// DWARF's numbers: rax rdx rcx rbx rsi rdi rbp rsp r8…r15, and the return address.
constexpr std::size_t kUnwindRegisters = 17;
constexpr std::size_t kFramePointer = 6;
constexpr std::size_t kStackPointer = 7;
constexpr std::size_t kReturnAddress = 16;

struct UnwindRegisters {
    std::array<std::uint64_t, kUnwindRegisters> values{};
    std::uint32_t known = 0;  // a bit each; the return address' is the program counter

    [[nodiscard]] std::optional<std::uint64_t> get(std::size_t number) const noexcept;
    void set(std::size_t number, std::uint64_t value) noexcept;
};

// The copied part of a stack.
struct StackMemory {
    std::uint64_t start = 0;
    std::span<const std::byte> bytes;

    [[nodiscard]] std::optional<std::uint64_t> read(std::uint64_t address, std::size_t size = 8) const noexcept;
};

struct UnwindOperation {
    std::uint8_t code = 0;  // DW_OP_*
    std::uint64_t first = 0;
    std::uint64_t second = 0;
};

enum class UnwindHow : std::uint8_t {
    at_cfa,         // in memory at the frame's address and `offset`
    plus_cfa,       // that sum itself
    in_register,    // in register `offset`
    at_expression,  // in memory where expression `offset` says
    expression,     // what it says
    undefined,      // nobody knows
};

struct UnwindRule {
    std::uint8_t target = 0;
    UnwindHow how = UnwindHow::undefined;
    std::int32_t offset = 0;
};

enum class UnwindStep : std::uint8_t {
    caller,     // the registers are the caller's now
    outermost,  // there is no caller
    lost,       // memory or a register that it takes is missing
};

// The rules at one address. A register without one keeps its value, but for the stack pointer, which becomes the
// frame's address.
struct UnwindRow {
    bool found = false;              // else nothing is known of that address
    bool signal = false;             // the caller was interrupted, it did not call
    std::int32_t cfa_register = -1;  // -1: the frame's address is what expression `cfa_offset` says
    std::int32_t cfa_offset = 0;
    std::vector<UnwindRule> rules;
    std::vector<std::vector<UnwindOperation>> expressions;

    // Makes the caller's registers of those of the frame.
    [[nodiscard]] UnwindStep step(UnwindRegisters& registers, const StackMemory& stack) const;
};

// Without call frame information: as if the code kept its frame pointer.
[[nodiscard]] UnwindStep step_by_frame_pointer(UnwindRegisters& registers, const StackMemory& stack) noexcept;

// The value that an expression leaves; `cfa` is what DW_OP_call_frame_cfa pushes. nullopt for what it cannot do.
[[nodiscard]] std::optional<std::uint64_t> evaluate(std::span<const UnwindOperation> operations,
                                                    const UnwindRegisters& registers, const StackMemory& stack,
                                                    std::optional<std::uint64_t> cfa);

}  // namespace sampleblk::profile
