# SPDX-License-Identifier: MIT
"""One look for all plots, light and dark, that colour-blind readers can use.

The colours are Okabe and Ito's ("Color Universal Design", 2008), lightened for the dark theme; lines differ in their
dashes too, and maps go from dark to light (cividis), so that nothing hangs on hue alone.
"""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.texts import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LIGHT = ("#0072B2", "#D55E00", "#009E73", "#8B5FA8", "#B07800", "#3A9AD9")
_DARK = ("#56B4E9", "#FF9D5C", "#3ED6A5", "#E29BC5", "#F0E442", "#A8C8FF")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)), (0, (8, 3)), (0, (3, 1, 1, 1, 1, 1)))

# Text, axes, background, grid.
_LIGHT_PAGE = ("#1C2430", "#5D6877", "#FFFFFF", "#D7DDE5")
_DARK_PAGE = ("#E3E8EF", "#98A3B3", "#12161C", "#313A47")

_INCHES = (7.2, 4.0)
_DPI = 120


def theme(*, dark: bool = False) -> tuple[tuple[str, ...], tuple[str, str, str, str]]:
    """The colours of what is drawn, and those of text, axes, background and grid."""
    return (_DARK, _DARK_PAGE) if dark else (_LIGHT, _LIGHT_PAGE)


def in_dark(svg: str) -> str:
    """A plot's SVG document of the light theme in the dark one's colours: drawing it again takes far longer."""
    by = {a.lower(): b.lower() for a, b in zip((*_LIGHT, *_LIGHT_PAGE), (*_DARK, *_DARK_PAGE), strict=True)}
    return re.sub(r"#[0-9a-f]{6}\b", lambda found: by.get(found[0], found[0]), svg)


def _rc(dark: bool) -> Any:
    from cycler import cycler

    colours, (ink, dim, paper, line) = theme(dark=dark)
    return {
        "axes.axisbelow": True,
        "axes.edgecolor": dim,
        "axes.facecolor": paper,
        "axes.grid": True,
        "axes.labelcolor": ink,
        "axes.prop_cycle": cycler(color=colours, linestyle=DASHES),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlecolor": ink,
        "axes.titlelocation": "left",
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "figure.constrained_layout.use": True,
        "figure.dpi": _DPI,
        "figure.facecolor": paper,
        "font.family": ["DejaVu Sans"],
        "font.size": 9.5,
        "grid.color": line,
        "grid.linewidth": 0.6,
        "image.cmap": "cividis",
        "legend.frameon": False,
        "lines.linewidth": 1.8,
        "savefig.facecolor": paper,
        "svg.hashsalt": "sampleblk",
        "text.color": ink,
        "text.parse_math": False,  # a name may have dollars
        "xtick.color": dim,
        "xtick.labelcolor": ink,
        "ytick.color": dim,
        "ytick.labelcolor": ink,
    }


class Plot:
    """A plot that is drawn when it is looked at: in a notebook, in a file, or on axes of one's own.

    Args:
        draw: Draws it on axes.
        size: Width and height in inches.
    """

    def __init__(self, draw: Callable[[Axes], None], size: tuple[float, float] = _INCHES) -> None:
        self._draw = draw
        self._size = size

    def draw(self, axes: Axes) -> None:
        """Draws it on axes of one's own, in whatever style those have."""
        self._draw(axes)

    def figure(self, *, dark: bool = False) -> Figure:
        """A new matplotlib figure of it, in our style.

        Raises:
            UnsupportedError: matplotlib is not installed.
        """
        try:
            import matplotlib as mpl
            from matplotlib.figure import Figure
        except ImportError:
            raise UnsupportedError(
                "plots", "matplotlib is not installed", "pip install 'sampleblk-lab[plot]'"
            ) from None
        with mpl.rc_context(_rc(dark)):
            made = Figure(figsize=self._size)
            self._draw(made.subplots())
        return made

    def save(self, path: str | os.PathLike[str], *, dark: bool = False) -> None:
        """Writes it to a file; its suffix says as what: png, svg, pdf. Raises InputError where it has none."""
        if not Path(path).suffix:
            # matplotlib would append .png, also to nothing.
            raise InputError(
                f"the file of a plot {os.fspath(path)!r}", expected="a name that ends in .png, .svg or .pdf"
            )
        self._write(os.fspath(path), dark)

    def _write(self, target: Any, dark: bool, kind: str | None = None) -> None:
        figure = self.figure(dark=dark)
        import matplotlib as mpl

        # A date in the file would make each run of a notebook differ from the last.
        metadata = {"Date": None} if kind == "svg" or str(target).endswith(".svg") else None
        with mpl.rc_context(_rc(dark)):
            figure.savefig(target, format=kind, metadata=metadata)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self._write(buffer, False, "png")
        return buffer.getvalue()

    def svg(self, *, dark: bool = False) -> str:
        """As an SVG document."""
        buffer = io.StringIO()
        self._write(buffer, dark, "svg")
        return buffer.getvalue()

    def __repr__(self) -> str:
        return "<Plot>"


def label(name: str) -> str:
    """A user's name for something, as matplotlib and SVG can have it: a legend leaves out what begins with "_"."""
    text = readable(name)
    return f" {text}" if text.startswith("_") else text


# Characters of a label: of more, nothing of the plot itself would be left.
_LABEL = 42
# What one of them takes, in inches.
CHARACTER = 0.082


def labels(names: Iterable[str]) -> list[str]:
    """The same of several, without the middle of what is too long; they still differ where the names do."""
    whole = [label(name) for name in names]
    head = _LABEL // 3
    cut = [one if len(one) <= _LABEL else f"{one[:head]}…{one[head + 1 - _LABEL :]}" for one in whole]
    differ: dict[str, set[str]] = {}
    for short, one in zip(cut, whole, strict=True):
        differ.setdefault(short, set()).add(one)
    numbers = {one: number for number, one in enumerate(dict.fromkeys(whole), 1)}
    return [
        short if len(differ[short]) == 1 else f"{numbers[one]}: {short}" for short, one in zip(cut, whole, strict=True)
    ]


def room_below(names: Sequence[str], width: float = _INCHES[0]) -> float:
    """Inches that labels below a plot take more than a line: they are upright where they would touch."""
    longest = max((len(name) for name in labels(names)), default=0)
    return 0.0 if (longest + 1) * CHARACTER * len(names) <= width - 0.8 else longest * CHARACTER


def columns_axis(axes: Axes, names: Sequence[str], *, upright: bool) -> None:
    """Names the places from 0 on below a plot."""
    axes.set_xticks(range(len(names)), labels(names), rotation=90 if upright else 0)


def time_axis(axis: Any, *, base_ns: float = 1.0, what: str = "", unit: str = "ns") -> None:
    """Labels an axis of nanoseconds (times `base_ns`) with the fitting unit; to be called last, when all is drawn.

    Times in another `unit`, the ticks of a clock of which nothing says how long they are, stay numbers.
    """
    from matplotlib.ticker import AutoLocator, LogLocator

    if unit not in ("ns", ""):
        axis.set_label_text(f"{what} ({unit})")
        return
    if axis.get_scale() == "log":
        # Of a range within a decade the powers of ten would label one place, or none.
        low, high = axis.get_view_interval()
        if high < 100 * low:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high > 6 * low else AutoLocator())
        axis.set_minor_formatter("")
    _label(axis, lambda value, digits: duration(value * base_ns, digits))
    if what:
        axis.set_label_text(what)


def _label(axis: Any, write: Callable[[float, int], str], least: int = 3) -> None:
    """Labels the places of an axis with as many digits as it takes to say where they are and to tell them apart."""
    from matplotlib.ticker import FuncFormatter

    class Labels(FuncFormatter):
        def format_ticks(self, values: Any) -> list[str]:
            exact = [write(value, 16) for value in values]
            for digits in range(least, 16):
                labels = [write(value, digits) for value in values]
                if len(set(labels)) == len(set(values)) and all(map(_reads_as, labels, exact)):
                    return labels
            return exact

    axis.set_major_formatter(Labels(lambda value, _: write(value, least)))


def _reads_as(label: str, exact: str) -> bool:
    read, true = (float(text.split()[0]) for text in (label, exact))
    return abs(read - true) <= 1e-3 * abs(true)


def duration(nanoseconds: float, digits: int = 3) -> str:
    """A short form: 850 ns, 1.5 µs, 20 ms."""
    if nanoseconds == 0:
        return "0"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(nanoseconds) >= size * 0.9995:
            return f"{_plain(nanoseconds / size, digits)} {unit}"
    return f"{_plain(nanoseconds, digits)} ns"


def amount(size_bytes: float, digits: int = 4) -> str:
    """A short form: 512 B, 4 KiB, 1.5 MiB."""
    if size_bytes == 0:
        return "0"
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(size_bytes) >= size:
            return f"{_plain(size_bytes / size, digits)} {unit}"
    return f"{_plain(size_bytes, digits)} B"


def _plain(value: float, digits: int) -> str:
    """So many digits, and all those before the point: no 1e+03."""
    return f"{value:.{digits}g}" if abs(value) < 10**digits - 0.5 else f"{value:.0f}"


def bytes_axis(axis: Any, what: str = "") -> None:
    """Labels an axis of bytes, at round binary places."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 4, 8], integer=True))
    low, high = axis.get_view_interval()
    step = 2.0 ** max(0, round(_log2(max(high - low, 1) / 5)))
    axis.set_ticks([step * n for n in range(int(low // step), int(high // step) + 1) if low <= step * n <= high])
    _label(axis, amount, 4)
    if what:
        axis.set_label_text(what)


def _log2(value: float) -> float:
    import math

    return math.log2(value)
