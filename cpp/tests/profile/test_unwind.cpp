// SPDX-License-Identifier: MIT
#include <dwarf.h>
#include <gtest/gtest.h>
#include <sys/types.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "sampleblk/fd.hpp"
#include "symbols/symbolizer.hpp"
#include "symbols/unwind_rules.hpp"
#include "symbols/unwinder.hpp"

namespace sampleblk::profile {
namespace {

StackMemory stack_of(const std::vector<std::uint64_t>& words, std::uint64_t start = 0x1000) {
    return {start, std::as_bytes(std::span(words))};
}

std::optional<std::uint64_t> value_of(std::initializer_list<UnwindOperation> operations,
                                      const UnwindRegisters& registers = {}, const StackMemory& stack = {}) {
    const std::vector<UnwindOperation> all(operations);
    return evaluate(all, registers, stack, 0x2000);
}

TEST(UnwindExpression, TheLinkageTablesIsEvaluated) {
    // What binutils writes for .plt: the frame is 8 bytes further from the stub's 11th byte on.
    UnwindRegisters registers;
    registers.set(kStackPointer, 0x1000);
    const auto at = [&](std::uint64_t pc) {
        registers.set(kReturnAddress, pc);
        return value_of({{DW_OP_breg7, 8},
                         {DW_OP_breg16, 0},
                         {DW_OP_lit15},
                         {DW_OP_and},
                         {DW_OP_lit11},
                         {DW_OP_ge},
                         {DW_OP_lit3},
                         {DW_OP_shl},
                         {DW_OP_plus}},
                        registers);
    };
    EXPECT_EQ(at(0x400), 0x1008U);
    EXPECT_EQ(at(0x40b), 0x1010U);
}

TEST(UnwindExpression, WhatCannotBeDoneHasNoValue) {
    EXPECT_EQ(value_of({}), std::nullopt);
    EXPECT_EQ(value_of({{DW_OP_plus}}), std::nullopt);
    EXPECT_EQ(value_of({{DW_OP_breg3, 0}}), std::nullopt);
    EXPECT_EQ(value_of({{DW_OP_bregx, 99, 0}}), std::nullopt);
    EXPECT_EQ(value_of({{DW_OP_lit1}, {DW_OP_lit0}, {DW_OP_div}}), std::nullopt);
    EXPECT_EQ(value_of({{DW_OP_const8u, 1ULL << 63U}, {DW_OP_const8s, ~0ULL}, {DW_OP_div}}), std::nullopt);
    EXPECT_EQ(value_of({{DW_OP_lit0}, {DW_OP_deref}}), std::nullopt);
    EXPECT_EQ(value_of({{DW_OP_lit0}, {DW_OP_bra, 0}}), std::nullopt);
    EXPECT_EQ(value_of({{DW_OP_lit1}, {DW_OP_pick, 7}}), std::nullopt);
    EXPECT_EQ(value_of({{DW_OP_call_frame_cfa}, {DW_OP_plus_uconst, 16}}), 0x2010U);
    EXPECT_EQ(value_of({{DW_OP_lit3}, {DW_OP_lit5}, {DW_OP_minus}, {DW_OP_neg}}), 2U);
}

TEST(UnwindRow, TheCallersRegistersComeOffTheStack) {
    // push %rbx; sub $16: the frame's address is rsp + 32, the return address right below it, rbx below that
    const std::vector<std::uint64_t> words = {1, 2, 0xbbb, 0x401234, 5};
    UnwindRow row;
    row.found = true;
    row.cfa_register = kStackPointer;
    row.cfa_offset = 32;
    row.rules = {{kReturnAddress, UnwindHow::at_cfa, -8}, {3, UnwindHow::at_cfa, -16}, {0, UnwindHow::undefined, 0}};
    UnwindRegisters registers;
    registers.set(0, 7);
    registers.set(3, 8);
    registers.set(12, 9);
    registers.set(kStackPointer, 0x1000);
    ASSERT_EQ(row.step(registers, stack_of(words)), UnwindStep::caller);
    EXPECT_EQ(registers.get(kReturnAddress), 0x401234U);
    EXPECT_EQ(registers.get(kStackPointer), 0x1020U);
    EXPECT_EQ(registers.get(3), 0xbbbU);
    EXPECT_EQ(registers.get(12), 9U);
    EXPECT_EQ(registers.get(0), std::nullopt);
    // the next frame's is not in the copy
    EXPECT_EQ(row.step(registers, stack_of(words)), UnwindStep::lost);
    row.rules = {{kReturnAddress, UnwindHow::undefined, 0}};
    EXPECT_EQ(row.step(registers, stack_of(words)), UnwindStep::outermost);
}

TEST(StackMemory, NothingIsReadOutsideIt) {
    const std::vector<std::uint64_t> words = {1, 2};
    const StackMemory stack = stack_of(words);
    EXPECT_EQ(stack.read(0x1008), 2U);
    EXPECT_EQ(stack.read(0x1009), std::nullopt);
    EXPECT_EQ(stack.read(0x0fff), std::nullopt);
    EXPECT_EQ(stack.read(~0ULL), std::nullopt);
    EXPECT_EQ(stack.read(0x1000, 9), std::nullopt);
}

// This process as a recording would have it.
struct Self {
    Processes processes;
    ObjectFiles objects{SymbolSources{}, {}};
    UserSymbols symbols{objects};

    Self() {
        std::ifstream maps("/proc/self/maps");
        for (std::string line; std::getline(maps, line);) {
            Mapping mapping;
            std::string protection;
            std::string device;
            std::string path;
            std::uint64_t inode = 0;
            char dash = 0;
            std::istringstream in(line);
            in >> std::hex >> mapping.start >> dash >> mapping.end >> protection >> mapping.offset >> device >>
                std::dec >> inode >> path;
            if (protection.size() == 4 && protection[2] == 'x') {
                mapping.file = objects.number(path, "");
                processes.map(1, mapping);
            }
        }
    }

    [[nodiscard]] std::string name(std::uint64_t address) {
        const Mapping* mapping = processes.space(1).find(address);
        return mapping == nullptr ? "" : symbols.find(mapping->file, address - mapping->start + mapping->offset).symbol;
    }
};

#if defined(__x86_64__)

struct Snapshot {
    std::vector<std::uint64_t> registers;  // in perf's order: AX BX CX DX SI DI BP SP IP, R8…R15
    std::vector<std::byte> stack;
};
constexpr std::uint64_t kMask = 0x1ffU | 0xff0000U;

// Fills its argument with its own registers and what lies above its stack pointer.
[[gnu::noinline]] void innermost(Snapshot& out) {
    ucontext_t here{};
    getcontext(&here);
    const auto& from = here.uc_mcontext.gregs;
    for (const int number : {REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_RIP, REG_R8,
                             REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15}) {
        out.registers.push_back(static_cast<std::uint64_t>(from[number]));
    }
    const Fd memory = open_file("/proc/self/mem", O_RDONLY);
    out.stack.resize(65536);
    const ssize_t got = ::pread(memory.get(), out.stack.data(), out.stack.size(), static_cast<off_t>(from[REG_RSP]));
    out.stack.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
}

[[gnu::noinline]] void between(Snapshot& out, std::size_t room) {
    // A frame whose size the compiler does not know takes a frame pointer, or an expression.
    auto* scratch = static_cast<volatile char*>(__builtin_alloca(room));
    scratch[0] = 1;
    innermost(out);
    scratch[room - 1] = 2;
}

TEST(UserUnwinder, ThisProgramsOwnStack) {
    Snapshot snapshot;
    between(snapshot, 100);
    Self self;
    UserUnwinder unwinder(self.objects, true);
    Sample sample;
    sample.user_abi = PERF_SAMPLE_REGS_ABI_64;
    sample.user_registers = std::as_bytes(std::span(snapshot.registers));
    sample.user_stack = snapshot.stack;
    std::vector<std::uint64_t> addresses;
    unwinder.unwind(self.processes.space(1), sample, kMask, addresses);
    std::vector<std::string> names;
    for (const std::uint64_t address : addresses) {
        names.push_back(self.name(address));
    }
    std::string counts;
    for (const auto& [name, count] : unwinder.counts()) {
        counts += name + " " + std::to_string(count) + "\n";
    }
    ASSERT_GE(names.size(), 5U) << snapshot.stack.size() << " bytes of stack\n" << counts;
    EXPECT_NE(names[0].find("innermost"), std::string::npos) << names[0];
    EXPECT_NE(names[1].find("between"), std::string::npos) << names[1];
    EXPECT_NE(names[2].find("ThisProgramsOwnStack"), std::string::npos) << names[2];
    EXPECT_NE(std::find(names.begin(), names.end(), "main"), names.end());
    EXPECT_EQ(unwinder.counts().at("unwound"), 1U);

    // Cut short in the middle, what was found stays.
    sample.user_stack = std::span(snapshot.stack).first(64);
    std::vector<std::uint64_t> fewer;
    unwinder.unwind(self.processes.space(1), sample, kMask, fewer);
    EXPECT_LT(fewer.size(), addresses.size());
    EXPECT_EQ(unwinder.counts().at("unwound_to_the_end_of_the_copy"), 1U);

    // A 32-bit program's registers are not for this.
    sample.user_abi = PERF_SAMPLE_REGS_ABI_32;
    std::vector<std::uint64_t> none;
    unwinder.unwind(self.processes.space(1), sample, kMask, none);
    EXPECT_TRUE(none.empty());
}

#endif

TEST(ObjectFiles, ThisProcessesVdsoIsAnElfFile) {
    const auto info = read_elf_info(own_vdso());
    ASSERT_TRUE(info);
    EXPECT_FALSE(info->build_id.empty());
    ObjectFiles objects({}, {{"[vdso]", info->build_id}});
    EXPECT_EQ(objects.file(objects.number("[vdso]", "")).here, "[vdso]");
    ObjectFiles other({}, {{"[vdso]", "00ff"}});
    EXPECT_FALSE(other.file(other.number("[vdso]", "")).info);
}

}  // namespace
}  // namespace sampleblk::profile
