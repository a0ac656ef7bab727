# SPDX-License-Identifier: MIT
"""The outline of one call and the page, on a recording of 2016 (function_graph of write(2))."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab.report.outline import CallOutline
from sampleblk_lab.report.page import Page
from sampleblk_lab.table import Table

RECORDED = Path(__file__).parents[1] / "data/lktm/funcgraph_write_fs_seq_write_sync_001.log"


@pytest.fixture(scope="module")
def calls() -> Table:
    return lab.read_funcgraph(RECORDED).table()


def roots(table: Table) -> list[int]:
    return np.flatnonzero(table["parent"].values == -1).tolist()


class _Balanced(HTMLParser):
    """Fails on an element that is closed where another is open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def balanced(text: str) -> bool:
    parser = _Balanced()
    parser.feed(text)
    parser.close()
    return not parser.open


def test_the_path_is_shown_in_full_and_the_rest_summed_up(calls: Table) -> None:
    outline = CallOutline(calls, roots(calls)[0], "ext4_da_write_begin*", {"vfs_write": "vmlinux"})
    path = re.findall(r"→ (\S+)", outline.text())
    assert path[:2] == ["SyS_write", "vfs_write"]
    assert path[-1] == "ext4_da_write_begin"
    assert "vfs_write [vmlinux]" in outline.text()
    assert outline.target_calls == 1
    beside = re.findall(r"(\d+) more  × (\d+)", outline.text())
    assert all(int(calls_) >= int(functions) for functions, calls_ in beside)


def test_its_calls_are_those_below_its_root_only(calls: Table) -> None:
    starts = [*roots(calls), len(calls)]
    for begin, end in pairwise(starts):
        assert CallOutline(calls, begin, "nothing_has_this_name").calls == end - begin


def test_without_a_hit_the_outline_is_the_root_and_its_children(calls: Table) -> None:
    outline = CallOutline(calls, roots(calls)[0], "nothing_has_this_name")
    assert outline.target_calls == 0
    assert re.findall(r"→ (\S+)", outline.text()) == ["SyS_write"]


def test_names_are_escaped_and_elements_nest(calls: Table) -> None:
    page = Page("<title>", "a & b")
    page.add_facts("Facts", {"<k>": "<v>"})
    page.add_text("Text", "1 < 2 </pre>")
    page.add_table("Table <x>", calls, bar="duration", names={"duration": "<took>"})
    page.add_outline("Calls", CallOutline(calls, roots(calls)[0], "ext4_da_write_begin*"))
    page.add_files("Files", [("<path>", "what & why")])
    text = page.html()
    assert balanced(text)
    for raw in ("<title></title>", "<k>", "<v>", "2 </pre>", "<x>", "<took>", "<path>"):
        assert raw not in text
    assert text.count("<section ") == text.count("href='#s") == 5
    assert "http" not in re.sub(r"http-equiv", "", text), "the page is to need nothing from elsewhere"


def test_the_longest_bar_fills_its_cell(calls: Table) -> None:
    page = Page("Bars")
    page.add_table("Durations", calls, bar="duration")
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", page.html())]
    assert max(widths) == 100.0
    assert len(widths) == int((calls["duration"].values > 0).sum())


def test_in_a_notebook_an_outline_styles_nothing_but_itself(calls: Table) -> None:
    shown = CallOutline(calls, roots(calls)[0], "ext4_da_write_begin*")._repr_html_()
    [style] = re.findall("<style>(.*?)</style>", shown, re.DOTALL)
    rules = re.findall(r"^\s*([^@/}\s][^{;}]*)\{", style, re.MULTILINE)
    assert rules
    assert all(rule.startswith(".calls") for rule in rules)
    assert balanced(shown)
