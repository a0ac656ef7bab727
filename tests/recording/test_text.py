# SPDX-License-Identifier: MIT
"""Names of a recording that are not UTF-8: the kernel takes any byte in a comm, and a file may be damaged anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sampleblk_lab as lab
from sampleblk_lab import _core

DATA = Path(__file__).parents[1] / "data" / "trace"


def replaced(name: str, *pairs: tuple[bytes, bytes]) -> bytes:
    """A recording with words of it replaced wherever they are."""
    data = (DATA / name).read_bytes()
    for old, new in pairs:
        assert old in data
        assert len(old) == len(new)
        data = data.replace(old, new)
    return data


def all_strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for text in all_strings(pair)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in all_strings(part)]
    return [value] if isinstance(value, str) else []


def test_every_name_comes_out_as_text(tmp_path):
    path = tmp_path / "trace.dat"
    path.write_bytes(
        replaced(
            "6.1-switch.dat",
            (b"ksoftirqd", b"ksoft\xffrqd"),
            (b"sched_switch", b"sched_sw\xfftch"),
            (b"next_comm", b"next\xe9comm"),
            (b"prev_comm=%s", b"prev\xfe\xfe\xfe\xfe\xfe=%s"),
            (b"x86_64", b"x86\xc364"),
        )
    )
    file = _core.TraceFile(str(path))
    assert r"ksoft\xffrqd/1" in file.commands.values()
    assert r"x86\xc364" in file.uname
    assert r"sched:sched_sw\xfftch" in file.events
    event = file.format(r"sched:sched_sw\xfftch")
    assert r"next\xe9comm" in [field["name"] for field in event["fields"]]
    assert r"prev\xfe\xfe" in event["print_format"]
    rest = [file.clock, file.writer, file.buffers, file.losses, file.damage, file.printk_formats, event]
    assert all(text.encode() == text.encode(errors="surrogatepass") for text in all_strings(rest))

    table = lab.open_run(path).events(r"sched_sw\xfftch")
    assert r"ksoft\xffrqd/1" in table[r"next\xe9comm"].values
    arrow = pytest.importorskip("pyarrow").table(table)
    arrow.validate(full=True)
    assert r"ksoft\xffrqd/1" in arrow[r"next\xe9comm"].to_pylist()
    assert any(r"\xff" in str(row) for row in lab.open_run(path).counts().rows())

    _core.write_chrome(file, str(tmp_path / "x.json"))
    assert json.loads((tmp_path / "x.json").read_bytes())
    _core.write_perfetto(file, str(tmp_path / "x.pftrace"))


def test_functions_come_out_as_text(tmp_path):
    path = tmp_path / "trace.dat"
    path.write_bytes(replaced("6.1-graph.dat", (b"vfs_write", b"vfs\xffwrite")))
    file = _core.TraceFile(str(path))
    graph = _core.CallGraph(file)
    assert r"vfs\xffwrite" in graph.text()
    assert r"vfs\xffwrite" in graph.table().column("function").categories


def test_an_error_that_quotes_bytes_is_still_that_error():
    with pytest.raises(lab.FormatError, match=r'version 6 or 7, not "\\xff"'):
        _core.TraceFile.from_bytes(b"\x17\x08Dtracing\xff\0" + bytes(64))
