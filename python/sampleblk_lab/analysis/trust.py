# SPDX-License-Identifier: MIT
"""Whether a recording has all that it was to have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sampleblk_lab.trust import Check, of_losses

if TYPE_CHECKING:
    from sampleblk_lab.analysis.run import Run


def of_recording(run: Run, *, lost: int | None = None) -> list[Check]:
    """What is missing of a trace.dat.

    Args:
        run: It.
        lost: How many events were lost; None: they are counted.
    """
    name = run.trace_path.parent.name
    lost = int(run.counts().metadata.get("lost_events", "0")) if lost is None else lost
    found = [of_losses(f"events lost of {name}", lost)]
    if missed := int(run.options.get("missed_probes", 0)):
        found.append(of_losses(f"probes missed of {name}", missed))
    imported = run.options.get("imported", {})
    for told in ("unread_lines", "cut_texts", "cut_off"):
        if told in imported:
            what, value = f"imported: {told.replace('_', ' ')}", str(imported[told])
            found.append(Check("lost", what, value, "incomplete", is_doubt=True))
    return found
