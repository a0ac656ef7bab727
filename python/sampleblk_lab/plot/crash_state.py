# SPDX-License-Identifier: MIT
"""A crash state as a picture: a row for each write around the crash. Plain SVG, which needs no matplotlib.

It is drawn by attributes alone, so that it looks the same where styles are stripped.
"""

from __future__ import annotations

import html
import math
import unicodedata
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

from sampleblk_lab.plot.style import theme
from sampleblk_lab.texts import counted, readable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sampleblk_lab.crash.timeline import Timeline, Written

FATES = ("lost", "torn", "kept", "durable")

# The left end of the writes' numbers, of the time, of what became of them, and the right end of all; in SVG's pixels.
_LEFT, _BEGIN, _END, _SAID, _RIGHT = 14, 236, 590, 606, 946
_WIDTH = 960
_ROW, _GAP, _LANE = 20, 18, 15
_SIZE = 11
# Of a monospaced font's character, 0.6 em, with something to spare for other fonts.
_CHARACTER = 6.8
# What is told when the mouse is on something.
_TIP = 400


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def _fit(text: str, width: float) -> str:
    """As much of the text as that many pixels hold."""
    room = int(width / _CHARACTER)
    text = readable(text[: room + 1])
    if _columns(text) <= room:
        return text
    while text and _columns(text) > room - 1:
        text = text[:-1]
    return f"{text}…"


def _tip(text: str) -> str:
    shown = readable(text[: _TIP + 1])
    return html.escape(shown if len(shown) <= _TIP else f"{shown[:_TIP]}…")


def draw(timeline: Timeline, *, dark: bool = False) -> str:
    """The SVG document."""
    return _Picture(timeline, dark).svg()


def summary(timeline: Timeline) -> str:
    """How many writes there are of each fate."""
    return _counts(timeline.fates) or "no writes"


def _counts(fates: Counter[str]) -> str:
    return ", ".join(f"{fates[fate]} {fate}" for fate in FATES if fates[fate])


class _Picture:
    def __init__(self, timeline: Timeline, dark: bool) -> None:
        self._timeline = timeline
        colours, (self._ink, self._dim, self._paper, self._grid) = theme(dark=dark)
        self._colours = {"kept": colours[0], "lost": colours[1], "torn": colours[3], "durable": self._dim}
        self._parts: list[str] = []
        orders: set[float] = set()
        for write in timeline.writes:
            if not isinstance(write, Counter):
                orders |= {write.submit, write.complete}
        for flush in timeline.flushes:
            orders |= set(flush)
        orders |= {at for at, _ in timeline.marks}
        # One step for each that is shown, whatever lies between them.
        self._orders = sorted(order for order in orders if timeline.begin <= order < timeline.crash)

    def _x(self, order: float) -> float:
        """Where a submission or completion is; at the ends for those that are before the begin or after the crash."""
        if order < self._timeline.begin:
            return _BEGIN
        if order >= self._timeline.crash or math.isinf(order):
            return _END
        return _BEGIN + (_END - _BEGIN) * (bisect_left(self._orders, order) + 0.5) / (len(self._orders) + 0.5)

    # --- what is drawn

    def _text(self, x: float, y: float, text: str, colour: str = "", *, bold: bool = False, anchor: str = "") -> None:
        weight = ' font-weight="bold"' if bold else ""
        side = f' text-anchor="{anchor}"' if anchor else ""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour or self._ink}"{weight}{side}>{html.escape(text)}</text>'
        )

    def _line(self, x1: float, y1: float, x2: float, y2: float, colour: str, width: float, dashes: str = "") -> None:
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="{width:g}"{dashed}/>'
        )

    def _rect(self, x: float, y: float, width: float, height: float, how: str) -> None:
        self._parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:g}" {how}/>')

    def _path(self, points: Iterable[tuple[float, float]], how: str) -> None:
        drawn = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self._parts.append(f'<path d="M{drawn}" {how}/>')

    def _bar(self, x1: float, x2: float, y: float, fate: str, part: tuple[float, float] = (0, 0.5)) -> None:
        """A write, from its submission to its completion; `part` of a torn one is there."""
        colour = self._colours[fate]
        width = max(x2 - x1, 4)
        if fate == "durable":
            self._rect(x1, y - 2, width, 4, f'fill="{colour}"')
        elif fate == "kept":
            self._rect(x1, y - 5, width, 10, f'fill="{colour}"')
        else:
            dashes = ' stroke-dasharray="4 2"' if fate == "lost" else ""
            self._rect(x1, y - 5, width, 10, f'fill="none" stroke="{colour}" stroke-width="1.5"{dashes}')
        middle = x1 + width / 2
        if fate == "lost":
            for sign in (-1, 1):
                self._line(middle - 4, y - 4 * sign, middle + 4, y + 4 * sign, self._ink, 2)
        if fate == "torn":
            # Its ends are teeth where something is missing.
            left, right = x1 + width * part[0], x1 + width * part[1]
            teeth = (-5, -2.5, 0, 2.5, 5)
            depth = min(2.5, (right - left) / 4)
            start = [(left + (depth * (i % 2) if part[0] > 0 else 0), y + at) for i, at in enumerate(teeth)]
            end = [(right - (depth * (i % 2) if part[1] < 1 else 0), y + at) for i, at in enumerate(teeth)]
            self._path([*start, *reversed(end)], f'fill="{colour}"')

    def _on_its_way(self, x: float, y: float) -> None:
        """An arrow's head: it goes on."""
        self._path([(x - 6, y - 7), (x + 1, y), (x - 6, y + 7)], f'fill="none" stroke="{self._ink}" stroke-width="1.5"')

    def _fua(self, x: float, y: float) -> None:
        points = [(x - 5, y), (x, y - 5), (x + 5, y), (x, y + 5)]
        self._path([*points, points[0]], f'fill="{self._paper}" stroke="{self._ink}" stroke-width="1.5"')

    # --- the parts of the picture

    def svg(self) -> str:
        timeline = self._timeline
        y = self._head(22)
        top = y
        labels, lanes = self._lanes()
        rows = y = top + (1 + lanes) * _LANE + 6
        # Behind all else.
        for write in timeline.writes:
            if isinstance(write, Counter):
                y += _GAP
                continue
            if write.fate in ("lost", "torn"):
                self._rect(_LEFT - 6, y + 1, _RIGHT - _LEFT + 12, _ROW - 2, f'fill="{self._grid}" fill-opacity="0.45"')
            y += _ROW
        bottom = y + 4
        for flush in timeline.flushes:
            self._flush(flush, top + 3, bottom)
        self._labels(labels, top, bottom)
        y = rows
        for write in timeline.writes:
            if isinstance(write, Counter):
                self._left_out(write, y)
                y += _GAP
            else:
                self._row(write, y)
                y += _ROW
        self._line(_END, top + 2, _END, bottom, self._ink, 2.5)
        self._text(_END + 5, top + 11, "crash", bold=True)
        height = self._legend(bottom + 20)
        said = _tip(f"{timeline.title}; {summary(timeline)}")
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}" width="{_WIDTH}" '
            f'height="{height:g}" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{_SIZE}" '
            f'role="img" aria-label="{said}"><title>{said}</title>'
            f'<rect width="{_WIDTH}" height="{height:g}" fill="{self._paper}"/>{"".join(self._parts)}</svg>'
        )

    def _head(self, y: float) -> float:
        timeline = self._timeline
        room = _RIGHT - _LEFT
        self._text(_LEFT, y, _fit(timeline.title, room), bold=True)
        since = "since the log began" if timeline.begin == 0 else "since the flush before them"
        lines = [f"Writes {since}, in the order of submission: {summary(timeline)}."]
        hidden = [
            f"{number} {what}"
            for number, what in (
                (timeline.before, "earlier writes"),
                (timeline.hidden_flushes, "flushes"),
                (timeline.hidden_marks, "marks"),
            )
            if number
        ]
        if hidden:
            lines[0] += f" Not shown: {', '.join(hidden)}."
        if not timeline.flush_believed:
            lines.append("Flushes are not believed: none of them makes a write durable.")
        if not timeline.fua_believed:
            lines.append("FUA is not believed: it makes no write durable.")
        for line in lines:
            y += 16
            self._text(_LEFT, y, _fit(line, room), self._dim)
        return y + 10

    def _lanes(self) -> tuple[list[tuple[str, float, int]], int]:
        """The marks' labels, such that none lies over another: the text, its left end, its lane; and how many lanes."""
        lanes: list[float] = []
        labels = []
        for at, text in self._timeline.marks:
            label = _fit(f"mark '{text}'", _END - _BEGIN - 10)
            width = _columns(label) * _CHARACTER
            left = min(self._x(at) + 4, _END - 6 - width)
            lane = next((i for i, end in enumerate(lanes) if end < left), len(lanes))
            lanes[lane : lane + 1] = [left + width + 6]
            labels.append((label, left, lane))
        return labels, len(lanes)

    def _labels(self, labels: list[tuple[str, float, int]], top: float, bottom: float) -> None:
        """What is written above flushes and marks, and the marks' lines."""
        timeline = self._timeline
        taken = -math.inf
        for submit, _ in timeline.flushes:
            x = self._x(submit) + 4
            width = 5 * _CHARACTER
            # Each has its band; the word is left out where it would lie over the one before.
            if taken < x and x + width < _END:
                self._text(x, top + 11, "flush", self._dim)
                taken = x + width + 4
        for (at, text), (label, left, lane) in zip(timeline.marks, labels, strict=True):
            y = top + _LANE * (lane + 1)
            self._parts.append(f"<g><title>mark {_tip(text)}</title>")
            self._line(self._x(at), y + 2, self._x(at), bottom, self._dim, 1, "1 2")
            self._text(left, y + 11, label)
            self._parts.append("</g>")

    def _flush(self, flush: tuple[float, float], top: float, bottom: float) -> None:
        submit, complete = (self._x(order) for order in flush)
        completed = flush[1] < self._timeline.crash
        end = "" if completed else ", not completed when the crash came"
        self._parts.append(f"<g><title>flush{end}</title>")
        self._rect(submit, top, complete - submit, bottom - top, f'fill="{self._grid}" fill-opacity="0.5"')
        self._line(submit, top, submit, bottom, self._dim, 1.5)
        if completed:
            self._line(complete, top, complete, bottom, self._dim, 1)
        self._parts.append("</g>")

    def _left_out(self, fates: Counter[str], y: float) -> None:
        more = f"{fates.total()} more writes: {_counts(fates)}"
        self._text(_LEFT, y + 13, "⋮", self._dim)
        self._text(_LEFT + 14, y + 13, more, self._dim)

    def _row(self, write: Written, y: float) -> None:
        crash = self._timeline.crash
        middle = y + _ROW / 2
        missing = write.fate in ("lost", "torn")
        said = self._said(write)
        where = f"{counted(write.sectors, 'sector')} at {write.sector}"
        if write.kind == "zeroes":
            where = f"zeroes, {where}"
        names = "; ".join(write.names)
        order = f"submitted {write.submit:.0f}, " + (
            f"completed {write.complete:.0f}" if write.complete < crash else "not completed when the crash came"
        )
        tip = f"write {write.sequence}: {said}; {where}; {order}{f'; {names}' if names else ''}"
        self._parts.append(f"<g><title>{_tip(tip)}</title>")
        self._text(_LEFT, middle + 4, f"{write.sequence}", bold=missing)
        room = _BEGIN - _LEFT - 54
        if len(where) * _CHARACTER > room:  # no number is cut: as blktrace has it
            where = f"{'zeroes ' * (write.kind == 'zeroes')}{write.sector} + {write.sectors}"
        self._text(_LEFT + 50, middle + 4, _fit(where, room), self._ink if missing else self._dim)
        x1, x2 = self._x(write.submit), self._x(write.complete)
        part = (0.0, 0.0)
        if write.there is not None:
            first, count = write.there
            part = first / write.sectors, (first + count) / write.sectors
        self._bar(x1, x2, middle, write.fate, part)
        if write.submit < self._timeline.begin:
            self._on_its_way(_BEGIN, middle)
        if write.complete >= crash:
            self._on_its_way(x2, middle)
        if write.fua:
            self._fua(x2, middle)
        self._text(_SAID, middle + 4, said, bold=missing)
        x = _SAID + (len(said) + 1) * _CHARACTER
        if names:
            self._text(x, middle + 4, _fit(names, _RIGHT - x), self._ink if missing else self._dim)
        self._parts.append("</g>")

    def _said(self, write: Written) -> str:
        said = write.fate
        if write.there is not None:
            said = f"torn, {write.there[1]} of {write.sectors} there"
        flags = [name for name, has in (("FUA", write.fua), ("atomic", write.atomic), ("failed", write.failed)) if has]
        return ", ".join([said, *flags])

    def _legend(self, y: float) -> float:
        x: float = _LEFT
        for fate in FATES:
            self._bar(x, x + 30, y - 4, fate)
            x = self._key(
                x + 36, y, {"torn": "torn: the filled part is there", "durable": "was durable"}.get(fate, fate)
            )
        self._fua(x + 5, y - 4)
        x = self._key(x + 14, y, "FUA")
        self._on_its_way(x + 6, y - 4)
        x = self._key(x + 14, y, "not completed")
        self._rect(x, y - 11, 12, 14, f'fill="{self._grid}" fill-opacity="0.5"')
        self._line(x, y - 11, x, y + 3, self._dim, 1.5)
        self._line(x + 12, y - 11, x + 12, y + 3, self._dim, 1)
        x = self._key(x + 18, y, "flush")
        self._text(
            _LEFT,
            y + 18,
            "From left to right: the order of submissions and completions, not time.",
            self._dim,
        )
        return y + 30

    def _key(self, x: float, y: float, text: str) -> float:
        self._text(x, y, text, self._dim)
        return x + len(text) * _CHARACTER + 18
