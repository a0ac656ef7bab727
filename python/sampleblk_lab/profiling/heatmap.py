# SPDX-License-Identifier: MIT
"""Samples over time, below the second: what a flame graph cannot show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab.errors import UnsupportedError
from sampleblk_lab.profiling.pictured import bundle

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

_CELL = 8  # pixels
_SECOND = 1_000_000_000
_MOST_SECONDS = 86_400  # a column each


class HeatMap:
    """Counts by second and part of the second.

    Args:
        counts: Shape ``(rows, seconds)``; row 0 is the beginning of each second.
        start: The first second's beginning, ns of the recording's clock.
    """

    def __init__(self, counts: NDArray[np.int64], start: int) -> None:
        self.counts = counts
        self.start = start

    @classmethod
    def of(cls, times: NDArray[Any], rows: int) -> HeatMap:
        """From times in ns, shape ``(samples,)``, in order."""
        if len(times) == 0:
            return cls(np.zeros((rows, 0), dtype=np.int64), 0)
        start = int(times[0])
        if (span := (int(times[-1]) - start) // _SECOND) >= _MOST_SECONDS:
            raise UnsupportedError(
                "a heat map",
                f"the samples span {span} s, and it has a column per second",
                "start= and stop= select a part",
            )
        after = times.astype(np.int64) - start
        seconds = int(after[-1]) // _SECOND + 1
        cells = (after % _SECOND * rows // _SECOND) * seconds + after // _SECOND
        counts = np.bincount(cells, minlength=rows * seconds).reshape(rows, seconds)
        return cls(counts.astype(np.int64), start)

    def svg(self) -> str:
        """The picture: one SVG, darker where there are more samples; each cell says its numbers when hovered."""
        rows, seconds = self.counts.shape
        most = max(int(self.counts.max(initial=0)), 1)
        width, height = seconds * _CELL, rows * _CELL
        full = max(width + 60, 140)
        cells = [
            f'<rect x="{second * _CELL}" y="{(rows - 1 - row) * _CELL}" width="{_CELL}" height="{_CELL}" '
            f'fill-opacity="{self.counts[row, second] / most:.3f}"><title>second {second}, '
            f"{row * 1000 // rows} ms: {self.counts[row, second]} samples</title></rect>"
            for row, second in zip(*np.nonzero(self.counts), strict=True)
        ]
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {full} {height + 24}" width="{full}" '
            f'height="{height + 24}" font-family="monospace" font-size="11" role="img" aria-label="{self!r}">'
            f'<g transform="translate(52 2)" fill="#d9480f">{"".join(cells)}</g><g fill="#777777">'
            f'<text x="2" y="12">999 ms</text><text x="2" y="{height}">0 ms</text>'
            f'<text x="52" y="{height + 18}">0 s</text>'
            f'<text x="{max(width, 100)}" y="{height + 18}">{seconds} s</text></g></svg>'
        )

    def save(self, path: str | PathLike[str]) -> Path:
        """Writes the SVG to a file. Raises OSError."""
        target = Path(path)
        target.write_text(self.svg())
        return target

    def __repr__(self) -> str:
        return f"HeatMap: {int(self.counts.sum())} samples in {self.counts.shape[1]} s"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        svg = self.svg()
        page = f'<!doctype html><meta charset="utf-8"><body style="margin:0;background:#fff">{svg}'
        height = self.counts.shape[0] * _CELL + 24 + 16  # and what scrolls sideways
        return bundle(page, svg, title=repr(self), height=height, text=repr(self))
