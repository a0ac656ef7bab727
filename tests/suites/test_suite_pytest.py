# SPDX-License-Identifier: MIT
"""Tests of a suite as tests of pytest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sampleblk_lab.paths import cache_root
from support import QUICK

pytestmark = pytest.mark.usefixtures("suite_packages")

PAGE = Path(__file__).parents[2] / "docs/how-to/peer-suites.md"


@pytest.fixture(autouse=True)
def _caches_stay(monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> None:
    """pytester has a home of its own; kernels stay where they are."""
    del pytester
    for name in ("SAMPLEBLK_XFSTESTS", "SAMPLEBLK_BLKTESTS", "SAMPLEBLK_BUILT_XFSTESTS", "SAMPLEBLK_BUILT_BLKTESTS"):
        monkeypatch.delenv(name, raising=False)


# Before pytester changes the home.
CACHE = cache_root()


def test_the_page_s_tests_run_as_the_suite_says(
    pytester: pytest.Pytester, miniature: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(CACHE))
    monkeypatch.setenv("SAMPLEBLK_XFSTESTS", str(miniature))
    [block] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    failing = '@pytest.mark.xfstests("generic/002")\ndef test_failing(suite_test):\n    suite_test()\n'
    forgot = '@pytest.mark.xfstests("generic/002")\ndef test_forgot(suite_test):\n    assert suite_test\n'
    pytester.makepyfile(f"{block}\n\n{failing}\n\n{forgot}")
    result = pytester.runpytest_subprocess("-v", "-rs", *QUICK, "--sblk-kernel", "6.1", timeout=300)
    result.assert_outcomes(passed=1, skipped=2, failed=2)
    result.stdout.fnmatch_lines_random(
        [
            "*test_suites?generic/001? PASSED*",
            "*test_suites?generic/003? SKIPPED*",
            "*test_suites?blktests? SKIPPED*",
            "*test_failing?generic/002? FAILED*",
            "*::test_forgot?generic/002?: the test of the suite was not run: call suite_test()",
            "*generic/003: nothing for this test*",
            "*SAMPLEBLK_BLKTESTS names no checkout of blktests*",
            "generic/002 failed: output mismatch (see 002.out.bad)",
        ]
    )
    [bad] = (pytester.path / "runs").rglob("002.out.bad")
    assert bad.read_text() == "wrong\n"


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ('xfstests("generic/999")', "no test is named 'generic/999'"),
        ('xfstests("generic/001", fs="ntfs")', "--fs 'ntfs' (expected ext2"),
        ('xfstests("generic/001", filesystem="ext4")', "has no 'filesystem'; there are group, without, fs"),
        ('xfstests("generic/001", group="quik")', "no test is in group 'quik'"),
        ('xfstests("generic/001", group=5)', "group 5 (expected a string, or a list of them)"),
        ('xfstests("generic/001", without={1})', "without {1} (expected a string, or a list of them)"),
        ('xfstests("generic/001", capacity=None)', "'None' is not a size"),
        ('xfstests("generic/001", device="nullblk")', "device 'nullblk' (expected sampleblk, brd, null_blk)"),
        ('xfstests("generic/001", mode="rq")', "mode 'rq' (expected mq, bio)"),
        ('xfstests("generic/001", device="brd", mode="bio")', "mode bio of brd (expected device sampleblk)"),
        ("xfstests(7)", "tests (7,) (expected a string, or a list of them)"),
        ('xfstests("generic/001", without="generic")', "without='generic') leaves no test of those that it names"),
    ],
)
def test_a_mark_that_means_nothing_is_told(
    mark: str, said: str, pytester: pytest.Pytester, miniature: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not cache.exists()
    monkeypatch.setenv("SAMPLEBLK_XFSTESTS", str(miniature))
    pytester.makepyfile(f"import pytest\n\n@pytest.mark.{mark}\ndef test_suite(suite_test):\n    suite_test()\n")
    result = pytester.runpytest_subprocess(*QUICK, "--collect-only", timeout=60)
    assert result.ret != 0
    result.stdout.fnmatch_lines([f"*{said}*"])


def test_a_test_that_runs_on_several_things_is_named_with_them(
    pytester: pytest.Pytester, miniature: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMPLEBLK_XFSTESTS", str(miniature))
    marks = ['"generic/001", "generic/002"', '"generic/001", device="brd"', '"generic/001", mkfs="-b 1024"']
    lines = [f"@pytest.mark.xfstests({mark})\n" for mark in marks]
    pytester.makepyfile(f"import pytest\n\n{''.join(lines)}def test_suite(suite_test):\n    suite_test()\n")
    result = pytester.runpytest_subprocess(*QUICK, "--collect-only", "-q", timeout=60)
    result.stdout.fnmatch_lines_random(
        [
            "*test_suite?generic/001-device=sampleblk-mkfs=[]]",
            "*test_suite?generic/001-device=brd-mkfs=[]]",
            "*test_suite?generic/001-device=sampleblk-mkfs=-b 1024[]]",
            "*test_suite?generic/002[]]",
        ]
    )
