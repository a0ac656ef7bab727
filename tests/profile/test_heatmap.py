# SPDX-License-Identifier: MIT
"""Heat maps of samples below the second."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab.profiling.heatmap import HeatMap

MS = 1_000_000


def test_each_sample_is_in_its_second_and_its_part_of_it():
    begin = 5_000 * MS
    times = np.array([0, 10, 20, 999, 1_000, 1_500, 3_020], dtype=np.uint64) * MS + begin
    heat = HeatMap.of(times, 50)
    assert heat.start == begin
    assert heat.counts.shape == (50, 4)
    assert heat.counts.sum() == len(times)
    assert (heat.counts[0, 0], heat.counts[1, 0], heat.counts[49, 0]) == (2, 1, 1)
    assert (heat.counts[0, 1], heat.counts[25, 1], heat.counts[1, 3]) == (1, 1, 1)
    assert heat.counts[:, 2].sum() == 0


def test_a_burst_below_the_second_is_the_darkest_cell():
    # ten samples a second evenly, and a hundred within 20 ms of the second second
    even = np.arange(30) * 100 * MS
    burst = 1_240 * MS + np.arange(100) * MS // 10
    heat = HeatMap.of(np.sort(np.concatenate([even, burst])), 50)
    row, second = np.unravel_index(heat.counts.argmax(), heat.counts.shape)
    assert (int(second), int(row) * 20) == (1, 240)
    root = ET.fromstring(heat.svg())
    cells = {cell[0].text: float(cell.get("fill-opacity")) for cell in root.iter("{http://www.w3.org/2000/svg}rect")}
    assert cells["second 1, 240 ms: 100 samples"] == 1.0
    assert max(value for title, value in cells.items() if title != "second 1, 240 ms: 100 samples") < 0.05
    assert sum(int(re.search(r": (\d+) samples", title)[1]) for title in cells) == 130


def test_nothing_is_an_empty_map():
    heat = HeatMap.of(np.array([], dtype=np.uint64), 50)
    assert heat.counts.shape == (50, 0)
    assert "<svg" in heat.svg()


def test_times_of_a_corrupt_recording_are_refused_not_drawn():
    times = np.array([0, 2**64 - 1], dtype=np.uint64)
    with pytest.raises(lab.UnsupportedError, match="the samples span 18446744073 s"):
        HeatMap.of(times, 50)


def test_a_notebook_gets_a_picture_without_styles_beside_the_one_with_tips():
    heat = HeatMap.of(np.arange(300, dtype=np.uint64) * 10 * MS, 50)
    shown = heat._repr_mimebundle_()
    assert set(shown) == {"text/html", "image/svg+xml", "text/plain"}
    assert "300 samples in 3 s" in shown["text/plain"]
    root = ET.fromstring(shown["image/svg+xml"])
    assert not any("style" in element.tag or "style" in element.attrib for element in root.iter())
    width, height = int(root.get("width")), int(root.get("height"))
    for element in root.iter("{http://www.w3.org/2000/svg}text"):
        assert float(element.get("x")) + 7 * len(element.text) <= width, element.text
        assert float(element.get("y")) <= height
    rest = re.sub("<iframe.*?</iframe>", "", shown["text/html"], flags=re.DOTALL)
    assert "<svg" not in rest
    assert 'src="data:image/svg+xml;base64,' in rest
