# SPDX-License-Identifier: MIT
"""What the tests share."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import RunsInVM, script, use_own_cache

pytest_plugins = ["pytester"]

# What a shell runs in the background ignores these, and so would every program that a test starts and interrupts.
for _signal in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, signal.default_int_handler if _signal == signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(scope="session")
def sampleblk_python() -> RunsInVM:
    """Runs ``sampleblk-python ARGS…``; keywords go to :func:`subprocess.run`."""
    command = script("sampleblk-python")

    def run(*args: str, timeout: float = 120, **keywords: object) -> subprocess.CompletedProcess[bytes]:
        keywords.setdefault("stdin", subprocess.DEVNULL) if "input" not in keywords else None
        return subprocess.run([command, *args], capture_output=True, timeout=timeout, check=False, **keywords)  # type: ignore[call-overload,no-any-return]

    return run


@pytest.fixture
def own_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """See :func:`support.use_own_cache`."""
    cache = tmp_path / "cache"
    cache.mkdir()
    use_own_cache(cache, monkeypatch)
    return cache


@pytest.fixture
def no_leftovers() -> object:
    """Fails the test when it leaves a QEMU behind that it started."""
    before = set(_qemus())
    yield None
    left = set(_qemus()) - before
    assert not left, f"still running: {left}"


def _qemus() -> list[int]:
    """QEMUs below this process."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text(errors="replace")  # names are bytes
            except OSError:
                continue
            pid, rest = int(folder.name), text.rpartition(")")[2].split()
            parents[pid], names[pid] = int(rest[1]), text[text.index("(") + 1 : text.rindex(")")]
    found = []
    for pid, name in names.items():
        ancestor = pid
        while ancestor > 1 and ancestor != os.getpid():
            ancestor = parents.get(ancestor, 0)
        if ancestor == os.getpid() and name.startswith("qemu-system"):
            found.append(pid)
    return found


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting takes root")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8M", "none", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)
