# SPDX-License-Identifier: MIT
"""Plots draw what the tables say, in a style that colour-blind readers can use, light and dark."""

import itertools
import re
import struct
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab import plot
from sampleblk_lab.analysis.block import Block
from sampleblk_lab.analysis.offsets import Offsets
from sampleblk_lab.plot import style
from sampleblk_lab.plot.matrix import matrix

pytest.importorskip("matplotlib")
TRACES = Path(__file__).parents[1] / "data/trace"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> lab.Result:
    path = tmp_path_factory.mktemp("job") / "file"
    return lab.Job(
        rw="randrw", bs="4k", size="1M", runtime="350ms", time_based=1, filename=path, ioengine="psync", rate_iops=2000
    ).run(progress=False)


@pytest.fixture(scope="module")
def offsets() -> Offsets:
    return lab.open_run(TRACES / "6.1-syscalls.dat").offsets()


@pytest.fixture(scope="module")
def block() -> Block:
    n = 12
    queued = 1000 * np.arange(1, n + 1, dtype=np.uint64)
    columns = {
        "device": ["259,0"] * n,
        "operation": ["W"] * n,
        "queued": queued,
        "gotten": queued,
        "inserted": np.where(np.arange(n) % 2, queued + 100, 0).astype(np.uint64),
        "issued": queued + 500,
        "completed": queued + 2600,
    }
    return Block(lab.Table.of(columns))


Makers = dict[str, Callable[[], plot.Plot]]


@pytest.fixture
def makers(result: lab.Result, offsets: Offsets, block: Block) -> Makers:
    fast, slow = [1.0, 1.01, 1.02] * 4, [1.1, 1.11, 1.12] * 4
    return {
        "latency_percentiles": lambda: plot.latency_percentiles({"one": result, "two": result}),
        "latency_cdf": lambda: plot.latency_cdf(result, direction="read"),
        "latency_heatmap": lambda: plot.latency_heatmap(result, "write"),
        "offset_heatmap": lambda: plot.offset_heatmap(offsets),
        "bandwidth": lambda: plot.bandwidth(result),
        "block_life": lambda: plot.block_life(block),
        "queue_depth": lambda: plot.queue_depth(block),
        "comparison": lambda: plot.comparison({"a": lab.compare(fast, slow), "b": lab.compare(fast, fast)}),
    }


NAMES = sorted(set(plot.__all__) - {"Plot"})


@pytest.mark.parametrize("name", NAMES)
def test_a_light_plot_recoloured_is_the_dark_one(makers: Makers, name: str) -> None:
    """But for the names that matplotlib makes up from colours, and what is drawn in neither."""

    def drawn(svg: str) -> str:
        return re.sub(r'(?:id="|url\(#|href="#)[^")]+', "", svg)

    made = makers[name]()
    dark = made.svg(dark=True)
    assert drawn(style.in_dark(made.svg())) == drawn(dark)
    assert drawn(made.svg()) != drawn(dark)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dark", [False, True])
def test_draws_with_labels(makers: Makers, name: str, dark: bool) -> None:
    made = makers[name]()
    axes = made.figure(dark=dark).axes[0]
    assert axes.get_title(loc="left")
    assert axes.get_xlabel()
    assert axes.get_ylabel() or name == "comparison"
    picture = made._repr_png_()
    width, height = struct.unpack(">II", picture[16:24])
    assert width > 700
    assert height > 200
    ET.fromstring(made.svg(dark=dark))


def test_names_are_shown_as_they_are(result: lab.Result) -> None:
    """Not as matplotlib's mathematics, nor as what a legend leaves out; and what no SVG can have is replaced."""
    pair = lab.compare([1.0, 1.01] * 4, [1.1, 1.11] * 4)
    named = ["_old", "$HOME and $\\no$", "a\x1b\udcff"]
    shown = [" _old", "$HOME and $\\no$", r"a\x1b\udcff"]
    for made in (
        plot.latency_percentiles(dict.fromkeys(named, result)),
        plot.latency_cdf(dict.fromkeys(named, result)),
        plot.comparison(dict.fromkeys(named, pair)),
        matrix({name: [[1.0], [2.0]] for name in named}, ["$a$b$", "c"], metric="_m", axis="of", rest="rows"),
        matrix(
            {f"{name}{at}": [[2.0], [200.0]] for at in range(3) for name in named},
            named[:2],
            metric="m",
            axis="x",
            rest="y",
        ),
    ):
        axes = made.figure().axes[0]
        legend = axes.get_legend()
        texts = legend.get_texts() if legend is not None else axes.get_yticklabels()
        assert [text.get_text() for text in texts][:3] == shown or legend is None
        ET.fromstring(made.svg())


def test_files_are_the_same_each_time(makers: Makers, tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        makers["queue_depth"]().save(tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    makers["queue_depth"]().save(tmp_path / "d.svg", dark=True)
    assert (tmp_path / "a.svg").read_bytes() != (tmp_path / "d.svg").read_bytes()


@pytest.mark.parametrize("name", ["", "plot"])
def test_a_file_without_a_suffix_is_no_other_file(name: str, makers: Makers, tmp_path: Path) -> None:
    """matplotlib appends .png."""
    path = tmp_path / name if name else ""
    with pytest.raises(lab.InputError, match=r"expected a name that ends in \.png"):
        makers["queue_depth"]().save(path)
    assert list(tmp_path.iterdir()) == []


def test_the_distribution_is_the_histogram_s(result: lab.Result) -> None:
    ends, share = plot.latency.distribution(result)
    assert share[-1] == pytest.approx(1)
    assert (np.diff(ends) > 0).all()
    middle = ends[np.searchsorted(share, 0.5)]
    assert middle == pytest.approx(result.percentiles([50])[0], rel=0.03)


class _Measured:
    """Of a result only its tables."""

    def __init__(self, **columns: list[int]) -> None:
        rows = len(next(iter(columns.values())))
        words = {"job": ["a"] * rows, "direction": ["read"] * rows, "kind": ["clat"] * rows}
        numbers = {name: np.array(values, dtype=np.uint64) for name, values in columns.items()}
        self._table = lab.Table.of({**words, **numbers})

    def histogram(self) -> lab.Table:
        return self._table

    def series(self) -> lab.Table:
        return self._table


def test_a_percentile_is_read_off_the_curve() -> None:
    rng = np.random.default_rng(7)
    for bins in (1, 2, 3, 7):
        low = np.sort(rng.choice(np.arange(100, 90_000, 997), bins, replace=False))
        counts = rng.integers(1, 300, bins)
        made = plot.latency_percentiles(
            _Measured(latency=low.tolist(), width=[1] * bins, count=counts.tolist())  # type: ignore[arg-type]
        )
        [line] = made.figure().axes[0].get_lines()
        places, heights = (np.asarray(data) for data in line.get_data())
        assert line.get_drawstyle() == "steps-pre"
        assert places[0] == 0
        samples = np.repeat(low + 1, counts)
        for percent in (1, 25, 50, 75, 90, 95):
            place = -np.log10(1 - percent / 100)
            if place < places[-1]:
                expected = np.percentile(samples, percent, method="inverted_cdf")
                assert heights[np.searchsorted(places, place - 1e-12)] == expected, (low, counts, percent)


def test_the_throughput_of_jobs_adds_up() -> None:
    """Their slots end a little after each other."""
    begin, end = [0, 100, 0, 103], [100, 201, 103, 190]
    series = _Measured(begin=begin, end=end, bandwidth=[1000, 1000, 500, 500], group=[0] * 4)
    [line] = plot.bandwidth(series).figure().axes[0].get_lines()  # type: ignore[arg-type]
    places, rates = (np.asarray(data) for data in line.get_data())
    assert line.get_drawstyle() == "steps-pre"
    assert [rates[np.searchsorted(places, at)] for at in (50, 102, 150, 189, 195)] == [1500, 1500, 1500, 1500, 1000]


def test_a_long_call_moved_its_bytes_in_all_its_time() -> None:
    class Recorded:
        def table(self) -> lab.Table:
            numbers = {"time": [1000, 61_000], "duration": [60_000, 60_000], "size": [120_000, 60_000]}
            columns = {name: np.array(values, dtype=np.uint64) for name, values in numbers.items()}
            return lab.Table.of({**columns, "operation": ["read"] * 2}, units={"time": "ns"})

    [line] = plot.bandwidth(Recorded()).figure().axes[0].get_lines()  # type: ignore[arg-type]
    places, rates = (np.asarray(data) for data in line.get_data())
    assert [rates[np.searchsorted(places, at)] for at in (30_000, 59_000, 61_000, 119_000)] == pytest.approx(
        [2e9, 2e9, 1e9, 1e9]
    )


def test_the_throughput_of_jobs_that_ran_one_after_the_other_does_not(tmp_path: Path) -> None:
    each = "rw=read\nbs=4k\nsize=256k\ntime_based=1\nruntime=250ms\nstonewall=1\n"
    text = f"[global]\ndirectory={tmp_path}\n[a]\nrate_iops=400\n{each}[b]\nrate_iops=800\n{each}"
    jobs = lab.JobFile.parse(text).run(progress=False)
    axes = plot.bandwidth(jobs).figure().axes[0]
    assert [line.get_label() for line in axes.get_lines()] == ["read, group 0", "read, group 1"]
    for line, number in zip(axes.get_lines(), jobs.summary()["bytes"].codes.tolist(), strict=True):
        places, rates = (np.asarray(data) for data in line.get_data())
        assert (np.diff(places) * rates[1:]).sum() / 1e9 == pytest.approx(number)


def test_the_slots_of_a_heat_map_are_those_of_one_job(tmp_path: Path) -> None:
    job = {"rw": "randread", "bs": "4k", "size": "256k", "runtime": "250ms", "time_based": 1, "rate_iops": 400}
    jobs = lab.Job(**job, numjobs=3, directory=tmp_path, ioengine="psync", norandommap=1).run(progress=False)
    ends, edges, cells = jobs.heatmap("read", bins=48)
    assert cells.sum() == jobs.summary()["ios"].codes.sum()
    assert len(ends) <= 4
    assert cells.sum(axis=0)[0] > 120  # of three jobs, each with 80 in 200 ms
    [mesh] = plot.latency_heatmap(jobs).figure().axes[0].collections
    assert np.asarray(mesh.get_array()).sum() == cells.sum()
    assert mesh.get_coordinates()[0, :, 0].tolist() == [0, *ends]
    assert mesh.get_coordinates()[:, 0, 1].tolist() == edges.tolist()


@pytest.mark.parametrize(("low", "high"), [(20_000, 80_000), (20_000, 21_000), (1000, 1001), (9000, 11_000), (5, 5e8)])
def test_an_axis_of_latencies_says_where_it_is(low: float, high: float) -> None:
    """Also within one decade, and with as many digits as tell its labels apart."""
    made = plot.latency_percentiles(
        _Measured(latency=[int(low), int(high)], width=[0, 0], count=[5, 5])  # type: ignore[arg-type]
    )
    figure = made.figure()
    figure.draw_without_rendering()
    axis = figure.axes[0].yaxis
    bottom, top = sorted(axis.get_view_interval())
    units = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
    told = []
    for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True):
        if bottom <= place <= top:
            number, unit = label.get_text().split()
            assert float(number) * units[unit] == pytest.approx(place, rel=1e-3)
            told.append(label.get_text())
    assert len(set(told)) == len(told) >= 3


def test_a_ratio_of_which_nothing_is_known_touches_the_line() -> None:
    unknown = lab.compare(
        [1000.001, 1000.002, 1000.003, 1000.001, 1000.002, 500.0], [2000.0 + n / 1000 for n in range(6)]
    )
    assert unknown.ratio.high == float("inf")
    figure = plot.comparison({"a": unknown, "b": lab.compare([1.0, 1.1] * 3, [2.0, 2.1] * 3)}).figure()
    [(low, high), (second, _)] = [
        segment[:, 0] for line in figure.axes[0].collections for segment in line.get_segments()
    ]
    assert low < 1 < second < high < 10
    assert "to inf: no difference shown" in [text.get_text() for text in figure.axes[0].texts]


def _inside(made: plot.Plot) -> list[tuple[str, Any, Any]]:
    """The labels beside and below a plot with the boxes that they have, and that of the picture."""
    figure = made.figure()
    figure.draw_without_rendering()
    axes = figure.axes[0]
    shown = [*axes.get_yticklabels(), *axes.get_xticklabels()]
    return [(text.get_text(), text.get_window_extent(), figure.bbox) for text in shown if text.get_text()]


@pytest.mark.parametrize("size", [20, 70, 200])
def test_no_label_is_cut_and_names_that_differ_are_told_apart(size: int) -> None:
    pair = lab.compare([1.0, 1.01] * 4, [1.1, 1.11] * 4)
    names = [f"tests/test_a.py::test_{'x' * size}{number}_{'y' * size}[ext4-4k]" for number in range(8)]
    cells = [[[1.0], [2.0]]] * len(names)
    for made in (
        plot.comparison(dict.fromkeys(names, pair)),
        matrix(dict(zip(names, cells, strict=True)), names[:2], metric="m", axis="of", rest="rows"),
        matrix(dict(zip(names[:3], cells, strict=False)), names[:2], metric="m", axis="of", rest="rows"),
    ):
        told = _inside(made)
        for text, box, whole in told:
            assert whole.x0 <= box.x0, text
            assert whole.y0 <= box.y0, text
        beside = [text for text, _, _ in told if "ext4" in text]
        assert len(set(beside)) == len(names) if len(beside) > 2 else len(set(beside)) == 2


@pytest.mark.parametrize("rows", [3, 8])
def test_values_and_names_of_many_columns_do_not_lie_over_each_other(rows: int) -> None:
    names = [f"bs={number}k,iodepth={number}" for number in range(40)]
    row = [[1234.0 + number] for number in range(40)]
    made = matrix(dict.fromkeys(map(str, range(rows)), row), names, metric="m", axis="of", rest="rows")
    figure = made.figure()
    figure.draw_without_rendering()
    axes = figure.axes[0]
    for texts in (axes.get_xticklabels(), axes.texts[:40]):
        boxes = [text.get_window_extent() for text in texts]
        assert all(left.x1 <= right.x0 for left, right in itertools.pairwise(boxes))


def test_a_large_ratio_does_not_press_the_others_to_the_line() -> None:
    by = {
        f"{ratio}": lab.compare([1.0, 1.001] * 3, [ratio, ratio * 1.001] * 3) for ratio in (0.7, 1.3, 10_000.0, 0.001)
    }
    figure = plot.comparison(by).figure()
    figure.draw_without_rendering()
    axes = figure.axes[0]
    places = [axes.transData.transform((ratio, 0))[0] for ratio in (0.001, 0.7, 1.0, 1.3, 10_000.0)]
    assert all(right - left > 3 for left, right in itertools.pairwise(places))
    ticks = [text for text in axes.get_xticklabels() if text.get_text()]
    assert "1" in [text.get_text() for text in ticks]
    boxes = [text.get_window_extent() for text in ticks]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_a_comparison_says_how_sure_each_is() -> None:
    sure = [lab.compare([1.0, 1.1] * 3, [2.0, 2.1] * 3, confidence=each) for each in (0.98, 0.9)]
    made = plot.comparison({"a": sure[0], "b": sure[1]})
    assert made.figure().axes[0].get_xlabel() == "after / before, 98% and 90% intervals"


def test_the_bars_are_the_requests(block: Block) -> None:
    axes = plot.block_life(block, most=5).figure().axes[0]
    assert "the first 5 of 12" in axes.get_title(loc="left")
    bars = [patch for patch in axes.patches if patch.get_width() > 0]
    ends = {bar.get_x() + bar.get_width() for bar in bars}
    assert max(ends) == pytest.approx(2600)
    assert len(bars) == 5 * 2 + 2  # two of the five waited in the scheduler


def _requests(count: int) -> Block:
    """Of one device, that are issued one after the other and take their own time."""
    rng = np.random.default_rng(7)
    issued = np.cumsum(rng.integers(1, 1000, count)).astype(np.uint64)
    whole = np.uint64(1_000_000)
    nowhere = np.zeros(count, dtype=np.uint64)
    columns = dict.fromkeys(("queued", "gotten", "inserted"), nowhere)
    columns |= {
        "issued": issued + whole,
        "completed": issued + whole + rng.integers(1, 20_000, count).astype(np.uint64),
    }
    return Block(lab.Table.of({"device": ["8,0"] * count, "operation": ["R"] * count, **columns}))


def test_the_depth_of_many_requests_is_drawn_as_it_was_and_in_little_time() -> None:
    """From what the picture has, the deepest and the least deep of each of its parts are those of all requests."""
    block = _requests(150_000)
    begin = time.perf_counter()
    made = plot.queue_depth(block)
    [line] = made.figure().axes[0].lines
    assert len(made.svg()) < 1_000_000
    assert time.perf_counter() - begin < 20
    table = block.queue_depth()
    moments = table["time"].codes.astype(np.int64)
    moments -= moments[0]
    depths = dict(zip(moments.tolist(), table["depth"].codes.tolist(), strict=True))
    drawn = np.array(line.get_xydata())
    assert {depths[int(moment)] for moment, _ in drawn[[0, -1]]} == {depths[0], depths[moments[-1]]}
    for part in range(0, 100, 7):
        low, high = (int(moments[-1]) * each // 100 for each in (part, part + 1))
        every = table["depth"].codes[(moments >= low) & (moments < high)]
        seen = drawn[(drawn[:, 0] >= low) & (drawn[:, 0] < high), 1]
        assert (seen.min(), seen.max()) == (every.min(), every.max())


def test_requests_that_are_not_drawn_are_counted(block: Block) -> None:
    columns = {name: block.table()[name].codes.copy() for name in ("queued", "inserted", "issued", "completed")}
    columns["completed"][3:5] = 0
    title = plot.block_life(Block(lab.Table.of(columns)), most=4).figure().axes[0].get_title(loc="left")
    assert "the first 4 of 10" in title
    assert "left out: 2 that" in title


def test_nothing_to_draw_is_said(block: Block) -> None:
    empty = lab.Table.of(
        {name: block.table()[name].codes[:0] for name in ("queued", "inserted", "issued", "completed")}
    )
    with pytest.raises(lab.InputError, match=r"record\(block=True\)"):
        plot.block_life(Block(empty))


def _linear(part: str) -> np.ndarray:
    """Linear RGB of #rrggbb (IEC 61966-2-1)."""
    values = np.array([int(part[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


# Full deuteranopia and protanopia: Machado, Oliveira and Fernandes 2009, IEEE TVCG 15(6), table 1, severity 1.0.
_DEFICIENCIES = {
    "none": np.eye(3),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}


@pytest.mark.parametrize("seen_by", sorted(_DEFICIENCIES))
@pytest.mark.parametrize("theme", ["_LIGHT", "_DARK"])
def test_the_first_three_colours_are_told_apart(theme: str, seen_by: str) -> None:
    colours = getattr(style, theme)[:3]
    for first, second in itertools.combinations(colours, 2):
        a, b = (np.clip(_DEFICIENCIES[seen_by] @ _linear(colour), 0, 1) ** (1 / 2.2) for colour in (first, second))
        assert np.abs(a - b).max() > 0.15, (first, second)


@pytest.mark.parametrize(("theme", "paper"), [("_LIGHT", "#FFFFFF"), ("_DARK", "#12161C")])
def test_lines_stand_out_from_the_paper(theme: str, paper: str) -> None:
    """WCAG 2.1, 1.4.11: graphics have a contrast of 3 to 1 at least."""
    weights = np.array([0.2126, 0.7152, 0.0722])
    ground = float(weights @ _linear(paper))
    for colour in getattr(style, theme):
        ink = float(weights @ _linear(colour))
        high, low = max(ink, ground), min(ink, ground)
        assert (high + 0.05) / (low + 0.05) >= 3.0, colour


def test_durations_and_amounts_read_well() -> None:
    assert [style.duration(v) for v in (850, 1500, 2e7, 3e9)] == ["850 ns", "1.5 µs", "20 ms", "3 s"]
    assert [style.amount(v) for v in (512, 4096, 1.5 * 2**20)] == ["512 B", "4 KiB", "1.5 MiB"]
    assert [style.duration(v) for v in (1234e9, 999.6)] == ["1234 s", "1 µs"]
    assert style.amount(20 * 2**40) == "20 TiB"
