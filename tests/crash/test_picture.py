# SPDX-License-Identifier: MIT
"""A crash state as a picture, in a notebook and on a page: each write of the epoch, and what became of it."""

from __future__ import annotations

import base64
import html
import re
import xml.etree.ElementTree as ET
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crash.logs import FLUSH, FUA, MARK, SECTOR, Op, journal, log_writes
from crash.test_states import recordings
from sampleblk_lab import crash
from sampleblk_lab.crash.recording import keep
from sampleblk_lab.crash.timeline import timeline
from sampleblk_lab.plot.style import in_dark
from sampleblk_lab.texts import readable

SVG = "{http://www.w3.org/2000/svg}"
# A mark in which everything is that could break a picture.
HOSTILE = "a <script>alert('&')</script> ]]> \x00\x1b\x7f\u202e\ufffe #0072b2 " + "long " * 10


def _log(folder: Path, data: bytes, **options: bool) -> crash.Log:
    (folder / "log").write_bytes(data)
    return crash.Log(folder / "log", base="zeros", **options)


def _write(submit: int, complete: int, sector: int, sectors: int = 1, **flags: bool) -> Op:
    return Op("write", submit, complete, sector, b"x" * sectors * SECTOR, **flags)


def _titles(svg: str) -> list[str]:
    found = [group.find(f"{SVG}title") for group in ET.fromstring(svg).iter(f"{SVG}g")]
    return [str(title.text) for title in found if title is not None]


def _rows(svg: str) -> dict[int, str]:
    """What is said of each write."""
    found = [re.fullmatch(r"write (\d+): (.*)", title, re.DOTALL) for title in _titles(svg)]
    return {int(match[1]): match[2] for match in found if match}


def _texts(svg: str) -> list[str]:
    return [str(text.text) for text in ET.fromstring(svg).iter(f"{SVG}text")]


# Two epochs: what is before the first flush is durable; of the second one, one write is durable by FUA.
OPS = [
    _write(1, 2, 0),
    Op("flush", 3, 4),
    _write(5, 7, 8, 8),
    _write(6, 10, 16, 4, fua=True),
    Op("mark", 8, 8, data=b"asked for"),
    _write(9, 0, 32, 32),
    Op("flush", 11, 13),
    Op("zeroes", 12, 0, 64, 5),
    _write(14, 0, 80, atomic=True),
]


@pytest.fixture
def log(tmp_path: Path) -> crash.Log:
    return _log(tmp_path, journal(OPS))


def test_each_write_of_the_epoch_is_there_with_what_became_of_it(log: crash.Log) -> None:
    state = log.state(4, lost=[3], torn=[(6, 0, 12)])
    rows = _rows(state.picture())
    assert list(rows) == [3, 4, 6]
    assert rows[3].startswith("lost; 8 sectors at 8; submitted 5, completed 7")
    assert rows[4].startswith("durable, FUA; 4 sectors at 16; submitted 6, completed 10")
    assert rows[6].startswith("torn, 12 of 32 there; 32 sectors at 32; submitted 9, not completed")
    texts = _texts(state.picture())
    assert "crash after write 6, lost: 3, torn: 6 (sectors 0 to 11 there)" in texts
    assert any("1 lost, 1 torn, 1 durable. Not shown: 1 earlier writes." in text for text in texts)
    assert {"lost", "torn, 12 of 32 there", "durable, FUA"} <= set(texts)
    rows = _rows(log.state(6, lost=[6]).picture())
    assert {number: said.split(";")[0] for number, said in rows.items()} == {
        3: "durable",
        4: "durable, FUA",
        6: "lost",
        8: "kept",
        9: "kept, atomic",
    }
    assert "zeroes, 5 sectors at 64" in rows[8]


def test_flushes_marks_and_the_crash_are_where_they_were(log: crash.Log) -> None:
    svg = log.state(5, lost=[3]).picture()
    root = ET.fromstring(svg)
    lines = [line for line in root.iter(f"{SVG}line") if line.get("x1") == line.get("x2")]
    end = max(float(line.get("x1", "")) for line in lines)
    assert all(float(rect.get("x", "0")) <= end for rect in root.iter(f"{SVG}rect") if rect.get("stroke-width"))
    places = {}
    for group in root.iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        line = group.find(f"{SVG}line")
        if title is not None and line is not None and line.get("x1") == line.get("x2"):
            places[str(title.text)] = float(line.get("x1", ""))
    # The second flush was on its way: with it completed, write 3 could not have been lost.
    assert list(places) == ["flush", "flush, not completed when the crash came", "mark asked for"]
    assert places["flush"] < places["mark asked for"] < places["flush, not completed when the crash came"] < end
    assert "mark 'asked for'" in _texts(svg)
    assert "crash" in _texts(svg)


_HYPOTHESIS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_HYPOTHESIS
@given(ops=recordings(), seed=st.integers(1, 9))
def test_what_is_shown_follows_from_the_rules(tmp_path: Path, ops: list[Op], seed: int) -> None:
    """For drawn states of drawn logs: who is there, and that durable is what plain Python calls so."""
    log = _log(tmp_path, journal(ops))
    states = iter(log.states(crash.Sample(seed=seed)))
    for _ in range(5):
        state = next(states)
        seen = timeline(state)
        rows = {row.sequence: row for row in seen.writes if not isinstance(row, Counter)}
        assert {number for number, row in rows.items() if row.fate == "lost"} == set(state.lost)
        torn = {(number, *row.there) for number, row in rows.items() if row.there is not None}
        assert torn == set(state.torn)
        submitted = [log.sequences[write] for write in log.order[: state.submitted]]
        assert seen.before == len(submitted) - len(rows)
        assert [number for number in submitted if number in rows] == list(rows)
        flushes = [op for op in ops if op.kind == "flush" and not op.failed and op.complete]
        for number, row in rows.items():
            op = ops[number - 1]
            flushed = any(op.complete < one.submit and one.complete < seen.crash for one in flushes)
            durable = 0 < op.complete < seen.crash and not op.failed and (op.fua or flushed)
            assert (row.fate == "durable") == durable
            assert op.submit < seen.crash
        for number in set(submitted) - set(rows):
            assert 0 < ops[number - 1].complete < seen.begin
        ET.fromstring(state.picture())


def test_fates_differ_by_more_than_their_colours(tmp_path: Path) -> None:
    """The marks of the four, all of them completed and without FUA, but for what is drawn in which colour and where."""
    ops = [
        Op("flush", 1, 2),
        _write(3, 4, 0),
        _write(5, 9, 1),
        Op("flush", 6, 8),
        _write(7, 10, 2, 2),
        _write(11, 12, 4),
    ]
    svg = _log(tmp_path, journal(ops)).state(4, lost=[3], torn=[(5, 0, 1)]).picture()
    shapes = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        if title is not None and (match := re.match(r"write \d+: (\w+)", str(title.text))):
            shapes[match[1]] = [
                (
                    part.tag.removeprefix(SVG),
                    part.get("height"),
                    part.get("stroke-dasharray"),
                    part.get("fill") == "none",
                )
                for part in group
                if part.tag not in (f"{SVG}text", f"{SVG}title")
            ]
    assert shapes == {
        "durable": [("rect", "4", None, False)],
        "kept": [("rect", "10", None, False)],
        "lost": [("rect", "10", "4 2", True), ("line", None, None, False), ("line", None, None, False)],
        "torn": [("rect", "10", None, True), ("path", None, None, False)],
    }


def test_the_twins_differ_in_their_colours_only(log: crash.Log) -> None:
    state = log.state(5, lost=[3])
    light, dark = state.picture(), state.picture(dark=True)
    assert in_dark(light.lower()) == dark.lower()
    assert light != dark
    for svg in (light, dark):
        root = ET.fromstring(svg)
        # By attributes alone: styles are stripped in many places.
        assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
            *("svg", "g", "title", "rect", "line", "path", "text"),
        }
        assert not any("style" in element.attrib or "class" in element.attrib for element in root.iter())


def _inside(svg: str) -> None:
    root = ET.fromstring(svg)
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    for text in root.iter(f"{SVG}text"):
        assert float(text.get("x", "")) >= 0
        assert float(text.get("x", "")) + 6.7 * len(str(text.text)) <= width + 1, text.text
        assert 0 < float(text.get("y", "")) < height
    for rect in root.iter(f"{SVG}rect"):
        assert float(rect.get("x", "0")) + float(rect.get("width", "")) <= width


def test_hostile_marks_and_names_are_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["inode table, inode 12", "</text><script>\x01", "漢" * 5000]
    monkeypatch.setattr(crash.Log, "names", lambda *_: [(0, 1, name) for name in names])
    log = _log(tmp_path, journal([Op("mark", 1, 1, data=HOSTILE.encode()), _write(2, 3, 0), _write(4, 0, 1)]))
    state = log.state(2, lost=[2])
    for dark in (False, True):
        svg = state.picture(dark=dark)
        _inside(svg)
        assert "<script" not in svg
        assert len(svg) < 20_000
        assert any("mark 'a <script>alert('&')</script>" in text for text in _texts(svg))
        assert any(r"\x00\x1b\x7f\u202e\ufffe #0072b2" in title for title in _titles(svg))
        assert "inode table, inode 12" in _rows(svg)[2]
        assert any(text.startswith("inode table, inode 12; </text><script>\\x01") for text in _texts(svg))
    failure = crash.Failure(state, state, AssertionError("<script>\x00\ud800"), print)
    for text in failure._repr_mimebundle_().values():
        text.encode()
        assert "\x00" not in text
    assert "<script>" not in failure._repr_mimebundle_()["text/html"]
    found = crash.Exploration(states=1, checked=1, failures=[failure], log=log, check=print)
    page = found.report(tmp_path / "page.html").read_text()
    assert "<script>" not in page
    assert r"&lt;script&gt;\x00\ud800" in page


def test_a_mark_that_is_not_utf_8_is_shown_by_its_bytes(tmp_path: Path) -> None:
    log = _log(tmp_path, log_writes((MARK, 0, b"caf\xe9"), (0, 0, b"x" * SECTOR), (FLUSH | FUA, 1, b"y" * SECTOR)))
    assert log.state(2).marks == ["caf\\xe9"]
    assert "mark 'caf\\xe9'" in _texts(log.state(1).picture())


def test_readable_leaves_what_can_be_read() -> None:
    assert readable("a b\tü漢\n", keep="\n") == "a b\\tü漢\n"


@pytest.mark.parametrize("lost", [1, 3, 500])
def test_a_huge_epoch_is_bounded_and_says_so(tmp_path: Path, lost: int) -> None:
    ops: list[Op] = []
    for number in range(3000):
        at = 3 * number + 1
        ops += [_write(at, at + 1, number), Op("mark", at + 2, at + 2, data=b"mark %d" % number)]
    log = _log(tmp_path, journal(ops))
    gone = [1 + 2 * (2999 * number // lost) for number in range(lost)]
    svg = log.state(3000, lost=gone).picture()
    _inside(svg)
    assert len(svg) < 60_000
    rows = _rows(svg)
    assert len(rows) == 40
    assert sum(said.startswith("lost") for said in rows.values()) == min(lost, 40)
    left_out = [re.match(r"(\d+) more writes: (.*)", text) for text in _texts(svg)]
    assert sum(int(match[1]) for match in left_out if match) == 3000 - 40
    texts = " ".join(_texts(svg))
    assert f"{lost} lost, {3000 - lost} kept" in texts
    assert "2988 marks" in texts


def test_many_flushes_that_are_not_believed_are_bounded(tmp_path: Path) -> None:
    ops: list[Op] = []
    for number in range(100):
        at = 4 * number + 1
        ops += [_write(at, at + 1, number), Op("flush", at + 2, at + 3)]
    log = _log(tmp_path, journal(ops), flush=False)
    svg = log.state(100, lost=[1]).picture()
    _inside(svg)
    texts = _texts(svg)
    assert "Flushes are not believed: none of them makes a write durable." in texts
    assert any("Not shown: 84 flushes." in text for text in texts)
    assert sum(title.startswith("flush") for title in _titles(svg)) == 16
    assert not any(said.startswith("durable") for said in _rows(svg).values())


def test_nothing_submitted_and_nothing_missing_have_a_picture(log: crash.Log) -> None:
    svg = log.state(0).picture()
    assert not _rows(svg)
    assert any("no writes" in text for text in _texts(svg))
    rows = _rows(log.state(4).picture())
    assert all(said.startswith(("kept", "durable")) for said in rows.values())
    assert rows


# --- in a notebook and on a page


class _Page(HTMLParser):
    """The elements of a page, with their attributes; what is open must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "img", "source"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def pictures(self) -> list[str]:
        """The SVG documents, in order; nothing comes from elsewhere."""
        found = []
        for tag, attributes in self.found:
            assert tag not in ("script", "link", "iframe")
            for source in (attributes.get("src"), attributes.get("srcset")):
                if source is not None:
                    kind, _, data = source.partition(",")
                    assert kind == "data:image/svg+xml;base64"
                    found.append(base64.b64decode(data).decode())
        return found


def _no_eight(path: Path, state: crash.State) -> None:
    data = path.read_bytes()
    assert state.submitted < 3 or data[8 * SECTOR : 9 * SECTOR] == b"x" * SECTOR, "sector 8 is not there"


def test_a_notebook_gets_head_line_picture_and_table(log: crash.Log) -> None:
    found = log.explore(_no_eight, failures=9)
    assert len(found.failures) > 1
    failure = found.failures[0]
    shown = failure._repr_mimebundle_(include=None, exclude=None)
    assert set(shown) == {"text/html", "image/svg+xml", "text/plain"}
    assert shown["image/svg+xml"] == failure.reduced.picture()
    assert shown["text/plain"] == failure.text()
    page = _Page(shown["text/html"])
    assert page.pictures() == [failure.reduced.picture(dark=True), failure.reduced.picture()]
    assert "style" not in {tag for tag, _ in page.found}
    text = html.unescape(shown["text/html"])
    assert "crash after write 4, lost: 3</b>: AssertionError: sector 8 is not there" in text
    assert "all of it" in text
    table = failure.missing_table()
    assert [(row["write"], row["missing"], row["sectors"], row["at"]) for row in table.rows()] == [
        (3, "all of it", 8, 8),
    ]
    shown = found._repr_mimebundle_()
    assert shown["image/svg+xml"] == failure.reduced.picture()
    assert f"{len(found.failures)} failed" in shown["text/html"]
    assert len(_Page(shown["text/html"]).pictures()) == 2 * min(len(found.failures), 4)
    if len(found.failures) > 4:
        assert f"{len(found.failures) - 4} more failures" in shown["text/html"]


def test_an_exploration_without_failures_says_whether_anything_was_checked(log: crash.Log) -> None:
    passed = log.explore(lambda *_: None)._repr_mimebundle_()
    assert set(passed) == {"text/html", "text/plain"}
    assert passed["text/html"].startswith("<p><b>passed</b>: ")
    assert "all there are: 0 failed" in passed["text/html"]
    assert crash.Exploration()._repr_mimebundle_()["text/html"].startswith("<p><b>nothing was checked</b>")


def test_a_torn_write_says_what_of_it_is_there(log: crash.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash.Log, "names", lambda *_: [(0, 8, "superblock"), (8, 24, "group descriptors")])
    state = log.state(5, torn=[(6, 0, 8)])
    [row] = crash.Failure(state, state, AssertionError(), print).missing_table().rows()
    assert (row["write"], row["missing"], row["what"]) == (6, "all but sectors 0 to 7", "group descriptors")
    assert _rows(state.picture())[6].endswith("; group descriptors")


def test_one_sector_is_one_and_a_long_place_is_not_cut(tmp_path: Path) -> None:
    far = 10**9
    ops = [_write(1, 2, far), Op("zeroes", 3, 4, far + 8, 2048)]
    log = _log(tmp_path, journal(ops))
    state = log.state(2, lost=[1, 2])
    assert [said.split("; ")[1] for said in _rows(state.picture()).values()] == [
        f"1 sector at {far}",
        f"zeroes, 2048 sectors at {far + 8}",
    ]
    assert {f"1 sector at {far}", f"zeroes {far + 8} + 2048"} <= set(_texts(state.picture()))
    missing = crash.Failure(state, state, AssertionError(), print).missing
    assert missing[0].startswith(f"write 1: 1 sector at {far}")


def test_the_page_has_the_facts_and_each_failure(log: crash.Log, tmp_path: Path) -> None:
    found = log.explore(_no_eight, failures=30)
    target = tmp_path / "page.html"
    assert found.report(target, saved=["kept/failure-1"]) == target
    text = target.read_text()
    page = _Page(text)
    assert page.pictures() == [
        failure.reduced.picture(dark=dark) for failure in found.failures[:20] for dark in (False, True)
    ]
    told = html.unescape(text)
    facts = dict(re.findall(r"<tr><th>([^<]*)</th><td>([^<]*)</td></tr>", told))
    assert facts["failed"] == str(len(found.failures))
    assert facts["log"] == f"{log.path} (journal), 6 writes, 2 flushes"
    assert facts["model"] == "Reorder(complete_up_to=8, at_most=2)"
    assert facts["check"] == "_no_eight"
    assert facts["complete"] == "yes, these were all there are"
    assert f"{found.checked} with contents of their own" in facts["checked"]
    assert "per second" in facts["checked"]
    assert "AssertionError: sector 8 is not there" in told
    assert "pytest kept/failure-1" in told
    assert "asked for" in told
    # The program of the page builds the same state.
    program = re.search(r"import sampleblk_lab as lab\n.*?\)\n", told.split("reproduce it</h2>")[1], re.DOTALL)
    names: dict[str, object] = {}
    lines = told.split("reproduce it</h2>")[1].split("<pre tabindex='0'>")[1].split("</pre>")[0].splitlines()
    assert program is not None
    exec("\n".join(lines[2:6]), names)
    state, failed = names["state"], found.failures[0].reduced
    assert isinstance(state, crash.State)
    assert (state.submitted, state.lost, state.torn) == (failed.submitted, failed.lost, failed.torn)
    with pytest.raises(AssertionError, match="sector 8"):
        state.log.check(state, _no_eight)


def test_a_program_has_the_whole_disk_and_a_command_its_folder(tmp_path: Path) -> None:
    (tmp_path / "base.img").write_bytes(bytes(8 * SECTOR))
    (tmp_path / "log").write_bytes(journal([_write(1, 2, 0)]))
    log = crash.Log(tmp_path / "log", base=tmp_path / "base.img", size_bytes=16 * SECTOR)
    state = log.state(1)
    failure = crash.Failure(state, state, AssertionError("\nassert 1 == 2"), print)
    assert failure.command("my runs/failure-1") == "pytest 'my runs/failure-1'"
    found = crash.Exploration(states=3, checked=3, total=3e20, failures=[failure], log=log)
    # A count that is not exact has no more digits than it knows.
    assert found.text().startswith("3 of 3.0e+20 states")
    text = found.report(tmp_path / "page.html").read_text()
    assert f"size_bytes={16 * SECTOR})" in text
    assert "AssertionError: assert 1 == 2" in text
    assert "3 of 3.0e+20 looked at" in text
    keep(log, tmp_path / "kept")
    assert (tmp_path / "kept" / "base.img").stat().st_size == 16 * SECTOR


def test_what_ended_early_was_checked(log: crash.Log) -> None:
    found = crash.Exploration(states=3, checked=3, lost="the VM was lost", log=log)
    assert found._repr_mimebundle_()["text/html"].startswith("<p><b>ended early</b>: ")


def test_fua_that_is_not_believed_is_said(tmp_path: Path) -> None:
    state = _log(tmp_path, journal([_write(1, 2, 0, fua=True), _write(3, 4, 1)]), fua=False).state(2, lost=[1])
    assert "FUA is not believed: it makes no write durable." in _texts(state.picture())


def test_many_failures_are_told_without_pictures(log: crash.Log, tmp_path: Path) -> None:
    state = log.state(5, lost=[3])
    failure = crash.Failure(state, state, ValueError("no"), print)
    found = crash.Exploration(states=60, checked=60, failures=[failure] * 60, log=log)
    text = found.report(tmp_path / "page.html").read_text()
    assert len(_Page(text).pictures()) == 40
    assert "40 more, without pictures" in text
    assert text.count("ValueError: no") >= 60


@pytest.mark.parametrize("states", [None, 0])
def test_a_page_without_failures(log: crash.Log, tmp_path: Path, states: int | None) -> None:
    found = log.explore(lambda *_: None, model=crash.Prefix(), states=states)
    text = found.report(tmp_path / "page.html").read_text()
    assert not _Page(text).pictures()
    assert ("No failure." in text) == (states is None)
    assert ("Nothing was checked." in text) == (states == 0)
    assert ("yes, these were all" in text) == (states is None)
    assert "Prefix()" in text


def test_a_page_of_nothing(tmp_path: Path) -> None:
    assert "Nothing was checked." in crash.Exploration().report(tmp_path / "page.html").read_text()
