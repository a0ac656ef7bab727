# SPDX-License-Identifier: MIT
"""The Python that a template has ready (:mod:`sampleblk_lab.vm.guest.fork_server`): the files that it is made of.

They are in the guest's memory (:mod:`sampleblk_lab.vm.contents.copies`), with the programs that are started most. A
template is only good as long as none of them changes; who edits one at every turn would have a new template made at
every turn, so there is one only from the second time on that they are found as they were.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab.paths import CacheError, cache_root, write_atomically
from sampleblk_lab.vm.contents import copies
from sampleblk_lab.vm.guest.read_once import read_at_start

if TYPE_CHECKING:
    from collections.abc import Sequence

# The settings of Python's that a fork heeds as a new interpreter does (python(1)); with others there is no template.
_SETTINGS = frozenset({"PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONNOUSERSITE", "PYTHONUNBUFFERED", "PYTHONUTF8"})

# It names a file that the template has not.
_NAMES_A_FILE = frozenset({"OPENSSL_CONF"})

#: What the server is: its last finder notes what no other one has found, from the first import on.
START = """
import sys
class Last:
    not_found = set()
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if path is None:
            cls.not_found.add(name)
sys.meta_path.append(Last)
import sampleblk_lab.vm.guest.fork_server as server
server.main(Last.not_found, {preload!r})
"""

# What the files, the process and the kernel that unpacks them need together.
MEMORY_MIB = 768


@dataclass(frozen=True)
class Interpreter:
    """An interpreter, as it can be had ready in a guest.

    Attributes:
        program: Its executable, by the name that commands give.
        environment: The variables that it reads when it starts.
        files: What it opens and maps, and the programs that are started most, as they are found, links and all.
        folders: Where it looks for modules.
        identity: Changes with any of these, and with what is in the files.
        state: What the files and folders were found as.
        preload: The modules that it has imported besides those that all have.
    """

    program: str
    environment: dict[str, str]
    files: list[str]
    folders: list[str]
    identity: str
    state: str = ""
    preload: tuple[str, ...] = ()

    def is_unchanged(self) -> bool:
        """Whether the files are still those that it was found with."""
        try:
            return copies.state(self.files, self.folders) == self.state
        except OSError:
            return False

    @property
    def command(self) -> list[str]:
        """What starts it in the guest."""
        return [self.program, "-c", START.format(preload=self.preload)]


def ready(preload: Sequence[str] = (), *, at_once: bool = False) -> Interpreter | None:
    """This interpreter, if nothing of it has changed since this was last asked.

    Args:
        preload: The modules that it has imported besides those that all have.
        at_once: Also when it has.
    """
    environment = read_at_start(os.environ.items(), preloads=bool(preload))
    if sys.flags.isolated or any(_is_unknown(name) for name in environment):
        return None
    settings = sorted(f"{name}={value}" for name, value in environment.items())
    about = "\n".join([sys.executable, sys.version, *settings, *preload])
    known = cache_root() / "interpreters" / f"{hashlib.sha256(about.encode()).hexdigest()[:24]}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        saved = json.loads(known.read_text())
        if saved["state"] == copies.state(saved["files"], saved["folders"]):
            identity = hashlib.sha256(f"{about}\n{saved['state']}".encode()).hexdigest()
            parts = saved["files"], saved["folders"], identity, saved["state"]
            return Interpreter(sys.executable, environment, *parts, tuple(preload))
    code = f"from {__name__} import print_parts; print_parts({list(preload)})"
    # What PYTHONPATH names is not the interpreter's, and each fork finds it by itself.
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", env=own)
    if said.returncode != 0:
        return None
    found = json.loads(said.stdout)
    with contextlib.suppress(CacheError):
        write_atomically(known, json.dumps({**found, "state": copies.state(**found)}).encode())
        return ready(preload) if at_once else None
    return None


def _is_unknown(variable: str) -> bool:
    return (variable.startswith("PYTHON") and variable not in _SETTINGS) or variable in _NAMES_A_FILE


def of_modules() -> set[str]:
    """The names of the files of all modules that are imported, those of modules without a file among them."""
    from importlib.machinery import PathFinder

    files: set[str] = set()
    for name, module in list(sys.modules.items()):
        files.update(str(getattr(module, file, None)) for file in ("__file__", "__cached__"))
        spec = getattr(module, "__spec__", None)
        if spec is None or spec.name != name:
            # It has put another one into its place, as collections.abc does from Python 3.13 on.
            parent = sys.modules.get(name.rpartition(".")[0])
            with contextlib.suppress(ImportError, AttributeError, ValueError):
                found = PathFinder.find_spec(name, getattr(parent, "__path__", None))
                files.update(str(getattr(found, file)) for file in ("origin", "cached"))
    return files


def print_parts(preload: Sequence[str]) -> None:
    """Prints the files of an interpreter which imports all that, those of programs, and the folders of its modules."""
    from sampleblk_lab.vm.contents import programs
    from sampleblk_lab.vm.guest import fork_server

    fork_server.import_all(preload)
    files = {sys.executable, "/etc/ld.so.cache", "/etc/localtime", "/lib64/ld-linux-x86-64.so.2"}
    files.update(of_modules())
    for line in Path("/proc/self/maps").read_text().splitlines():
        files.add(line.split(maxsplit=5)[-1])
    files.update(str(Path(folder) / "pyvenv.cfg") for folder in (sys.prefix, Path(sys.executable).parent))
    # A library is opened by the name that it is asked for by, which may be a link to it.
    for place in {Path(path).parent for path in files if ".so" in Path(path).name and path.startswith("/")}:
        files.update(
            str(path)
            for path in place.iterdir()
            if ".so" in path.name and path.is_symlink() and str(path.resolve()) in files
        )
    folders = [folder for folder in sys.path if Path(folder).is_dir() and folder]
    for folder in folders:
        files.update(str(path) for path in Path(folder).glob("*.pth"))
    files.update(programs.files())
    print(
        json.dumps(
            {
                "files": sorted(path for path in files if path.startswith("/") and Path(path).is_file()),
                "folders": folders,
            }
        )
    )
