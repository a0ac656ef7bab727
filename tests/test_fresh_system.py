# SPDX-License-Identifier: MIT
"""The README's commands on systems on which nothing of ours was ever installed (mmdebstrap(1)).

Debian 12 and 13, fully updated; root, and an ordinary user without sudo whose PATH is Debian's default. Packages that
were downloaded once are kept in the cache, so that a second run asks the mirror for what is new only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sampleblk_lab.kernels import debian
from sampleblk_lab.paths import cache_root, locked
from support import copy_sources
from test_new_user import experiment

CHECKOUT = Path(__file__).resolve().parents[1]

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(os.geteuid() != 0, reason="making a system takes root"),
    pytest.mark.skipif("ID=debian" not in Path("/etc/os-release").read_text(), reason="takes Debian's mmdebstrap"),
]

# Debian's own for an ordinary user (login.defs(5), ENV_PATH).
_USER_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"
_ROOT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# In a mount and a pid namespace of its own: whatever is mounted or started here goes with it.
_ENTER = """
set -e
root=$1
shift
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
while [ "$1" != -- ]; do
	mkdir -p "$root$1"
	mount --bind "$1" "$root$1"
	shift
done
shift
exec chroot "$@"
"""


def _pip_folders() -> list[str]:
    """What this system's pip is configured to read from its own disk."""
    said = subprocess.run(["pip", "config", "list"], capture_output=True, text=True, check=False).stdout
    named = re.findall(r"(?:file://)?(/[^\s'\"]+)", said)
    return sorted(
        {str(folder) for name in named for folder in [Path(name), *Path(name).parents][:2] if folder.is_dir()} - {"/"}
    )


class System:
    """A Debian in a folder.

    Args:
        folder: Where to make it.
        suite: Such as ``"bookworm"``.
    """

    def __init__(self, folder: Path, suite: str) -> None:
        self.root = folder
        self._archives = cache_root() / "fresh" / suite
        self._archives.mkdir(parents=True, exist_ok=True)
        mirror = debian.mirror()
        sources = [
            f"deb {mirror} {suite} main",
            f"deb {mirror} {suite}-updates main",
            f"deb {mirror}-security {suite}-security main",
        ]
        with locked(self._archives):
            command = [
                "mmdebstrap",
                "--variant=apt",
                "--include=ca-certificates,make,passwd,procps",
                suite,
                str(folder),
                *sources,
            ]
            self._checked(subprocess.run(command, capture_output=True, text=True, check=False))
        for name in ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf"):
            if Path(name).exists():
                shutil.copy(name, folder / name[1:])
        own = Path("~/.config/pip/pip.conf").expanduser()
        if own.exists() and not Path("/etc/pip.conf").exists():
            shutil.copy(own, folder / "etc/pip.conf")
        # The certificates that this system trusts: its mirror or index may have one of its own.
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", folder / "etc/ssl/certs/ca-certificates.crt")

    @staticmethod
    def _checked(done: subprocess.CompletedProcess[str]) -> str:
        said = f"{done.stdout[-6000:]}{done.stderr[-6000:]}"
        assert done.returncode == 0, said
        return f"{done.stdout}{done.stderr}"

    def run(self, user: str, script: str, timeout: float = 3600) -> str:
        """Runs a script as a user, with nothing of this system's environment; returns what it printed."""
        path = _ROOT_PATH if user == "root" else _USER_PATH
        home = "/root" if user == "root" else f"/home/{user}"
        environment = ["env", "-i", f"HOME={home}", f"PATH={path}", f"USER={user}", "LC_ALL=C.UTF-8", "TERM=dumb"]
        environment += [
            f"{name}={value}" for name, value in os.environ.items() if name in ("PIP_CERT", "SSL_CERT_FILE")
        ]
        inside = ["--userspec", user, str(self.root), *environment, "sh", "-c", f"cd && {script}"]
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _ENTER, "sh", str(self.root)]
        command += [*_pip_folders(), "--", *inside]
        return self._checked(subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout))

    def add_user(self, name: str) -> None:
        """An ordinary user, in no group but its own."""
        self.run("root", f"useradd --create-home --shell /bin/sh {name}")

    def put_checkout(self, user: str) -> None:
        """The checkout, as a fresh clone has it, in the user's home."""
        home = self.root / ("root" if user == "root" else f"home/{user}")
        copy_sources(CHECKOUT, home / "checkout")
        name, code = experiment((CHECKOUT / "README.md").read_text())
        (home / "experiments").mkdir()
        (home / "experiments" / name).write_text(code)
        self.run("root", f"chown -R {user}: {'/root' if user == 'root' else f'/home/{user}'}")


@pytest.fixture
def system(tmp_path: Path) -> Iterator[Callable[[str], System]]:
    made: list[System] = []

    def make(suite: str) -> System:
        made.append(System(tmp_path / suite, suite))
        return made[-1]

    yield make
    for each in made:
        shutil.rmtree(each.root, ignore_errors=True)


@pytest.mark.parametrize("user", ["root", "ordinary"])
@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_from_nothing(
    system: Callable[[str], System], suite: str, user: str, record_property: Callable[[str, object], None]
) -> None:
    machine = system(suite)
    if user != "root":
        machine.add_user(user)
    machine.put_checkout(user)
    if user != "root":
        refused = machine.run(user, "cd checkout && ! make demo")
        wanted = re.search(r"^not root, and there is no sudo\. As root: (apt-get install .*)$", refused, re.MULTILINE)
        assert wanted is not None, refused
        machine.run("root", f"apt-get -qq update && DEBIAN_FRONTEND=noninteractive {wanted[1]} -y -qq")

    begin = time.monotonic()
    said = machine.run(user, "cd checkout && make demo")
    first = time.monotonic() - begin
    assert "== One fadvise64 down into the driver ==" in said
    assert "sampleblk_queue_rq" in said
    begin = time.monotonic()
    assert "== What the driver counted ==" in machine.run(user, "cd checkout && make demo")
    again = time.monotonic() - begin
    assert re.search(r"^ready", machine.run(user, "checkout/.venv/bin/sampleblk-lab doctor"), re.MULTILINE)

    said = machine.run(
        user,
        "checkout/.venv/bin/pip install -q 'pytest>=8' 'pytest-xdist>=3.6' && "
        "checkout/.venv/bin/pytest --sblk-kernel 6.12 experiments",
    )
    assert "1 passed" in said
    record_property("sampleblk_first_demo_s", round(first, 1))
    record_property("sampleblk_second_demo_s", round(again, 1))
    print(f"{suite}, {user}: make demo {first:.1f} s from nothing, {again:.1f} s again")
