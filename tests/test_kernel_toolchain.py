# SPDX-License-Identifier: MIT
"""Programs of another Debian, made to run on this one."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from sampleblk_lab.kernels import debian, store, toolchain


def test_the_compiler_is_the_one_the_headers_name(tmp_path: Path) -> None:
    assert toolchain.compiler_of(tmp_path) is None
    (tmp_path / ".kernelvariables").write_text("override ARCH = x86\nCC = $(CCACHE) $(CROSS_COMPILE)gcc-14\n")
    assert toolchain.compiler_of(tmp_path) == "gcc-14"


def test_a_wrapped_program_runs_under_the_other_loader(tmp_path: Path) -> None:
    root, scratch, final = tmp_path / "root", tmp_path / "scratch", tmp_path / "final"
    (root / "lib").mkdir(parents=True)
    (root / "lib/x86_64-linux-gnu").symlink_to("/lib/x86_64-linux-gnu")
    (scratch / "bin").mkdir(parents=True)
    shutil.copy2("/bin/echo", scratch / "bin/echo")
    (scratch / "bin/script").write_text("#!/bin/sh\n")
    (scratch / "bin/script").chmod(0o755)
    found = toolchain.programs(scratch)
    assert found == [scratch / "bin/echo"]
    assert toolchain.runs_here(found[0])
    toolchain.wrap(found, root, scratch=scratch, final=final)
    assert str(root / "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2") in found[0].read_text()
    scratch.rename(final)
    said = subprocess.run([final / "bin/echo", "two  words", "$x"], capture_output=True, text=True, check=True).stdout
    assert said == "two  words $x\n"
    # Called by its own name, it would say where it is; nothing else is in the folder but the script and the program.
    assert sorted(path.name for path in (final / "bin").iterdir()) == ["echo", "echo.elf", "script"]


def test_packages_and_what_they_depend_on_come_from_the_suite_or_its_release(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = {
        "next-backports": {"kbuild": ["libc", "virtual"]},
        "next": {"libc": ["base"], "base": [], "gcc": ["libc", "binutils"], "binutils": ["gcc"]},
    }
    monkeypatch.setattr(debian.Suite, "names", lambda self, _: list(archive[self.name]))
    monkeypatch.setattr(
        debian.Suite, "dependencies", lambda self, *names: [need for name in names for need in archive[self.name][name]]
    )
    found = toolchain._closure(["kbuild", "gcc"], toolchain._suites("next-backports"))
    assert {name: suite.name for name, suite in found.items()} == {
        "kbuild": "next-backports",
        **dict.fromkeys(["libc", "base", "gcc", "binutils"], "next"),
    }


def test_header_trees_name_themselves_by_where_they_are(tmp_path: Path) -> None:
    tree = tmp_path / "usr/src/linux-headers-7.2.1-amd64"
    tree.mkdir(parents=True)
    (tree / "Makefile").write_text(
        "KBUILD_OUTPUT=/usr/src/linux-headers-7.2.1-amd64\ninclude /usr/src/common/Makefile\n"
    )
    toolchain.relocate_headers(tmp_path, "7.2.1-amd64", Path("/c/kernels/7.2.1-amd64"))
    assert (tree / "Makefile").read_text() == (
        "KBUILD_OUTPUT=/c/kernels/7.2.1-amd64/usr/src/linux-headers-7.2.1-amd64\n"
        "include /c/kernels/7.2.1-amd64/usr/src/common/Makefile\n"
    )


def test_what_names_where_a_cache_was_before_it_was_moved_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tmp_path / "before"
    release = "7.2.1-amd64"
    kernel, tools = before / "kernels" / release, before / "tools/next-0"
    modules, build = kernel / "lib/modules" / release, kernel / "usr/src" / f"linux-headers-{release}"
    for folder in (modules, build, build.with_name("common"), tools / "usr/bin", tools / "lib"):
        folder.mkdir(parents=True)
    (kernel / "vmlinux").write_bytes(b"")
    (modules / "modules.dep").touch()
    (build.with_name("common") / "Makefile").touch()
    (build / "Makefile").write_text("include /usr/src/common/Makefile\n")
    toolchain.relocate_headers(kernel, release, kernel)
    about = {
        "format": store._FORMAT,
        "release": release,
        "image_bytes": 0,
        "suite": "next",
        "version": "",
        "tools": None,
    }
    (kernel / "kernel.json").write_text(json.dumps(about))
    (tools / "lib/x86_64-linux-gnu").symlink_to("/lib/x86_64-linux-gnu")
    shutil.copy2("/bin/echo", tools / "usr/bin/gcc-14")
    toolchain.wrap([tools / "usr/bin/gcc-14"], tools, scratch=tools, final=tools)
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(before))
    assert [each.release for each in store.installed()] == [release]
    assert toolchain._is_wrapped_for(tools)
    after = before.rename(tmp_path / "after")
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(after))
    assert store.installed() == []
    assert store.damaged() == [after / "kernels" / release]
    assert not toolchain._is_wrapped_for(after / "tools/next-0")


@pytest.mark.full
@pytest.mark.parametrize("series", ["5.10", "7.2"])
def test_headers_of_another_debian_build_with_their_own_compiler(series: str) -> None:
    kernel = store.resolve(series)
    assert kernel.build is not None
    compiler = toolchain.compiler_of(kernel.build)
    assert compiler is not None
    if shutil.which(compiler) is None:
        assert kernel.tools is not None
        said = subprocess.run([kernel.tools / compiler, "--version"], capture_output=True, text=True, check=True).stdout
        assert f" {compiler.removeprefix('gcc-')}." in said


def test_what_depmod_says_is_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(debian.PackageError, match=r"1\.2\.3: exit status 1: depmod: ERROR"):
        toolchain.run_depmod(tmp_path, "1.2.3")
