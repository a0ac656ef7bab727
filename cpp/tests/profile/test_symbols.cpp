// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "elf_symbols.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/profile/off_cpu.hpp"
#include "symbolizer.hpp"

namespace sampleblk::profile {
namespace {

constexpr std::string_view kKallsyms =
    "0000000000000000 A fixed_percpu_data\n"
    "ffffffff81000000 T _text\n"
    "ffffffff81000000 t __startup_secondary\n"
    "ffffffff81000040 t local_one\n"
    "ffffffff81000040 T global_one\n"
    "ffffffff81000040 W weak_one\n"
    "ffffffff81000080 T __long_name\n"
    "ffffffff81000080 T short\n"
    "ffffffff810000c0 D data\n"
    "ffffffffc0000000 t ext4_thing\t[ext4]\n"
    "ffffffffc0000100 t ext4_other\t[ext4]\n";

TEST(KernelSymbols, OneNameAPlaceAsPerfChooses) {
    KernelSymbols symbols;
    symbols.read(kKallsyms, 0);
    symbols.finish();
    // The last one: perf report says memmove (weak), not __memmove, and __cpuidle_text_start, not default_idle.
    EXPECT_EQ(symbols.find(0xffffffff81000010).symbol, "__startup_secondary");
    EXPECT_EQ(symbols.find(0xffffffff81000041).symbol, "weak_one");
    EXPECT_EQ(symbols.find(0xffffffff81000081).symbol, "short");
    const Place module = symbols.find(0xffffffffc0000080);
    EXPECT_EQ(module.symbol, "ext4_thing");
    EXPECT_EQ(module.module, "[ext4]");
    EXPECT_EQ(module.kind, FrameKind::module);
    // The kernel's last symbol does not reach to the modules.
    EXPECT_EQ(symbols.find(0xffffffffa0000000).symbol, "");
}

TEST(KernelSymbols, AnotherBootIsShiftedButForItsModules) {
    KernelSymbols symbols;
    symbols.read(kKallsyms, 0x1000);
    symbols.finish();
    EXPECT_EQ(symbols.find(0xffffffff81001010).symbol, "__startup_secondary");
    EXPECT_EQ(symbols.find(0xffffffffc0000080).symbol, "ext4_thing");
    EXPECT_EQ(kallsyms_address(kKallsyms, "short"), 0xffffffff81000080U);
    EXPECT_EQ(kallsyms_address(kKallsyms, "none"), 0U);
}

TEST(ElfSymbols, ThisProgramFindsItsOwnFunctions) {
    const MappedFile self("/proc/self/exe");
    const auto info = read_elf_info(self.bytes());
    ASSERT_TRUE(info);
    EXPECT_TRUE(info->has_symtab);
    ASSERT_FALSE(info->executable.empty());
    SymbolList symbols;
    add_elf_symbols(self.bytes(), info->executable, symbols);
    symbols.finish(false);
    bool found = false;
    for (const SymbolEntry& entry : symbols.entries()) {
        // with "[abi:cxx11]" behind it, for it returns a string
        found = found || demangle(symbols.name(entry)).starts_with("sampleblk::profile::demangle");
    }
    EXPECT_TRUE(found);
}

TEST(Demangle, LeavesParametersOut) {
    EXPECT_EQ(demangle("_ZN9sampleblk7profile8demangleESt17basic_string_viewIcSt11char_traitsIcEE"),
              "sampleblk::profile::demangle");
    EXPECT_EQ(demangle("_ZNK3foo3barEv"), "foo::bar");
    EXPECT_EQ(demangle("main"), "main");
    EXPECT_EQ(demangle("_Znotmangled"), "_Znotmangled");
}

TEST(Syscalls, AreKnownByTheirFunctions) {
    EXPECT_EQ(syscall_of_function("__x64_sys_write"), "write");
    EXPECT_EQ(syscall_of_function("ksys_write"), "write");
    EXPECT_EQ(syscall_of_function("ksys_fadvise64_64"), "fadvise64");
    EXPECT_EQ(syscall_of_function("__do_sys_clone.isra.0"), "clone");
    EXPECT_EQ(syscall_of_function("vfs_write"), "");
}

}  // namespace
}  // namespace sampleblk::profile
