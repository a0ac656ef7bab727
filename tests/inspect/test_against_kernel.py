# SPDX-License-Identifier: MIT
"""What inspect reads, beside what a module in the same kernel, and /proc, say of the same objects."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sampleblk_lab import kernels
from sampleblk_lab.errors import UnsupportedError
from sampleblk_lab.kernels.toolchain import compiler_of
from sampleblk_lab.paths import make_environment
from support import RunsInVM

HERE = Path(__file__).parent


def build(kernel: kernels.Kernel, folder: Path) -> Path:
    """The oracle, built for a kernel."""
    assert kernel.build is not None
    source = shutil.copytree(HERE / "oracle", folder / "oracle")
    search = kernel.search_path
    named = compiler_of(kernel.build)
    if named and shutil.which(named, path=search) is None:
        # As the driver's Makefile does: the default compiler under the name that the headers ask for.
        (folder / "bin").mkdir()
        (folder / "bin" / named).symlink_to(shutil.which("gcc") or "/usr/bin/gcc")
        search = f"{folder / 'bin'}:{search}"
    done = subprocess.run(
        ["make", "-C", str(kernel.build), f"M={source}", "modules"],
        env=make_environment(search),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return source / "inspect_oracle.ko"


@pytest.fixture(
    scope="module",
    params=["6.1", *(pytest.param(series, marks=pytest.mark.full) for series in ("5.10", "6.12", "7.2"))],
)
def said(request: pytest.FixtureRequest, sampleblk_python: RunsInVM, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Kernel series, and what the guest printed."""
    pytest.importorskip("drgn")
    try:
        kernel = kernels.resolve(request.param, download=False)
    except UnsupportedError as error:
        pytest.skip(str(error))
    module = build(kernel, tmp_path_factory.mktemp("oracle"))
    options = ["--kernel", kernel.release, "--cpus", "2", "--timeout", "240"]
    done = sampleblk_python(*options, str(HERE / "oracle_guest.py"), str(module), timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return request.param, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("moment", ["file", "file later"])
def test_an_open_file_is_the_kernel_s(said: Any, moment: str) -> None:
    _, everything = said
    ours, kernel, proc = (everything[moment][who] for who in ("ours", "kernel", "proc"))
    same = ("task", "pid", "comm", "file", "dentry", "inode", "superblock", "mapping", "f_op", "i_op", "a_ops")
    assert {name: ours[name] for name in (*same, "name", "write_iter", "inode_number")} == {
        name: kernel[name] for name in (*same, "name", "write_iter", "inode_number")
    }
    assert (ours["position_bytes"], ours["size_bytes"]) == (kernel["position"], kernel["size"])
    assert {name: ours[name] for name in proc} == proc
    assert ours["f_op"] == "ext4_file_operations"


@pytest.mark.parametrize("how", ["scattered", "large", "read", "one", "huge", "device"])
def test_cached_and_dirty_pages_are_the_kernel_s(said: Any, how: str) -> None:
    _, everything = said
    pages = everything["pages"][how]
    if how != "huge":  # 5.10 has a large page in the slots of all its parts, which the oracle repeats
        assert pages["ours"] == pages["kernel"]
    # mincore(2) leaves out a page of which only some blocks were ever written or read.
    assert pages["uptodate"] == pages["mincore"]
    assert how in ("one", "device") or len(pages["uptodate"]) == len(pages["ours"])
    assert len(pages["ours"]) == pages["nrpages"] > 0
    assert pages["faults"] == 0
    dirty = [page for page, is_dirty in pages["ours"] if is_dirty]
    if how == "scattered":
        assert dirty == [0, 3, 63, 64, 200, 255]
    if how == "large":
        # Of a large page, all is dirty when some is.
        assert {100, 101, 102} <= set(dirty)


def test_pages_larger_than_one_are_there_where_the_filesystem_has_them(said: Any) -> None:
    series, everything = said
    largest = max(pages["largest"] for how, pages in everything["pages"].items() if how != "huge")
    assert (largest > 1) == (series == "7.2")  # ext4 has them since 6.16


def test_pages_of_hugetlbfs_are_counted_as_others(said: Any) -> None:
    assert said[1]["hugetlb"] == [*range(512), *range(1024, 1536)]


def test_a_descriptor_that_is_another_file_s_by_now_is_none_of_this_one(said: Any) -> None:
    assert said[1]["reused"] == {"inodes": [], "closed": 1}


def test_files_of_a_mount_are_found_whatever_their_device_number(said: Any) -> None:
    below = said[1]["below"]
    assert below["devices"][0] != below["devices"][1]
    assert below["found"]
    assert below["types"] == ["overlay"]


def test_a_pid_of_a_namespace_is_not_taken_for_the_kernel_s(said: Any) -> None:
    assert len([line for line in said[1]["namespace"] if "pid namespace" in line]) == 2


def test_the_queue_is_the_kernel_s(said: Any) -> None:
    _, everything = said
    ours, kernel = everything["queue"]["ours"], everything["queue"]["kernel"]
    assert ours == {name: kernel[name] for name in ours}
    assert len(ours["hctx"]) == 2
    assert everything["mapped"] == ours["disk_name"]
