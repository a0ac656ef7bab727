// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>

#include "sampleblk/fd.hpp"
#include "sampleblk/mapping.hpp"
#include "sampleblk/profile/off_cpu.hpp"
#include "symbols/elf_symbols.hpp"
#include "symbols/symbolizer.hpp"

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

TEST(KernelSymbols, AnotherBootIsShiftedAndItsModulesLayElsewhere) {
    KernelSymbols symbols;
    symbols.read(kKallsyms, 0x1000);
    symbols.finish();
    EXPECT_EQ(symbols.find(0xffffffff81001010).symbol, "__startup_secondary");
    EXPECT_EQ(symbols.find(0xffffffffc0000080).symbol, "");
    EXPECT_EQ(kallsyms_address(kKallsyms, "short"), 0xffffffff81000080U);
    EXPECT_EQ(kallsyms_address(kKallsyms, "none"), 0U);
}

TEST(KernelSymbols, AModuleIsWhereItWasLoaded) {
    KernelSymbols symbols;
    symbols.loaded("[xfs]", 0xffffffffc0001000, 0xffffffffc0002000);
    symbols.loaded("[ext4]", 0xffffffffc0000100, 0xffffffffc0001000);
    symbols.loaded("[jbd2]", 0xffffffffc0000000, 0xffffffffc0000200);
    symbols.read(kKallsyms, 0);
    symbols.finish();
    EXPECT_EQ(symbols.find(0xffffffffc0000080).symbol, "");
    EXPECT_EQ(symbols.find(0xffffffffc0000080).module, "[jbd2]");
    EXPECT_EQ(symbols.find(0xffffffffc0000180).symbol, "ext4_other");
    // One whose symbols are not known is still known by its place.
    const Place module = symbols.find(0xffffffffc0001f00);
    EXPECT_EQ(module.symbol, "");
    EXPECT_EQ(module.module, "[xfs]");
    EXPECT_EQ(module.kind, FrameKind::module);
}

TEST(KernelSymbols, ARecordedProgramIsNotALaterOne) {
    KernelSymbols symbols;
    symbols.add(0xffffffffc0000000, 0xffffffffc0000100, "bpf_prog_recorded", "");
    symbols.read("ffffffff81000000 T _text\nffffffffc0000040 t bpf_prog_later\t[bpf]\n", 0);
    symbols.finish();
    EXPECT_EQ(symbols.find(0xffffffffc0000080).symbol, "bpf_prog_recorded");
}

std::string output_of(const std::string& command) {
    std::string out;
    FILE* const pipe = ::popen(command.c_str(), "r");  // NOLINT(bugprone-command-processor): a test of ours
    for (int c = pipe == nullptr ? EOF : std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
        out += static_cast<char>(c);
    }
    return pipe != nullptr && ::pclose(pipe) == 0 ? out : std::string();
}

// Stubs in each form that linkers write them, with and without control-flow protection, against objdump's names.
TEST(ElfSymbols, StubsAreNamedAsObjdumpNamesThem) {
    const std::string directory = testing::TempDir() + "sampleblk-plt-" + std::to_string(::getpid());
    std::filesystem::create_directory(directory);
    const std::string program = directory + "/program";
    write_file(program + ".c",
               "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
               "int (*volatile taken)(const char *) = puts;\n"
               "int main(int c, char **v) { char *p = strdup(v[0]); puts(p); taken(p);\n"
               "printf(\"%d %zu\", atoi(p), strlen(p)); free(p); return c; }\n",
               O_CREAT | O_TRUNC);
    int tried = 0;
    for (const char* options : {"", "-Wl,-z,now", "-no-pie", "-fcf-protection=full -Wl,-z,ibtplt",
                                "-fcf-protection=full -Wl,-z,ibtplt -Wl,-z,now", "-fuse-ld=gold"}) {
        const std::string built = output_of("cc -O1 " + std::string(options) + " -o " + program + " " + program +
                                            ".c 2>/dev/null && echo built");
        const std::string listing =
            output_of("objdump -d -j .plt -j .plt.sec -j .plt.got " + program + " 2>/dev/null; true");
        if (built.empty() || listing.empty()) {
            continue;  // without that linker
        }
        ++tried;
        const MappedFile file(program);
        const auto info = read_elf_info(file.bytes());
        ASSERT_TRUE(info);
        SymbolList symbols;
        add_plt_symbols(file.bytes(), info->executable, symbols);
        symbols.finish(false);
        int named = 0;
        std::istringstream lines(listing);
        for (std::string line; std::getline(lines, line);) {
            const auto name = line.find(" <");
            if (!line.ends_with("@plt>:") || name == std::string::npos) {
                continue;
            }
            const std::uint64_t address = std::stoull(line.substr(0, name), nullptr, 16);
            std::uint64_t offset = 0;
            for (const ElfSegment& segment : info->executable) {
                offset = address - segment.address < segment.size ? address - segment.address + segment.offset : offset;
            }
            const SymbolEntry* found = symbols.find(offset);
            ASSERT_NE(found, nullptr) << options << ": " << line;
            EXPECT_EQ(symbols.name(*found), line.substr(name + 2, line.size() - name - 4)) << options;
            EXPECT_EQ(found->start, offset) << options;
            ++named;
        }
        EXPECT_GE(named, 6) << options << ": " << listing;
    }
    std::filesystem::remove_all(directory);
    EXPECT_GE(tried, 3);
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
    // As c++filt -p, and so perf, has them: neither parameters nor a template's return type, nor what was cut off.
    EXPECT_EQ(demangle("_Z4tmplImET_S0_"), "tmpl<unsigned long>");
    EXPECT_EQ(demangle("_Z2pfIlEPFviET_"), "pf<long>");
    EXPECT_EQ(demangle("_ZNK2OpcvmEv.isra.0"), "Op::operator unsigned long");
    EXPECT_EQ(demangle("_ZZ3lammENKUlmE_clEm.constprop.0"),
              "lam(unsigned long)::{lambda(unsigned long)#1}::operator()");
    EXPECT_EQ(demangle("_ZN12_GLOBAL__N_14loopEv.cold"), "(anonymous namespace)::loop");
    EXPECT_EQ(demangle("_ZN1r3gen17ha140b28d4102ff23E.llvm.144"), "r::gen::ha140b28d4102ff23");
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
