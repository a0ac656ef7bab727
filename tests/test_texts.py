# SPDX-License-Identifier: MIT
"""Files that somebody else may have written: what is wrong with them is said with file and line, never a traceback."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sampleblk_lab as lab
from sampleblk_lab import FormatError, InputError, crash, proc, tasks, trust
from sampleblk_lab.cli.main import main
from sampleblk_lab.device import latency
from sampleblk_lab.suites import known, suite
from sampleblk_lab.sweeps import file as sweep_file
from sampleblk_lab.texts import Whole, read_json

PR_SET_NAME = 15  # linux/prctl.h

READERS: dict[str, Callable[[Path], object]] = {
    "a sweep": sweep_file.load,
    "known failures": known.read,
    "tests to exclude": suite.words_of_excludes,
    "fio's JSON": lambda path: latency.latency_bins(path, "read"),
}


@pytest.mark.parametrize("what", READERS)
def test_text_that_is_not_utf_8_is_refused_with_its_line(tmp_path: Path, what: str) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"# one\n# caf\xe9\n")
    with pytest.raises(InputError, match=r"/text:2: byte 0xe9 \(expected text in UTF-8\)$"):
        READERS[what](path)


@pytest.mark.parametrize("read", [*READERS.values(), lab.read_folded, lab.read_strace, lab.read_bpftrace, lab.read_bcc])
def test_a_file_that_cannot_be_read_is_named(read: Callable[[Path], object]) -> None:
    """As one on a disk that fails: opened well, while read(2) knows no name."""
    with pytest.raises(OSError, match=r"^\[Errno 5\] Input/output error: '/proc/self/mem'$"):
        read(Path("/proc/self/mem"))


def test_so_is_a_job_file_before_a_vm_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "caf.fio").write_bytes(b"[job]\nrw=read\n# caf\xe9\n")
    assert main(["run", str(tmp_path / "caf.fio")]) == 2
    assert capsys.readouterr().err.endswith("caf.fio:3: byte 0xe9 (expected text in UTF-8)\n")


SHAPE = {
    "list": [int],
    "rate": float,
    "name": str,
    "on": bool,
    "inner": {...: [str]},
    "whole": Whole({"a": int, "b": bool}),
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"list": [1, 2], "rate": 1, "name": null, "on": true, "inner": {"a": ["b"]}, "other": [{}]}', ""),
        ("[]", "at byte 0: expected the whole to be an object"),
        ('{"list": {}}', "at byte 0: expected list to be a list"),
        ('{"list": [1, true]}', "at byte 0: expected list[1] to be a whole number of 64 bits"),
        ('{"list": [18446744073709551616]}', "at byte 0: expected list[0] to be a whole number of 64 bits"),
        ('{"rate": NaN}', "at byte 0: expected rate to be a number"),
        ('{"rate": 1e999}', "at byte 0: expected rate to be a number"),
        ('{"on": 1}', "at byte 0: expected on to be true or false"),
        ('{"inner": {"a": ["b", 1]}}', "at byte 0: expected inner.a[1] to be a string"),
        ('{"inner": {"a": null}}', "at byte 0: expected inner.a to be a list"),
        ('{"whole": {"b": true, "a": 1, "c": 1}}', ""),
        ('{"whole": {"b": true}}', "at byte 0: expected whole.a to be a whole number of 64 bits"),
        ('{"whole": {"b": null, "a": 1}}', "at byte 0: expected whole.b to be true or false"),
        ('{"é": 1, x}', "at byte 10: expected JSON (Expecting property name enclosed in double quotes)"),
        ('{"name": "\\uDC80"}', "at byte 10: expected both halves of a surrogate pair"),
        ('{"name": "\\ud83d\\ude00"}', ""),
        ("[" * 100_000, "at byte 0: expected JSON that is not so deep"),
    ],
)
def test_json_has_its_shape_or_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(text.encode())
    if not said:
        assert read_json(path, SHAPE) == json.loads(text)
        return
    with pytest.raises(FormatError) as refused:
        read_json(path, SHAPE)
    assert str(refused.value) == f"{path}: {said}"


def test_checks_come_back_as_they_were_written(tmp_path: Path) -> None:
    checks = [trust.of_losses("events", 3), trust.of_losses("samples", 0)]
    path = tmp_path / "trust.json"
    path.write_text(trust.as_json(checks))
    assert trust.read(path) == checks
    without = [{name: value for name, value in vars(checks[0]).items() if name != "is_doubt"}]
    path.write_text(json.dumps(without))
    with pytest.raises(FormatError, match=r"expected \[0\].is_doubt to be true or false"):
        trust.read(path)


# --- proc(5): fifteen bytes of a longer name, cut within a character; one with the separators of stat and status

NAMES = [("\u540d" * 5).encode()[:14], b"a) S (b", b"Tgid:\t1\n", b""]


@pytest.mark.parametrize("name", NAMES)
def test_a_process_may_have_any_name(name: bytes, tmp_path: Path) -> None:
    code = "import ctypes, sys; ctypes.CDLL(None).prctl(15, eval(sys.argv[1])); print(flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, repr(name)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "\n"
        assert os.fsencode(proc.text(child.pid, "comm")) == name + b"\n"
        assert proc.status(child.pid)["Tgid"] == str(child.pid)
        assert proc.stat(child.pid)[1] == str(os.getpid())
        assert tasks.threads([child.pid]) == {child.pid: [child.pid]}
        child.communicate("\n")

    def write() -> None:
        ctypes.CDLL(None).prctl(PR_SET_NAME, name)
        with (tmp_path / "file").open("wb", buffering=0) as file:
            file.write(b"x")
            os.fsync(file.fileno())

    marks: list[Any] = []
    found = crash.watched(write, tmp_path, marks.append)
    assert found.status == 0
    assert found.promises > 1
