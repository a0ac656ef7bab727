# SPDX-License-Identifier: MIT
"""The flame graph as a plain picture: each frame's width is its share, and nothing in it needs a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import sampleblk_lab as lab

SVG = "{http://www.w3.org/2000/svg}"
FOLDED = "fio;main;write;sys_write 60\nfio;main;read 30\nfio;other 9\nsh;exit 1\n"


@pytest.fixture
def stacks(tmp_path: Path) -> lab.Stacks:
    (tmp_path / "stacks").write_text(FOLDED)
    return lab.read_folded(tmp_path / "stacks")


def boxes(svg: str) -> dict[str, tuple[float, float, float]]:
    """x, y and width of each frame, by its name."""
    out = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert rect is not None
        x, y, width = (float(rect.attrib[name]) for name in ("x", "y", "width"))
        out[str(title.text).splitlines()[0]] = (x, y, width + 0.6)
    return out


def test_widths_are_shares_and_children_lie_above_their_parents(stacks: lab.Stacks) -> None:
    found = boxes(stacks.picture(width=1012, min_percent=0))  # 1000 between the margins
    assert {name: round(width) for name, (_, _, width) in found.items()} == {
        "fio": 990,
        "main": 900,
        "write": 600,
        "sys_write": 600,
        "read": 300,
        "other": 90,
        "sh": 10,
        "exit": 10,
    }
    for child, parent in (("main", "fio"), ("write", "main"), ("sys_write", "write"), ("exit", "sh")):
        x, y, width = found[child]
        left, below, wide = found[parent]
        assert left <= x + 0.01
        assert x + width <= left + wide + 0.01
        assert y == below - 18


def test_narrow_frames_are_left_out_and_counted(stacks: lab.Stacks) -> None:
    svg = stacks.picture(min_percent=5)
    assert set(boxes(svg)) == {"fio", "main", "write", "sys_write", "read", "other"}
    assert "100 samples; 1 narrower than 5 % left out" in svg


def test_it_is_drawn_by_attributes_alone(stacks: lab.Stacks) -> None:
    light, dark = stacks.picture(mark="sys_*"), stacks.picture(mark="sys_*", dark=True)
    for svg in (light, dark):
        root = ET.fromstring(svg)
        assert {element.tag.removeprefix(SVG) for element in root.iter()} == {"svg", "rect", "text", "g", "title"}
        assert all(re.fullmatch("#[0-9a-f]{6}", rect.attrib["fill"]) for rect in root.iter(f"{SVG}rect"))
        assert not any("style" in element.attrib or "class" in element.attrib for element in root.iter())
    assert light != dark
    assert light.count("#6cc7a1") == 1


def test_a_difference_has_the_colours_of_change(stacks: lab.Stacks, tmp_path: Path) -> None:
    (tmp_path / "before").write_text("fio;main;write;sys_write 40\nfio;main;read 50\nfio;other 9\nsh;exit 1\n")
    svg = stacks.picture(before=lab.read_folded(tmp_path / "before"))
    said = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert rect is not None
        name, _, change = str(title.text).splitlines()
        red, _, blue = (int(rect.attrib["fill"][at : at + 2], 16) for at in (1, 3, 5))
        said[name] = (change, "more" if red > blue else "less" if blue > red else "same")
    assert said["write"] == ("+20.00 points (40.00 % before)", "more")
    assert said["read"] == ("-20.00 points (50.00 % before)", "less")
    assert said["other"] == ("+0.00 points (9.00 % before)", "same")


def test_names_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "stacks").write_text("a;std::vector<int>::push_back(int const&) 3\n")
    svg = lab.read_folded(tmp_path / "stacks").picture(title="a < b")
    assert "std::vector<int>::push_back(int const&)" in boxes(svg)


def test_below_keeps_what_a_function_called(stacks: lab.Stacks) -> None:
    assert sorted(stacks.below("main").folded().splitlines()) == ["main;read 30", "main;write;sys_write 60"]
    assert stacks.below("read", "exit").total == 31
    with pytest.raises(lab.InputError, match="no stack has nonesuch"):
        stacks.below("nonesuch")


def test_below_a_kernel_function_all_is_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "stacks").write_text("fio;main;sys_write_[k];copy_[k] 3\n")
    below = lab.read_folded(tmp_path / "stacks").below("sys_write")
    kinds = re.findall(r'<svg class="f (\w) [^"]*"[^>]*><title>(\w+)', below.flamegraph().svg)
    assert kinds == [("n", "all"), ("k", "sys_write"), ("k", "copy")]
    assert list(below.functions()["total"]) == [3, 3]
    exported = json.loads(below.export_speedscope(tmp_path / "x.json").read_text())
    names = [frame["name"] for frame in exported["shared"]["frames"]]
    assert [names[frame] for frame in exported["profiles"][0]["samples"][0]] == ["sys_write", "copy"]


def test_what_two_recordings_lost_is_told_together(stacks: lab.Stacks) -> None:
    notes = {"lost_records": "5", "damage_truncated": "1"}
    one = lab.Stacks(stacks.native, "one", notes)
    two = lab.Stacks(stacks.native, "two", {"lost_records": "3"})
    assert (one + two).notes == {"lost_records": "8", "damage_truncated": "1"}
    assert one.notes == notes
    svg = stacks.flamegraph(before=one).svg
    assert "lost_records before: 5" in svg
    assert "lost_records: " not in svg


def test_a_thread_may_have_any_name(tmp_path: Path) -> None:
    names = ["", "a\u2028b", "c\x85d", "e f"]
    (tmp_path / "stacks").write_bytes("".join(f"{name};outer;inner 2\n" for name in names).encode())
    stacks = lab.read_folded(tmp_path / "stacks")
    # Control characters do nothing to a terminal, those of Latin-1 neither.
    shown = [name.replace("\x85", "\\xc2\\x85") for name in names]
    assert stacks.folded() == "".join(f"{name};outer;inner 2\n" for name in shown)
    assert stacks.below("outer").folded() == "outer;inner 8\n"
    assert "8 samples" in stacks.picture()


def test_a_file_of_any_name_has_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b\udcff"
    path.write_text(FOLDED)
    stacks = lab.read_folded(path)
    assert ET.fromstring(stacks.picture()).get("aria-label") == r"a\x1b\udcff"
    for form in stacks._repr_mimebundle_().values():
        form.encode()
    ET.fromstring(stacks.picture(title="\ufffe"))
