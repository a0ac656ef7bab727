# SPDX-License-Identifier: MIT
"""Draws the README's flame graph, light and dark, of a stored recording of the article's job."""

from __future__ import annotations

from pathlib import Path

import sampleblk_lab as lab

ROOT = Path(__file__).resolve().parents[1]
RECORDING = ROOT / "tests/data/profile/6.12-ours"
TITLE = "Where the kernel's time goes: two jobs write a 2 MiB file on ext4, then POSIX_FADV_DONTNEED (Linux 6.12)"


def draw(*, dark: bool) -> str:
    """The picture's SVG."""
    profile = lab.open_profile(f"{RECORDING}.data", kallsyms=f"{RECORDING}.kallsyms")
    return profile.stacks().below("do_syscall_64").picture(title=TITLE, min_percent=0.8, mark="sampleblk_*", dark=dark)


if __name__ == "__main__":
    folder = ROOT / "docs/images"
    folder.mkdir(exist_ok=True)
    for theme in ("light", "dark"):
        (folder / f"flame-{theme}.svg").write_text(draw(dark=theme == "dark"))
