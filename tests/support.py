# SPDX-License-Identifier: MIT
"""What several test modules import."""

import contextlib
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sampleblk_lab.paths import cache_root

# Options of a pytest that is a case of ours: two of the three seconds that it takes to start are these.
_HEAVY = ("hypothesispytest", "html", "html_fixtures", "metadata", "pytest_cov", "timeout")
LIGHT = tuple(f"-pno:{name}" for name in _HEAVY)
QUICK = ("-p", "no:cacheprovider", *LIGHT)

# A plugin that puts a process of this machine in the place of each VM. What the machine's other processes leave is no
# test's; a test that leaves something is in a real VM.
STAND_IN = (
    "import os\n"
    "import sampleblk_lab.pytest_plugin.guests as guests\n"
    "import sampleblk_lab.pytest_plugin.residue as residue\n"
    f"guests.LAUNCH = ('-P', {str(Path(__file__).with_name('local_guest.py'))!r})\n"
    "if 'LOCAL_GUEST_LOG' in os.environ:\n"  # a VM has a /tmp of its own
    "    guests._BASETEMP = os.path.dirname(os.environ['LOCAL_GUEST_LOG']) + '/guest'\n"
    "present, residue.present = residue.present, frozenset\n"
)

RunsInVM = Callable[..., subprocess.CompletedProcess[bytes]]


def script(name: str) -> str:
    """One of the package's commands, beside the interpreter that runs the tests."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"{name} is not installed"
    return found


def tracked(folder: Path, *places: str) -> list[str]:
    """The files that git tracks and that are there: of a folder of the checkout, or of `places` in it."""
    command = ["git", "-C", str(folder), "ls-files", "-z", *places]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name and (folder / name).is_file()]


def copy_sources(folder: Path, target: Path) -> Path:
    """A folder of the checkout as a fresh clone has it: what git tracks, as it is in the working tree."""
    for name in tracked(folder):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / name, target / name)
    return target


def protobuf_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """A protobuf message's fields: tag, and a number or what is length-delimited."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            assert key & 7 == 2
            size = varint()
            assert at + size <= len(data)
            yield key >> 3, data[at : at + size]
            at += size


def use_own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses a cache with the kernels, QEMU and verdicts of the real one, and drivers and templates of its own.

    What a test builds for what is gone with the test would take the place of what others use.
    """
    real = cache_root()
    for name in ("interpreters", "kernels", "kvm", "qemu", "tools"):
        if (real / name).is_dir():
            (cache / name).symlink_to(real / name)
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(cache))
    monkeypatch.setenv("SAMPLEBLK_BACKGROUND", "0")  # nothing is made there when the test has ended


@contextlib.contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """No file grows beyond a size: a write across it is a short one, the next fails with EFBIG (setrlimit(2))."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
