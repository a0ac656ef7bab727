# SPDX-License-Identifier: MIT
"""Flame graphs: well-formed, whole without a script, and alive in a real browser."""

from __future__ import annotations

import base64
import html
import re
import shutil
import socket
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import sampleblk_lab as lab

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-headless-shell")
FOLDED = """\
fio;main;write;ksys_write_[k];ext4_file_write_iter_[k] 300
fio;main;write;ksys_write_[k];ext4_file_write_iter_[k];copy_page_[k] 200
fio;main;posix_fadvise;invalidate_mapping_pages_[k] 250
swapper;cpu_idle_[k];halt_[k] 250
"""
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def stacks(tmp_path):
    path = tmp_path / "x.folded"
    path.write_text(FOLDED)
    return lab.read_folded(path)


def test_folded_stacks_add_up(stacks):
    assert stacks.total == 1000
    assert stacks.weight("fio", "main", "write") == 500
    assert stacks.weight("fio", "nowhere") == 0
    assert stacks.functions().row("ext4_file_write_iter")["total_percent"] == 50.0
    assert re.search(r"^ +50\.00 +0\.00 +write$", stacks.tree(), re.M)


def test_every_frame_is_there_without_a_script(stacks):
    root = ET.fromstring(stacks.flamegraph().svg)
    frames = root.find(f"{SVG}g[@class='frames']").findall(f"{SVG}svg")
    titles = {frame.find(f"{SVG}title").text.split("\n")[0]: frame for frame in frames}
    write = titles["write"]
    assert (float(write.get("x")[:-1]), float(write.get("width")[:-1])) == (25.0, 50.0)
    assert write.find(f"{SVG}text").text == "write"
    assert "500 samples, 50.00%" in write.find(f"{SVG}title").text
    # the graph lies upon its root
    assert int(titles["all"].get("y")) > int(write.get("y"))


@pytest.mark.parametrize("difference", [False, True])
def test_colours_stand_without_the_style_too(stacks, tmp_path, difference):
    """Some viewers know no variables in styles, and some pages take styles out: the attributes say the same."""
    other = tmp_path / "other.folded"
    other.write_text(FOLDED.replace("200", "240").replace("250", "252", 1) + "new;[unknown] 90\n")
    after = lab.read_folded(other)
    root = ET.fromstring(after.flamegraph(before=stacks if difference else None).svg)
    style = root.find(f"{SVG}style").text
    light = dict(re.findall(r"--(\w+):(#\w+)", style.partition("@media")[0]))
    variables = dict(re.findall(r"\.(\w+)>rect\{fill:var\(--(\w+)\)", style))
    opacities = dict(re.findall(r"\.([so]\d)>rect\{fill-opacity:([.\d]+)", style))
    assert {"k", "u", "up", "down", "same"} <= set(variables)
    assert len(opacities) == 6
    seen = set()
    for frame in root.find(f"{SVG}g[@class='frames']"):
        _, colour, *shade = frame.get("class").split()
        rect = frame.find(f"{SVG}rect")
        assert rect.get("fill") == light[variables[colour]]
        assert rect.get("fill-opacity") == (opacities.get(shade[0]) if shade else None)
        seen.add((colour, *shade))
    assert len(seen) >= 4, seen
    assert root.find(f"{SVG}rect[@class='bg']").get("fill") == light["bg"]


def test_a_notebook_gets_it_alive_still_and_as_text(stacks):
    """The formats a viewer may choose from, as IPython asks for them."""
    for value in (stacks, stacks.flamegraph()):
        shown = value._repr_mimebundle_(include=None, exclude=None)
        assert set(shown) == {"text/html", "image/svg+xml", "text/plain"}
        live = re.search(r'<iframe srcdoc="([^"]*)"', shown["text/html"])
        assert live is not None
        assert "<script>" in html.unescape(live[1])
        assert "ext4_file_write_iter" in html.unescape(live[1])
        # Without its frame, what is left of the HTML is the still picture, which the bundle has, too.
        rest = re.sub("<iframe.*?</iframe>", "", shown["text/html"], flags=re.DOTALL)
        data = re.search(r'<img src="data:image/svg\+xml;base64,([^"]+)" alt="flame graph: x.folded"', rest)
        assert data is not None
        assert base64.b64decode(data[1]).decode() == shown["image/svg+xml"]
        assert {element.tag.removeprefix(SVG) for element in ET.fromstring(shown["image/svg+xml"]).iter()} == {
            *("svg", "g", "title", "rect", "text"),
        }
        assert "ext4_file_write_iter" in shown["image/svg+xml"]
        assert "ext4_file_write_iter" in shown["text/plain"]


def test_a_graph_that_only_its_svg_is_known_of_has_a_still_picture(stacks):
    graph = type(stacks.flamegraph())(stacks.flamegraph().svg)
    still = ET.fromstring(graph.picture())
    assert not {"style", "script"} & {element.tag.removeprefix(SVG) for element in still.iter()}
    assert still.get("width") == "960"
    assert len(still.find(f"{SVG}g[@class='frames']")) == 12  # each frame, and all


def test_a_deep_stack_does_not_fill_a_notebook(tmp_path):
    path = tmp_path / "deep.folded"
    path.write_text("p;" + ";".join(f"f{i}" for i in range(200)) + " 1\np;wide 999\n")

    def shown(graph: lab.profiling.FlameGraph) -> str:
        return graph._repr_mimebundle_()["text/html"]

    graph = lab.read_folded(path).flamegraph()
    assert graph.height > 3000
    assert "height:720px" in shown(graph)
    # it begins at its roots, which a tall graph has at its head
    assert 'data-inverted=""' in graph.svg
    assert "scrollTo" not in shown(graph)
    assert "scrollTo" in shown(lab.read_folded(path).flamegraph(inverted=False))


def test_nothing_of_the_head_is_off_a_phones_screen(stacks, tmp_path):
    """Without a script, all that is beside the frames begins in the left 250 pixels."""
    path = tmp_path / "before.folded"
    path.write_text("fio;main;gone 5\nfio;main;write;ksys_write_[k] 5\n")
    root = ET.fromstring(stacks.flamegraph(before=lab.read_folded(path)).svg)
    texts = [text for text in root.iter(f"{SVG}text") if text.get("class")]
    assert any((text.text or "").startswith("only before: gone 50.00%") for text in texts)
    assert all(float(text.get("x")) < 250 for text in texts)
    # and the frames are in percent of whatever there is
    frames = root.find(f"{SVG}g[@class='frames']").findall(f"{SVG}svg")
    assert all(frame.get("x").endswith("%") and frame.get("width").endswith("%") for frame in frames)
    lowest = max(float(text.get("y")) for text in texts)
    assert min(float(frame.get("y")) for frame in frames) > lowest


def test_a_difference_says_what_grew(stacks, tmp_path):
    path = tmp_path / "before.folded"
    path.write_text("fio;main;write;ksys_write_[k] 1\nfio;main;posix_fadvise;invalidate_mapping_pages_[k] 3\n")
    svg = stacks.flamegraph(before=lab.read_folded(path)).svg
    assert "+25.00 points (25.00% before)" in svg
    assert "-50.00 points (75.00% before)" in svg


# Drives the graph as a user would, and writes what it found into the page.
DRIVER = """
<script>
var log = [], root = document.querySelector(".sblk-flame");
window.addEventListener("error", function (e) { log.push("error: " + e.message); });
function frame(name) {
    return Array.from(root.querySelectorAll(".f")).find(
        e => e.querySelector("title").textContent.split("\\n")[0] === name);
}
function key(k) { root.dispatchEvent(new KeyboardEvent("keydown", {key: k, bubbles: true, cancelable: true})); }
function width(name) { return frame(name).style.display === "none" ? "hidden" : frame(name).getAttribute("width"); }
window.addEventListener("load", function () {
    log.push("ready " + root.hasAttribute("data-ready"));
    frame("write").querySelector("rect").dispatchEvent(new MouseEvent("click", {bubbles: true}));
    log.push("zoomed " + root.getAttribute("data-zoomed") + " " + width("write") + " " + width("copy_page") + " " +
             width("swapper"));
    key("Escape");
    log.push("reset " + width("write") + " " + width("swapper"));
    var input = root.querySelector("input");
    input.value = "ext4|halt";
    input.dispatchEvent(new Event("input", {bubbles: true}));
    log.push("matched " + root.getAttribute("data-matched") + " " + root.querySelectorAll(".hit").length);
    input.value = "";
    input.dispatchEvent(new Event("input", {bubbles: true}));
    log.push("cleared " + root.querySelectorAll(".hit").length);
    key("ArrowUp"); key("ArrowUp"); key("Enter");
    log.push("keys " + root.getAttribute("data-zoomed"));
    document.body.insertAdjacentHTML("beforeend", "<pre id=log></pre>");
    document.getElementById("log").textContent = log.join("\\n");
});
</script>
"""


def in_chromium(tmp_path: Path, *options: str) -> str:
    assert CHROMIUM is not None
    return subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/browser", *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout


@pytest.mark.full
@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium")
def test_zoom_search_and_keys_work_in_a_browser(stacks, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><body>{stacks.flamegraph().svg}{DRIVER}")
    dom = in_chromium(tmp_path, "--virtual-time-budget=5000", "--dump-dom", page.as_uri())
    found = re.search(r'<pre id="log">(.*?)</pre>', dom, re.S)
    assert found, dom[-2000:]
    assert html.unescape(found[1]).split("\n") == [
        "ready true",
        "zoomed write 100% 40% hidden",
        "reset 50% 25%",
        "matched 75.0000 2",
        "cleared 0",
        "keys main",
    ]


@pytest.mark.full
@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium")
def test_a_bare_svg_is_drawn(stacks, tmp_path):
    picture = stacks.flamegraph().save(tmp_path / "x.svg")
    shot = tmp_path / "shot.png"
    in_chromium(tmp_path, f"--screenshot={shot}", "--window-size=800,400", picture.as_uri())
    assert shot.stat().st_size > 5000


SHOWN_LATE = """
<script>
var root = document.querySelector(".sblk-flame"), log = [];
function labels() { return Array.from(root.querySelectorAll(".f > text")).map(e => e.textContent).join(" "); }
document.addEventListener("DOMContentLoaded", function () {
    log.push(labels());
    document.getElementById("later").style.display = "";
    setTimeout(function () {
        log.push(labels());
        document.body.insertAdjacentHTML("beforeend", "<pre id=log></pre>");
        document.getElementById("log").textContent = log.join("\\n");
    }, 1000);
});
</script>
"""


@pytest.mark.full
@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium")
def test_what_is_shown_later_has_its_labels(stacks, tmp_path):
    """A notebook lays its output out after the script has run: until then it has no width."""
    page = tmp_path / "page.html"
    graph = f'<div id="later" style="display:none;width:500px">{stacks.flamegraph().svg}</div>'
    # Sizes are told of with a frame, to which a clock that is not the real one may not come: this page loads for long.
    with socket.create_server(("127.0.0.1", 0)) as server:
        picture = f"<img src=http://127.0.0.1:{server.getsockname()[1]}/>"
        page.write_text(f"<!doctype html><meta charset=utf-8><body>{graph}{SHOWN_LATE}{picture}")
        dom = in_chromium(tmp_path, "--timeout=4000", "--dump-dom", page.as_uri())
    found = re.search(r'<pre id="log">(.*?)</pre>', dom, re.S)
    assert found, dom[-2000:]
    before, after = html.unescape(found[1]).split("\n")
    assert "write" in before.split()
    assert "ext4_file_write_iter" in before.split()
    assert "write" in after.split()
    assert any(label.endswith("…") for label in after.split()), "cut to the width that it has now"


def test_counts_that_would_be_read_as_others_are_refused(tmp_path):
    path = tmp_path / "stacks.folded"
    path.write_text("main;read 12.000\nmain;write 3\n")
    assert lab.read_folded(path).total == 15
    for text in ("main;read 0.7\n", "main;read 12 14\nmain;write 3 1\n", "main;read 12 14.5\n"):
        path.write_text(text)
        with pytest.raises(lab.InputError, match="outer;inner 12"):
            lab.read_folded(path)
    # A number that only some names end in is theirs.
    path.write_text("main;read 12\nmain;thread 7 3\n")
    assert lab.read_folded(path).total == 15
