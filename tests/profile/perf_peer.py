# SPDX-License-Identifier: MIT
"""`perf report`'s totals, ours, and what makes them the same."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import sampleblk_lab as lab

# To perf a caller is what its return address is in, and a call that ends a function is the next one's: so in the
# dynamic linker, of which there is much on a busy machine.
_NEXT_TO = {"_dl_start_user": "_start"}


def perf_report(path: Path, *options: str, perf: str = "perf") -> dict[tuple[str, str], tuple[float, float]]:
    """(command, symbol) -> (children, self), in percent; the sums of perf's rows of one name."""
    text = subprocess.run(
        [
            perf,
            "report",
            "-i",
            str(path),
            "--stdio",
            "-g",
            "none",
            "--no-inline",
            "-s",
            "comm,sym",
            "-t",
            "\t",
            *options,
        ],
        capture_output=True,
        check=True,
        stdin=subprocess.DEVNULL,
    ).stdout.decode(errors="replace")
    return rows_of_report(text)


def rows_of_report(text: str) -> dict[tuple[str, str], tuple[float, float]]:
    """The same of what it printed."""
    rows: dict[tuple[str, str], tuple[float, float]] = {}
    for line in text.splitlines():
        parts = line.split("\t")
        if line.startswith("#") or len(parts) not in (3, 4):
            continue
        shares = [float(part.strip().rstrip("%")) for part in parts[:-2]]
        children, own = shares[0], shares[-1]
        symbol = _without_parameters(re.sub(r"^\[.\] ", "", parts[-1].strip()))
        key = (parts[-2].strip(), symbol if own else _NEXT_TO.get(symbol, symbol))
        before = rows.get(key, (0.0, 0.0))
        rows[key] = (before[0] + children, before[1] + own)
    return rows


def totals(path: Path) -> dict[str, tuple[int, int]] | None:
    """By event: how many samples, and the sum of their periods; events without any are left out.

    None: this perf is too old to read the file.
    """
    command = ["perf", "report", "-i", str(path), "--stdio", "--no-group", "--no-children", "-g", "none", "--no-inline"]
    command += ["-n", "--show-total-period", "-s", "sym", "-t", "\t"]
    done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        return None
    text = done.stdout.decode(errors="replace")
    sums: dict[str, tuple[int, int]] = {}
    event = ""
    for line in text.splitlines():
        if found := re.match(r"# Samples: .* of events? '(.*)'", line):
            event = found[1]
        parts = line.split("\t")
        if not line.startswith("#") and len(parts) == 4:
            before = sums.get(event, (0, 0))
            sums[event] = (before[0] + int(parts[1]), before[1] + int(parts[2]))
    return sums


def _without_parameters(name: str) -> str:
    """A C++ name as perf 6.1 prints it; 6.12 has the parameters behind it."""
    name = name.removesuffix(" const")
    depth = 0
    for at in range(len(name) - 1, 0, -1) if name.endswith(")") else ():
        depth += {")": 1, "(": -1}.get(name[at], 0)
        if depth == 0:
            return name[:at] if name[at:] != "(anonymous namespace)" else name
    return name


def our_report(profile: lab.Profile) -> dict[tuple[str, str], tuple[float, float]]:
    rows: dict[tuple[str, str], tuple[float, float]] = {}
    for row in profile.report().rows():
        key = (str(row["comm"]), str(row["symbol"]))
        before = rows.get(key, (0.0, 0.0))
        rows[key] = (before[0] + float(row["children"]), before[1] + float(row["self"]))
    return rows


def assert_same(
    profile: lab.Profile, theirs: dict[tuple[str, str], tuple[float, float]], *, self_only: bool = False
) -> None:
    ours = our_report(profile)
    if self_only:
        ours = {key: (own, own) for key, (_, own) in ours.items()}
    # Addresses without a name are printed in more ways than one.
    top = sorted((key for key in theirs if not key[1].startswith("0")), key=lambda key: -theirs[key][0])[:50]
    assert len(top) > 10
    # A sample in the end of a thread is of thread -1 to perf, and of the thread to us.
    released = max((both[0] for key, both in theirs.items() if key[0] == ":-1"), default=0.0)
    most = max(0.1, 101 / len(profile), 0.01 + released)
    wrong = {
        key: (theirs[key], ours.get(key))
        for key in top
        if key not in ours or any(abs(a - b) > most for a, b in zip(theirs[key], ours[key], strict=True))
    }
    assert not wrong, wrong
