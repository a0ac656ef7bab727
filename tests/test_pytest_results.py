# SPDX-License-Identifier: MIT
"""What the plugin keeps of a test, and what it says of two sessions."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from sampleblk_lab import runs
from sampleblk_lab.paths import cache_root


@pytest.fixture(autouse=True)
def _same_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytester has a home of its own; kernels and states stay where they are."""
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(cache_root()))


MEASURED = """
    import itertools

    def test_speed(measure):
        values = itertools.cycle([{speed} * factor for factor in (0.99, 1.0, 1.01)])
        measure(lambda: next(values), unit="us")

    def test_quiet(sampleblk_folder):
        (sampleblk_folder / "note.txt").write_text("kept?")
"""


def _run(pytester: pytest.Pytester, speed: float, *options: str) -> pytest.RunResult:
    pytester.makepyfile(test_it=MEASURED.format(speed=speed))
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)


def test_a_measured_test_leaves_a_run_directory(pytester: pytest.Pytester) -> None:
    result = _run(pytester, 100, f"--junitxml={pytester.path / 'j.xml'}")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([f"sampleblk: run directories in {pytester.path}/runs/latest/0001"])
    (folder,) = (pytester.path / "runs/latest/0001").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["env.json", "measurements.json", "spec.json"]
    assert json.loads((folder / "spec.json").read_text())["test"] == "test_it.py::test_speed"
    properties = {p.get("name"): p.get("value") for p in ET.parse(pytester.path / "j.xml").iter("property")}
    assert properties["sampleblk_run"] == f"latest/{folder.name}"
    assert properties["sampleblk_measured"].startswith("value: 99.9")
    table = runs(pytester.path / "runs")
    assert table["test"][0] == "test_it.py::test_speed"
    assert table["value"][0] == pytest.approx(100, rel=0.01)


def test_keep_keeps_all(pytester: pytest.Pytester) -> None:
    _run(pytester, 100, "--sblk-keep", "--sblk-runs", "elsewhere")
    notes = [path.read_text() for path in pytester.path.glob("elsewhere/latest/0001/*/note.txt")]
    assert notes == ["kept?"]


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_saved_and_compared(pytester: pytest.Pytester, workers: str) -> None:
    for _ in range(2):
        _run(pytester, 100, "--sblk-save", "before", workers)
    assert sorted(path.name for path in (pytester.path / "runs/before").iterdir()) == ["0001", "0002"]
    result = _run(pytester, 130, "--sblk-compare", "before", "--sblk-fail-slower", workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["*sampleblk: against before*", "test_it.py::test_speed", "  slower: ratio 1.30*", "*note: only one session*"]
    )
    result = _run(pytester, 101, "--sblk-compare", "before", "--sblk-fail-slower", workers)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["  no difference shown: *"])


def test_another_machine_is_refused_unless_asked_for(pytester: pytest.Pytester) -> None:
    _run(pytester, 100, "--sblk-save", "before")
    (path,) = pytester.path.glob("runs/before/*/*/env.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "kernel": "5.4.0"}))
    result = _run(pytester, 130, "--sblk-compare", "before", "--sblk-fail-slower")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*not compared: the kernel differs (5.4.0; *); ask for it with --sblk-across kernel"])
    result = _run(pytester, 130, "--sblk-compare", "before", "--sblk-across", "kernel")
    result.stdout.fnmatch_lines(["  slower: *", "*note: across kernels: 5.4.0; *"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--sblk-compare", "never"],
            "*--sblk-compare never: there is no *runs/never; a session with --sblk-save never*",
        ),
        (["--sblk-save", "../x"], "*--sblk-save: '../x' (expected letters, digits*"),
        (["--sblk-save", "x", "--sblk-across", "cpu"], "*--sblk-across 'cpu' (expected accelerator, kernel, machine)*"),
    ],
)
def test_options_that_cannot_be_are_named(pytester: pytest.Pytester, options: list[str], said: str) -> None:
    result = _run(pytester, 100, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([said])


GUEST = """
    import pytest
    import sampleblk_lab as lab

    @pytest.mark.sampleblk(queues=2)
    def test_measured_under_faults(sampleblk, measure, faults, workload):
        faults(lab.Fault(action="error", ops="write", count=1))
        with pytest.raises(lab.JobError):
            workload(rw="write", bs="4k", size="4k", direct=1, filename=sampleblk.path)
        assert faults.hits() == [1]
        faults()
        def read():
            job = lab.Job(rw="read", bs="4k", size="64k", direct=1, filename=sampleblk.path)
            return job.run(progress=False).json()["jobs"][0]["read"]["clat_ns"]["min"]
        measure(read, max_repeats=10)

    def test_fails_with_its_recording(workload, record):
        with record(syscalls=True):
            workload(rw="write", bs="4k", size="64k")
        assert 0

    @pytest.mark.in_vm
    def test_kernel_complains():
        with open("/dev/kmsg", "w") as log:
            log.write("WARNING: CPU: 0 PID: 1 at made/up.c:1\\n")

    def test_each(sampleblk_each_fs, request):
        kind = request.getfixturevalue("_sampleblk_fs")
        mounts = [line.split() for line in open("/proc/mounts")]
        assert [m[2] for m in mounts if m[1] == str(sampleblk_each_fs)] == [kind]

    @pytest.mark.sampleblk(capacity="lots")
    def test_wrong_value(sampleblk): pass
"""


@pytest.mark.full
def test_in_the_guest_too(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=GUEST)
    report = pytester.path / "j.xml"
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", f"--junitxml={report}", "-v", timeout=400)
    result.assert_outcomes(passed=5, failed=2, errors=1)
    for kind in ("ext4", "xfs", "btrfs", "f2fs"):
        result.stdout.fnmatch_lines([f"*PASSED*::test_each[[]{kind}[]]*"])
    result.stdout.fnmatch_lines(["*::test_wrong_value: @pytest.mark.sampleblk: *'lots'*"])
    made = {path.relative_to(pytester.path / "runs/latest/0001") for path in (pytester.path / "runs").rglob("*.*")}
    names = {(path.parts[0].partition("-")[2].rpartition("-")[0], "/".join(path.parts[1:])) for path in made}
    assert {
        ("test_measured_under_faults", "measurements.json"),
        ("test_measured_under_faults", "env.json"),
        ("test_fails_with_its_recording", "recording-1/trace.dat"),
        ("test_fails_with_its_recording", "result.json"),
        ("test_kernel_complains", "kernel.log"),
    } <= names
    assert not any(name.startswith("test_each") for name, _ in names)
    failures = [failure.text or "" for failure in ET.parse(report).iter("failure")]
    assert any("made/up.c:1" in text and "Kernel log" in text for text in failures)
    table = runs(pytester.path / "runs")
    assert table["accelerator"][0] in ("tcg", "kvm")
    assert table["kernel"][0] is not None


@pytest.mark.full
def test_beside_html_timeout_and_hypothesis(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import time
        import pytest
        from hypothesis import given, settings, strategies as st
        pytestmark = pytest.mark.in_vm

        @pytest.mark.timeout(2)
        def test_slow():
            time.sleep(60)

        @settings(max_examples=20, deadline=None)
        @given(st.integers())
        def test_property(number):
            assert number + 0 == number

        def test_panic():
            open("/proc/sysrq-trigger", "w").write("c")
            time.sleep(30)

        def test_kernel_complains():
            with open("/dev/kmsg", "w") as log:
                log.write("WARNING: CPU: 0 PID: 1 at made/up.c:1\\n")
        """
    )
    page = pytester.path / "r.html"
    result = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", f"--html={page}", "--self-contained-html", timeout=300
    )
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(["*Timeout*2.0s*"])
    text = page.read_text()
    assert "sysrq triggered crash" in text
    assert "made/up.c:1" in text
    logs = sorted(path.name for path in (pytester.path / "runs").rglob("*.log"))
    assert logs == ["console.log", "kernel.log"]


@pytest.mark.full
def test_ten_experiments_on_two_kernels_with_two_workers(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import os, time
        import pytest
        pytestmark = pytest.mark.in_vm

        @pytest.mark.parametrize("number", range(10))
        def test_experiment(number):
            release = os.uname().release
            assert release.startswith(os.environ["SAMPLEBLK_PYTEST_KERNEL"] + ".")
            if number == 3:
                open("/proc/sysrq-trigger", "w").write("c")
                time.sleep(30)
        """
    )
    result = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "-v", "--sblk-kernel", "6.1,6.12", "-n", "2", timeout=600
    )
    result.assert_outcomes(passed=18, failed=2)
    text = result.stdout.str()
    for kernel in ("6.1", "6.12"):
        for number in range(10):
            outcome = "FAILED" if number == 3 else "PASSED"
            assert f"{outcome} test_it.py::test_experiment[{number}-{kernel}]" in text
    consoles = sorted(path.parent.name[:32] for path in Path(pytester.path / "runs").rglob("console.log"))
    assert consoles == ["test_it.py-test_experiment-3-6.1", "test_it.py-test_experiment-3-6.1"]
