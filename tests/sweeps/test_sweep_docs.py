# SPDX-License-Identifier: MIT
"""The blocks of the page about sweeps run, as one program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sampleblk_lab.sweeps import processes

PAGE = Path(__file__).parents[2] / "docs/how-to/sweeps.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
IN_VM = [code for code in BLOCKS if "lab.Device" in code]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    processes.close()


def test_the_blocks_that_need_no_vm_run(capsys: pytest.CaptureFixture[str]) -> None:
    program = "\n".join(code for code in BLOCKS if code not in IN_VM)
    exec(compile(program, PAGE.name, "exec"), {"__name__": "__main__"})
    said = capsys.readouterr().out
    assert "24 of 24 trials done" in said
    assert "engine=libaio against engine=psync" in said
    counts = [int(word) for word in re.findall(r"(\d+) combinations, 1 times each", said)]
    assert counts[0] == 81
    assert counts[1] < 15
    assert all(count < 81 for count in counts[1:])
    assert counts[-1] == 20


@pytest.mark.full
def test_the_block_with_kernels_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = IN_VM
    exec(compile(f"import sampleblk_lab as lab\n{code}", PAGE.name, "exec"), {"__name__": "__main__"})
    assert "kernel=6.12 against kernel=6.1" in capsys.readouterr().out
