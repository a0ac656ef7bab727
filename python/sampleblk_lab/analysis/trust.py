# SPDX-License-Identifier: MIT
"""Whether a recording has all that it was to have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sampleblk_lab.trust import Check, of_losses

if TYPE_CHECKING:
    from sampleblk_lab.analysis.run import Run
    from sampleblk_lab.table import Table


def of_recording(run: Run, counts: Table | None = None) -> list[Check]:
    """What is missing of a trace.dat.

    Args:
        run: It.
        counts: Its :meth:`Run.counts`, where they are known.
    """
    name = run.trace_path.parent.name
    counts = run.counts() if counts is None else counts
    lost, gaps = int(counts.metadata.get("lost_events", "0")), int(counts.metadata.get("gaps", "0"))
    found = [of_losses(f"events lost of {name}", lost)]
    if gaps and not lost:
        told = f"{gaps} places where a CPU's do not go on"
        found.append(Check("lost", f"events of {name}", told, "an unknown number is lost", is_doubt=True))
    here, read = int(counts["count"].codes.sum()), int(run.options.get("read_events", -1))
    gone = run.options.get("gone_events", [])
    clocks = [run.options.get(name) for name in ("clock", "last_clock")]
    changed = None not in clocks and clocks[0] != clocks[1]
    if gone or changed or here > read >= 0:
        # By a module that goes with events of its own, or whoever writes to trace, trace_clock or buffer_size_kb.
        why = f" as the module of {', '.join(gone)} went" if gone else ""
        why += f" as its clock became {clocks[1]}, in which its times are" if changed else ""
        told = f"its buffer was emptied under it{why}"
        found.append(Check("lost", f"events of {name}", told, "an unknown number is lost", is_doubt=True))
    elif here < read:
        told = f"{here} of {read} that the kernel counts"
        found.append(Check("lost", f"events of {name}", told, "incomplete", is_doubt=True))
    if missed := int(run.options.get("missed_probes", 0)):
        found.append(of_losses(f"probes missed of {name}", missed))
    imported = run.options.get("imported", {})
    for told in ("unread_lines", "cut_texts", "cut_off", "gaps"):
        if told in imported:
            what, value = f"imported: {told.replace('_', ' ')}", str(imported[told])
            found.append(Check("lost", what, value, "incomplete", is_doubt=True))
    return found
