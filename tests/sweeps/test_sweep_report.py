# SPDX-License-Identifier: MIT
"""The whole matrix of a sweep as a picture and as a page."""

from __future__ import annotations

import base64
import html
import json
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sampleblk_lab as lab
from sampleblk_lab.plot.matrix import shown
from sampleblk_lab.sweeps import processes

BASE = {"ext4": 10.0, "xfs": 20.0, "btrfs": 400.0}


def measured(fs: str, bs: int, repeat: int) -> dict[str, Any]:
    if fs == "btrfs" and bs == 64:
        raise ValueError("no <such> block size")
    return {"p99_us": BASE[fs] * bs * (1 + 0.001 * ((repeat * 7) % 5)), "rate": 5.0, "said": "text"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.Sweep]:
    yield lab.sweep(measured, fs=list(BASE), bs=[4, 16, 64], repeat=6, folder=tmp_path_factory.mktemp("sweep"))
    processes.close()


def texts(plot: Any) -> list[str]:
    axes = plot.figure().axes[0]
    return [text.get_text() for text in axes.texts]


def test_lines_show_medians_and_ranges(made: lab.Sweep) -> None:
    axes = made.plot("p99_us", axis="bs").figure().axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["4", "16", "64"]
    lines = {container.get_label(): container for container in axes.containers}
    assert list(lines) == ["ext4", "xfs", "btrfs"]
    for fs, count in (("ext4", 3), ("xfs", 3), ("btrfs", 2)):
        y = list(lines[fs].lines[0].get_ydata())
        wanted = [
            statistics.median(measured(fs, bs, repeat)["p99_us"] for repeat in range(6)) for bs in (4, 16, 64)[:count]
        ]
        assert y == pytest.approx(wanted)
        lows = [bottom[1] for bottom, _ in lines[fs].lines[2][0].get_segments()]
        assert lows == pytest.approx([BASE[fs] * bs for bs in (4, 16, 64)[:count]])
    assert axes.get_yscale() == "log"
    assert made.plot("rate", axis="fs").figure().axes[0].get_yscale() == "linear"


def test_many_combinations_are_a_map(tmp_path: Path) -> None:
    def value(a: int, b: int, c: str) -> float:
        return a * 10.0 + b if c == "x" else 0.5

    whole = lab.sweep(value, a=[*range(8)], b=[1, 2, 3], c="x", where=lambda a, b: a != b, folder=tmp_path)
    plot = whole.plot(axis="b")
    axes = plot.figure().axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [str(a) for a in range(8)]  # c has one value
    wanted = [shown("value")(a * 10.0 + b) if a != b else "-" for a in range(8) for b in (1, 2, 3)]
    assert texts(plot) == wanted
    # The axis with the most values is along the bottom unless another is named.
    assert whole.plot().figure().axes[0].get_xlabel() == "a"
    with pytest.raises(lab.InputError, match="'d' is not an axis"):
        whole.plot(axis="d")


def test_what_cannot_be_plotted_says_so(made: lab.Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(lab.InputError, match="metric is not given"):
        made.plot()
    with pytest.raises(lab.InputError, match="'said' is not a column of numbers"):
        made.plot("said")
    nothing = lab.sweep(lambda a: {"x": float("nan")} if a else None, a=[1, 2], folder=tmp_path)
    with pytest.raises(lab.InputError, match="no trial that is done has returned 'x'"):
        nothing.plot("x")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(lab.UnsupportedError, match="matplotlib is not installed"):
        made.plot("rate").figure()
    # The page does without, and says so.
    made.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<img" not in page
    assert "matplotlib is not installed" in page
    assert "Medians" in page


def cells(page: str, heading: str) -> list[list[str]]:
    section = page.partition(f"<h2>{heading}</h2>")[2].partition("</section>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", section.partition("<tbody>")[2])
    return [[html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in rows]


def test_the_page_has_the_whole_matrix(made: lab.Sweep, tmp_path: Path) -> None:
    assert made.report(tmp_path / "page.html") == tmp_path / "page.html"
    page = (tmp_path / "page.html").read_text()
    assert "<title>Sweep of measured</title>" in page
    assert "48 of 54 done" in page
    medians = cells(page, "Medians")
    assert [row[:3] for row in medians] == [
        [fs, str(bs), "0" if (fs, bs) == ("btrfs", 64) else "6"] for fs in BASE for bs in (4, 16, 64)
    ]
    assert medians[0][3:5] == ["40.1 µs", "40 µs to 40.2 µs"]
    pictures = re.findall(r"<img class='plot (\w+)' alt='([^']+)' src='data:image/svg\+xml;base64,([^']+)'", page)
    assert [(theme, alt) for theme, alt, _ in pictures] == [
        (theme, f"Matrix: {name}") for name in ("p99_us", "rate") for theme in ("light", "dark")
    ]
    assert all(b"<svg" in base64.b64decode(data) for _, _, data in pictures)
    along = cells(page, "Along fs: p99_us")
    assert ["slower", "2"] in [row[1:3] for row in along if row[0] == "bs=4 fs=xfs"]
    assert "1 could not be compared" in page.partition("<h2>Along fs: p99_us</h2>")[2].partition("</section>")[0]
    assert cells(page, "Missing")[0][:4] == ["btrfs", "64", "0", "error"]
    assert len(cells(page, "Missing")) == 6
    [host] = cells(page, "Hosts")
    assert host[2:4] == ["48", "0"]
    # Self-contained: nothing is loaded, nothing runs.
    assert "no &lt;such&gt; block size" in page
    assert not re.search(r"<script|<link|https?://(?!www\.w3\.org)", page)
    higher = tmp_path / "higher.html"
    made.report(higher, "p99_us", better="higher")
    assert "faster" in higher.read_text()
    assert "rate" not in higher.read_text().partition("<main>")[0].partition("<nav>")[2]
    with pytest.raises(lab.InputError, match="'none' is not a column of numbers"):
        made.report(higher, "none")


def test_a_page_of_a_sweep_that_has_not_begun(tmp_path: Path) -> None:
    def fails(a: int) -> None:
        raise ValueError(a)

    made = lab.sweep(fails, a=[1, 2], folder=tmp_path / "s")
    page = made.report(tmp_path / "page.html").read_text()
    assert "0 of 2 done" in page
    assert len(cells(page, "Missing")) == 2


def test_settings_that_read_alike_are_lines_of_their_own(tmp_path: Path) -> None:
    made = lab.sweep(lambda x, y: float(y) if x == 1 else y * 100.0, x=[1, "1"], y=[1, 2, 3], folder=tmp_path)
    lines = made.plot(axis="y").figure().axes[0].containers
    assert {line.get_label(): list(line.lines[0].get_ydata()) for line in lines} == {
        "1": [1.0, 2.0, 3.0],
        '"1"': [100.0, 200.0, 300.0],
    }


def test_a_page_of_what_is_called_as_its_columns_are(tmp_path: Path) -> None:
    made = lab.sweep(lambda low, repeats: {"rate": low * repeats}, low=[1, 2], repeats=[3, 4], folder=tmp_path / "s")
    link = tmp_path / "link.html"
    link.symlink_to("page.html")
    (tmp_path / "page.html").touch()
    page = made.report(link).read_text()
    assert link.is_symlink()
    assert [row[:4] for row in cells(page, "Medians")] == [
        [low, repeats, "1", str(int(low) * int(repeats))] for low in "12" for repeats in "34"
    ]
    facts = dict(re.findall("<tr><th>(.*?)</th><td>(.*?)</td></tr>", page))
    assert [facts[name] for name in ("trials", "repeats", "repeats_")] == ["4 of 4 done", "3, 4", "1"]


def one_and_more(repeat: int, **_: Any) -> float:
    return 1.0 + repeat


def test_values_that_read_alike_stay_apart_in_tables_and_comparisons(tmp_path: Path) -> None:
    values = [1, "1", True, "true", None, "None", 1.0, [1], "[1]"]
    made = lab.sweep(one_and_more, x=values, repeat=6, folder=tmp_path / "s")
    told = {json.dumps(value) for value in values if value is not None} | {None}
    assert set(made.table()["x"]) == told
    # As another process has it, and with what is done after the file was written.
    assert set(lab.open_sweep(tmp_path / "s").table()["x"]) == told
    rows = made.compare("x")
    assert len({row.test for row in rows}) == len(values) - 1
    assert len({row[0] for row in cells(made.report(tmp_path / "page.html").read_text(), "Medians")}) == len(values)
    for alike in ([1, 1.0], [2**53, 2**53 + 1, 0.5], [2**53, 2**53 + 1, None]):
        table = lab.sweep(one_and_more, x=alike, folder=tmp_path / "t").table()
        assert set(table["x"]) == {None if value is None else str(value) for value in alike}


def test_a_time_is_told_by_the_end_of_its_name() -> None:
    for name in ("seconds", "run_seconds", "p99_s", "p99_ms", "p99_us", "p99_ns", "run_milliseconds", "nanoseconds"):
        assert shown(name)(1)[-1] == "s", name
    assert shown("run_milliseconds")(5) == shown("run_ms")(5) == shown("run_ns")(5e6)
    for name in ("value", "ops", "bytes_per_s", "MB_s", "mib_s", "iops_s", "reads_per_second", "errors", "us"):
        assert shown(name)(450) == "450", name


@pytest.mark.parametrize("values", [[True, None], [2**53 + 1, None], [2**53 + 1, 0.5], [1, None], [2**64, None]])
def test_every_table_has_the_same_values_of_an_axis(values: list[Any], tmp_path: Path) -> None:
    def failing(x: Any) -> float:
        raise RuntimeError(x)

    def left(x: Any, directory: Path) -> float:
        (directory / "note").write_text(str(x))
        return 1.0

    missing = lab.sweep(failing, x=values, folder=tmp_path / "s").missing()
    made = lab.sweep(left, x=values, folder=tmp_path / "s", revision="r1")
    tables = (missing, made.table(), made.artefacts(), made.history().table())
    assert len({tuple(sorted(map(repr, table["x"]))) for table in tables}) == 1
    made.report(tmp_path / "page.html")


def test_bytes_of_no_encoding_are_shown(tmp_path: Path) -> None:
    """As a file's name may have them."""

    def measured(name: str) -> dict[str, Any]:
        return {"said": name, "value": 1.0} if name == "\udcfe" else {f"\udcff{name}": 1.0}

    made = lab.sweep(measured, name=["\udcfe", "x"], folder=tmp_path / "s")
    assert list(made.table()["name"]) == ["\\udcfe"]
    [row] = made.missing().rows()
    assert "under '\\udcffx', which is not a name" in row["message"]
    assert "\\udcfe" in made.report(tmp_path / "page.html").read_text(encoding="utf-8")


def ranged(low: int) -> dict[str, float]:
    return {"iops": 10.0 * low, "iops, range": 2.0 * low, "repeats done": 3.0 * low}


def test_a_result_may_be_called_as_a_column_of_the_page_is(tmp_path: Path) -> None:
    made = lab.sweep(ranged, low=[1, 2], folder=tmp_path / "s")
    found = cells(made.report(tmp_path / "page.html").read_text(), "Medians")
    assert [[row[place] for place in (0, 1, 2, 4, 6)] for row in found] == [
        ["1", "1", "10", "2", "3"],
        ["2", "1", "20", "4", "6"],
    ]
