# SPDX-License-Identifier: MIT
"""A failure written out: the recording, and a pytest file that builds the state and checks it, on any machine."""

from __future__ import annotations

import gzip
import inspect
import math
import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.crash import submitters
from sampleblk_lab.crash.checks import Check
from sampleblk_lab.crash.files import copy_start
from sampleblk_lab.crash.log import Log
from sampleblk_lab.crash.watch import Watched
from sampleblk_lab.errors import InputError
from sampleblk_lab.texts import readable

if TYPE_CHECKING:
    from collections.abc import Callable

    from sampleblk_lab.crash.explore import Failure

TEST = "test_crash_state.py"
_LOG = "log.gz"
_BASE = "base.img.gz"
_BLOCK = 1 << 20


def save(failure: Failure, folder: str | os.PathLike[str]) -> Path:
    """See :meth:`Failure.save`."""
    target = Path(folder)
    state, log = failure.reduced, failure.reduced.log
    program = _Program()
    check = program.expression(failure.check)
    lost, torn = state.lost, state.torn
    whole = f"log.state({state.submitted})"
    missing = f"log.state({state.submitted}, lost={lost}{f', torn={torn}' if torn else ''})" if lost or torn else whole
    # Whatever a check has said: Python reads no NUL, and nothing that is not UTF-8.
    said = [readable(line, keep="\t") for line in failure.text().splitlines()]
    # The size: zeros after the base's end are part of the disk.
    given = f"size_bytes={log.size_bytes}, flush={log.flush}, fua={log.fua}"
    marks = ["pytest.mark.in_vm"] if program.mounts or failure.kernel else []
    if failure.kernel_warning:
        marks.append(f"pytest.mark.kernel_warning({', '.join(map(repr, failure.kernel_warning))})")
    text = "\n".join(
        [
            *(f"# {line}".rstrip() for line in said),
            *([f"# Found in a VM: {failure.command()}"] if failure.kernel else []),
            "from pathlib import Path",
            "",
            "import pytest",
            *(f"import {name}" for name in sorted(program.imports)),
            "from sampleblk_lab import crash",
            "",
            *([f"pytestmark = [{', '.join(marks)}]", ""] if marks else []),
            f"CHECK = {check}",
            "",
            "",
            "@pytest.fixture",
            "def log(tmp_path):",
            f"    return crash.unpack(Path(__file__).parent, tmp_path, {given})",
            "",
            "",
            "def test_what_the_crash_left(log):",
            f"    log.check({missing}, CHECK)",
            *(
                [
                    "",
                    "",
                    "def test_the_same_without_the_loss(log):",
                    f"    log.check({whole}, CHECK)",
                ]
                if missing != whole
                else []
            ),
            "",
        ]
    )
    target.mkdir(parents=True, exist_ok=True)
    for name in (TEST, _LOG, _BASE, submitters.FILE, *program.copies):
        if (target / name).exists():
            raise InputError(f"{target / name} exists", expected="a folder without a saved failure")
    for name, source in program.copies.items():
        shutil.copyfile(source, target / name)
    pack(log, target)
    (target / TEST).write_text(text, encoding="utf-8")
    return target


def pack(log: Log, folder: Path) -> None:
    """Writes the recording of a log to a folder, compressed, for :func:`unpack`."""
    log.check_files()
    _compress(log.path, folder / _LOG, log.native.file_bytes)
    if log.base is not None:
        _compress(log.base, folder / _BASE, log.base.stat().st_size)
    submitters.copy(log.path, folder)


def _compress(source: Path, target: Path, size: int) -> None:
    # No time and no name in it: equal files for equal recordings.
    with target.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as out:
        copy_start(source, out, size)


def unpack(
    folder: str | os.PathLike[str], into: str | os.PathLike[str], *, size_bytes: int, flush: bool, fua: bool
) -> Log:
    """The log of a failure that was saved; its files are unpacked into another folder, which must stay.

    Raises:
        OSError: The folder has none, or the other one cannot be written.
    """
    source, target = Path(folder), Path(into)
    for name in (_LOG, _BASE):
        if name == _BASE and not (source / name).exists():
            continue
        with gzip.open(source / name) as file, (target / name.removesuffix(".gz")).open("wb") as out:
            while data := file.read(_BLOCK):
                if data.strip(b"\0"):
                    out.write(data)
                else:
                    out.seek(len(data), os.SEEK_CUR)
            out.truncate()
    base = target / _BASE.removesuffix(".gz")
    submitters.copy(source / _LOG, target)
    return Log(
        target / _LOG.removesuffix(".gz"),
        base=base if base.exists() else "zeros",
        size_bytes=size_bytes,
        flush=flush,
        fua=fua,
    )


class _Program:
    """What a written expression needs: modules, and copies of those that are nobody's package."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.copies: dict[str, Path] = {}
        self.mounts = False

    def expression(self, value: Any) -> str:
        """Python that makes an equal value. Raises InputError where there is none."""
        if isinstance(value, Check):
            self.mounts = self.mounts or value.name == "mounted"
            given = [self.expression(each) for each in value.arguments]
            given += [f"{name}={self.expression(each)}" for name, each in value.keywords.items()]
            return f"crash.{value.name}({', '.join(given)})"
        if callable(value):
            return self._function(value)
        if isinstance(value, dict):
            return f"{{{', '.join(f'{self.expression(a)}: {self.expression(b)}' for a, b in value.items())}}}"
        if isinstance(value, list):
            return f"[{', '.join(map(self.expression, value))}]"
        if isinstance(value, tuple):
            return f"({''.join(f'{self.expression(each)}, ' for each in value)})"
        if isinstance(value, Watched):
            given = [f"{name}={self.expression(each)}" for name, each in vars(value).items()]
            return f"crash.Watched({', '.join(given)})"
        if isinstance(value, Path):
            return f"Path({str(value)!r})"
        if isinstance(value, float) and not math.isfinite(value):
            return f"float('{value}')"
        kind: Any
        for kind in (type(None), bool, int, float, str, bytes, bytearray):
            if isinstance(value, kind):
                return str(kind.__repr__(value))  # not that of a class of its own, such as an enum's or numpy's
        raise InputError(
            f"{value!r} in a check", expected="numbers, text, bytes, lists, tuples, dictionaries, functions"
        )

    def _function(self, function: Callable[..., Any]) -> str:
        name = getattr(function, "__qualname__", "")
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        found: Any = module
        for part in name.split("."):
            found = getattr(found, part, None)
        if module is None or found is not function or module.__name__ == "__main__":
            raise InputError(
                f"the check {name or function!r} cannot be written down",
                expected="a function of a module, which others can import",
            )
        file = inspect.getsourcefile(function)
        installed = [sysconfig.get_path(each) for each in ("stdlib", "platstdlib", "purelib", "platlib")]
        ours = str(Path(__file__).parents[1])
        if file is None or any(Path(file).is_relative_to(each) for each in (*installed, ours)):
            self.imports.add(module.__name__)
            return f"{module.__name__}.{name}"
        copy = f"checked_{re.sub('[^A-Za-z0-9]', '_', module.__name__)}"
        self.imports.add(copy)
        self.copies[f"{copy}.py"] = Path(file)
        return f"{copy}.{name}"
