# SPDX-License-Identifier: MIT
"""The picture of what of a file is cached."""

from __future__ import annotations

import mmap

import pytest

pytest.importorskip("drgn")
from sampleblk_lab.inspect import PageCache

PAGE = mmap.PAGESIZE


def test_a_file_with_holes_has_no_row_for_each_of_their_pages() -> None:
    size = 2**47 * PAGE + 5
    cache = PageCache(size, {1: frozenset(), 2**40: frozenset({"dirty"})})
    assert str(cache).splitlines() == [
        f"2 of {2**47 + 1} pages cached, 1 dirty (# cached, D dirty, . not cached)",
        f"{0:#12x} .#{'.' * 62}",
        f"{64 * PAGE:#12x} nothing cached up to {2**40 * PAGE:#x}",
        f"{2**40 * PAGE:#12x} D{'.' * 63}",
        f"{(2**40 + 64) * PAGE:#12x} nothing cached up to {(2**47 + 1) * PAGE:#x}",
    ]


def test_a_single_row_without_a_page_is_drawn() -> None:
    assert str(PageCache(3 * PAGE, {})).splitlines()[1:] == [f"{0:#12x} ..."]
