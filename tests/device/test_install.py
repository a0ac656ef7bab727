# SPDX-License-Identifier: MIT
"""`make dkms-install`, into folders of the test's own, with DKMS itself."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sampleblk_lab.kernels import store
from sampleblk_lab.paths import make_environment

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.full
@pytest.mark.skipif(shutil.which("dkms", path="/usr/sbin:/usr/bin") is None, reason="needs dkms: apt-get install dkms")
@pytest.mark.skipif(os.geteuid() != 0, reason="DKMS installs as root only")
def test_dkms_builds_installs_and_removes_the_driver(tmp_path: Path) -> None:
    kernel = store.resolve("6.1")
    assert kernel.build is not None
    sources, tree, installed = (tmp_path / name for name in ("src", "dkms", "modules"))
    for folder in (sources, tree, installed / kernel.release):
        folder.mkdir(parents=True)
    flags = f"-k {kernel.release} --sourcetree {sources} --dkmstree {tree}"
    build = f"{flags} --installtree {installed} --kernelsourcedir {kernel.build} --no-depmod"
    path = f"/usr/sbin:/sbin:{os.environ['PATH']}"

    def make(target: str, with_flags: str) -> str:
        command = ["make", "-C", str(ROOT), target, f"DKMS_SOURCES={sources}", f"DKMS_FLAGS={with_flags}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=make_environment(path))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    make("dkms-install", build)
    for built in (*tree.rglob("sampleblk.ko*"), *installed.rglob("sampleblk.ko*")):
        built.write_bytes(b"of an older source of this version")
    make("dkms-install", build)
    (module,) = installed.rglob("sampleblk.ko*")
    assert module.parent.name in ("dkms", "updates")
    said = subprocess.run(["modinfo", module], capture_output=True, text=True, check=True, env={"PATH": path}).stdout
    assert f"vermagic:       {kernel.release} " in said
    assert "memory_percent" in said
    # Nothing of a build that somebody made here went along.
    assert not list(sources.rglob("*.o"))
    make("dkms-remove", f"{flags} --installtree {installed}")
    assert not list(installed.rglob("sampleblk.ko*"))
    assert list(sources.iterdir()) == []
