# SPDX-License-Identifier: MIT
"""What the ``measure`` fixture gives a test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sampleblk_lab import results
from sampleblk_lab.errors import InputError
from sampleblk_lab.results import store
from sampleblk_lab.results.comparison import NAMES
from sampleblk_lab.results.repeat import measure_variants

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pytest


class Measure:
    """The measurements of one test."""

    def __init__(self) -> None:
        self._done: list[results.Measurement] = []
        self._both: list[results.Comparison] = []
        self._plans: list[dict[str, Any]] = []

    def __call__(
        self, function: Callable[[], Any], *, name: str = "", unit: str = "ns", better: str = "lower", **plan: Any
    ) -> results.Measurement:
        """See :func:`sampleblk_lab.results.measure`."""
        self._check_new(name, "measure(name={!r})", "another name=")
        found = results.measure(function, name=name, unit=unit, better=better, **plan)
        self._done.append(found)
        self._plans.append({"name": name, **plan})
        return found

    def both(
        self,
        before: Callable[[], Any],
        after: Callable[[], Any],
        *,
        names: Sequence[str] = NAMES,
        unit: str = "ns",
        better: str = "lower",
        **plan: Any,
    ) -> results.Comparison:
        """See :func:`sampleblk_lab.results.measure_both`; each variant is also stored under its name."""
        for name in names:
            self._check_new(name, f"measure.both(names={tuple(names)!r}): {{!r}}", "other names=")
        found, *variants = measure_variants(before, after, names=names, unit=unit, better=better, **plan)
        self._both.append(found)
        self._done += variants
        self._plans.append({"both": list(names), **plan})
        return found

    def _check_new(self, name: str, call: str, expected: str) -> None:
        if any(done.name == name for done in self._done):
            raise InputError(f"{call.format(name)} is this test's second of that name", expected=expected)

    def write(self, folder: Path, item: pytest.Item) -> None:
        """Writes the test's run directory, if it measured anything."""
        if not self._done:
            return
        marks = [mark.kwargs for mark in item.iter_markers("sampleblk")]
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        # Paths below it are the same ones in another checkout.
        here = f"{item.config.rootpath}/"
        spec = {
            "marks": marks,
            "parameters": {name: repr(value).replace(here, "") for name, value in parameters.items()},
            "measure": self._plans,
        }
        store.write(folder, item.nodeid, spec, [done.to_json() for done in self._done])
        if self._both:
            said = [
                {
                    "names": c.names,
                    "verdict": c.verdict,
                    "before": c.before,
                    "after": c.after,
                    "unit": c.unit,
                    "text": c.text(),
                }
                for c in self._both
            ]
            (folder / "comparisons.json").write_text(json.dumps(said, indent=1) + "\n")
        for done in self._done:
            item.user_properties.append((f"sampleblk_{done.name or 'measured'}", repr(done)))
        for both in self._both:
            item.user_properties.append(("sampleblk_compared", both.text().splitlines()[0]))
