# SPDX-License-Identifier: MIT
"""Reports of awkward names: long, not UTF-8, and in whatever locale the program runs."""

from __future__ import annotations

import json
import locale
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sampleblk_lab as lab


def long_path(directory: Path) -> Path:
    """More than 255 bytes, which end inside a letter of three."""
    deep = directory
    while len(os.fsencode(deep)) < 300:
        deep = deep / ("語" * 20)
    deep.mkdir(parents=True)
    return deep


@pytest.mark.parametrize("pad", ["", "a", "ab"])
def test_an_error_on_a_long_path_is_told_in_full(pad: str, tmp_path: Path) -> None:
    path = long_path(tmp_path) / f"{pad}file"
    job = lab.Job(rw="write", size="64k", max_latency="1ns", filename=path)
    result = job.run(progress=False, check=False)
    assert str(path) in result.errors[0][2]
    assert str(path) in result.json()["jobs"][0]["sampleblk"]["error"]
    assert str(path) in result.text()


def test_a_mismatch_on_a_long_path_is_told_in_full(tmp_path: Path) -> None:
    path = long_path(tmp_path) / "file"
    keys = {"bs": "4k", "size": "64k", "verify": "crc32c", "filename": path}
    lab.Job(rw="write", **keys, do_verify=0).run(progress=False)
    path.write_bytes(bytes(64 << 10))
    result = lab.Job(rw="read", **keys).run(progress=False, check=False)
    (_name, _code, text) = result.errors[0]
    assert str(path) in text
    assert result.json()["jobs"][0]["sampleblk"]["verify"]["mismatches"][0]["path"] == str(path)
    line = next(line for line in result.text().splitlines() if "mismatch  :" in line)
    assert str(path) in line
    assert line.endswith("found 00000000000000000000000000000000")


def test_names_that_are_not_utf_8_are_shown_escaped(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe/f"))
    path.parent.mkdir()
    keys = b"rw=write\nsize=64k\nmax_latency=1ns\ndescription=\xc3(\nfilename=" + os.fsencode(path)
    source = tmp_path / "job.fio"
    source.write_bytes(b"[na\xe9me]\n" + keys + b"\n")
    jobs = lab.JobFile(source)
    assert jobs.names == ["na\\xe9me"]
    result = jobs.run(progress=False, check=False)
    assert result.errors[0][0] == "na\\xe9me"
    assert "\\xff\\xfe/f" in result.errors[0][2]
    assert result.json()["jobs"][0]["jobname"] == "na\\xe9me"
    assert "\\xff\\xfe/f" in result.text()
    assert "Description  : [\\xc3(]" in result.text()
    assert path.exists()


_PRINT = """
import locale, sys
import sampleblk_lab as lab
locale.setlocale(locale.LC_ALL, sys.argv[2])
assert locale.localeconv()["decimal_point"] == ","
result = lab.Job(rw="randrw", size="256k", filename=sys.argv[1], percentile_list="1.5:99.5").run(progress=False)
sys.stdout.write(result.json_text(bins=True) + "\\0" + result.text())
"""


def test_a_locale_with_decimal_commas_changes_nothing(tmp_path: Path) -> None:
    """Compiled here: a machine need not have any."""
    (tmp_path / "locales").mkdir()
    done = subprocess.run(
        ["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "locales" / "de_DE.UTF-8")],
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    if not (tmp_path / "locales" / "de_DE.UTF-8" / "LC_NUMERIC").exists():
        pytest.skip(f"no locale with decimal commas can be made here: {done.stderr.decode()[:200]}")
    done = subprocess.run(
        [sys.executable, "-c", _PRINT, str(tmp_path / "f"), "de_DE.UTF-8"],
        capture_output=True, check=True, timeout=60, env={**os.environ, "LOCPATH": str(tmp_path / "locales")},
    )  # fmt: skip
    written, report = done.stdout.decode().split("\0")
    (job,) = json.loads(written)["jobs"]
    assert set(job["read"]["clat_ns"]["percentile"]) == {"1.500000", "99.500000"}
    assert " 1.50th=[" in report
    assert re.search(r"avg= *\d+\.\d\d, stdev= *\d+\.\d\d", report)
    assert not re.search(r"(avg|stdev|usr|sys)= *\d+,\d", report)
    day, month = written.split('"time" : "')[1].split()[:2]
    assert (day, month) == (day.capitalize(), month.capitalize())
    assert day in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    assert locale.localeconv()["decimal_point"] == "."


def test_long_lines_keep_their_ends(tmp_path: Path) -> None:
    description = "x" * 2000 + "!"
    result = lab.Job(rw="write", size="4k", filename=tmp_path / "f", description=description).run(progress=False)
    assert f"  Description  : [{description}]\n" in result.text()
