# SPDX-License-Identifier: MIT
"""What the plugin keeps of a test, and what it says of two sessions."""

import json
import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from sampleblk_lab import runs
from sampleblk_lab.paths import cache_root
from support import QUICK


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


def _run(pytester: pytest.Pytester, speed: float, *options: str, source: str = MEASURED) -> pytest.RunResult:
    pytester.makepyfile(test_it=source.format(speed=speed))
    return pytester.runpytest_subprocess(*QUICK, *options)


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


@pytest.mark.parametrize("temporary", ["", "/dev/shm"])  # on the file system of runs/, and on another one
def test_what_a_test_puts_among_its_logs_is_kept(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, temporary: str
) -> None:
    if temporary:
        assert Path(temporary).stat().st_dev != pytester.path.stat().st_dev
        monkeypatch.setenv("TMPDIR", temporary)
    pytester.makepyfile(
        test_it="""
        import os

        def test_fails(sampleblk_folder):
            (sampleblk_folder / "folder.log").mkdir()
            (sampleblk_folder / "link.log").symlink_to("nowhere")
            os.mkfifo(sampleblk_folder / "pipe.log")
            assert 0

        def test_after(): pass
        """
    )
    pytester.runpytest_subprocess(*QUICK, timeout=60).assert_outcomes(failed=1, passed=1)
    kept = [path.name for path in pytester.path.glob("runs/latest/0001/*/*.log")]
    assert sorted(kept) == ["folder.log", "link.log", *([] if temporary else ["pipe.log"])]


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_run_directories_that_cannot_be_kept_fail_the_session(pytester: pytest.Pytester, workers: str) -> None:
    (pytester.path / "runs").write_text("a file of the project's")
    result = _run(pytester, 100, workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2)
    place = r"sampleblk: run directories could not be kept in .*/runs/latest: .*Not a directory.*; they are in (.+)"
    said = re.search(place, result.stdout.str())
    assert said is not None
    kept = Path(said[1])
    assert [path.name for path in kept.glob("*/*")].count("measurements.json") == 1
    shutil.rmtree(kept)
    assert "Traceback" not in result.stderr.str()


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


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_what_a_failed_test_measured_is_kept_and_not_compared(pytester: pytest.Pytester, workers: str) -> None:
    _run(pytester, 100, "--sblk-save", "before", workers)
    failing = MEASURED.replace('unit="us")', 'unit="us")\n        assert {speed} == 1')
    result = _run(pytester, 50, "--sblk-compare", "before", workers, source=failing)
    result.stdout.fnmatch_lines(["  not compared: the test failed in each session of the later set"])
    _run(pytester, 50, "--sblk-save", "broken", workers, source=failing)
    result = _run(pytester, 100, "--sblk-compare", "broken", "--sblk-fail-slower", workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*test_speed: the test failed in each session of the earlier set"])


def test_a_session_that_only_collects_says_that_nothing_was_compared(pytester: pytest.Pytester) -> None:
    _run(pytester, 100, "--sblk-save", "before")
    result = _run(pytester, 130, *GATE, "--collect-only")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["sampleblk: against before: not compared: --collect-only runs no test"])


def _edit(pytester: pytest.Pytester, name: str, **values: object) -> None:
    """Changes values of one file of the stored set."""
    (path,) = pytester.path.glob(f"runs/before/*/*/{name}")
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


GATE = ("--sblk-compare", "before", "--sblk-fail-slower")


def test_a_session_compares_what_it_measured_though_another_one_ends_too(pytester: pytest.Pytester) -> None:
    _run(pytester, 100, "--sblk-save", "before")
    pytester.makeconftest(
        """
        import shutil
        from sampleblk_lab.results import store

        add_round = store.add_round

        def add_and_replace(*arguments):
            shutil.rmtree(made := add_round(*arguments))
            return made

        store.add_round = add_and_replace
        """
    )
    result = _run(pytester, 100, *GATE)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["  no difference shown: *"])


def test_another_kernel_is_refused_unless_asked_for(pytester: pytest.Pytester) -> None:
    _run(pytester, 100, "--sblk-save", "before")
    _edit(pytester, "env.json", kernel="5.4.0")
    result = _run(pytester, 100, *GATE)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    said = "the kernel differs (5.4.0; *); ask for it with --sblk-across kernel"
    result.stdout.fnmatch_lines([f"  not compared: {said}", f"sampleblk: against before: *::test_speed: {said}"])
    # Without the gate it is told, and fails nothing.
    assert _run(pytester, 100, "--sblk-compare", "before").ret == 0
    result = _run(pytester, 130, "--sblk-compare", "before", "--sblk-across", "kernel")
    result.stdout.fnmatch_lines(["  slower: *", "*note: across kernels: 5.4.0; *"])


def test_another_host_name_is_judged(pytester: pytest.Pytester) -> None:
    _run(pytester, 100, "--sblk-save", "before")
    (path,) = pytester.path.glob("runs/before/*/*/env.json")
    host = json.loads(path.read_text())["host"]
    assert int(host["memory_mib"]) > 100
    _edit(pytester, "env.json", host={**host, "name": "elsewhere"})
    result = _run(pytester, 130, *GATE)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["  slower: *", "*note: machines of one kind: *elsewhere*", "*::test_speed: slower"])
    assert _run(pytester, 100, *GATE).ret == 0


@pytest.mark.parametrize("workers", ["-n0", pytest.param("-n2", marks=pytest.mark.full)])
def test_a_renamed_measurement_fails_the_gate_by_name(pytester: pytest.Pytester, workers: str) -> None:
    _run(pytester, 100, "--sblk-save", "before")
    _edit(pytester, "spec.json", test="test_it.py::test_old_name")
    result = _run(pytester, 100, *GATE, workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "sampleblk: against before: test_it.py::test_speed: the earlier set does not have it",
            "sampleblk: against before: test_it.py::test_old_name: not measured in this session: renamed or removed?",
        ]
    )
    assert _run(pytester, 100, *GATE, "--sblk-allow-new", workers).ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("workers", ["-n0", pytest.param("-n2", marks=pytest.mark.full)])
def test_what_the_command_line_leaves_out_need_not_be_measured(pytester: pytest.Pytester, workers: str) -> None:
    both = """
        import itertools, pytest

        @pytest.mark.parametrize("which", ["one", "two"])
        def test_speed(measure, which):
            measure(itertools.cycle([99.0, 100.0, 101.0]).__next__)
    """
    pytester.makepyfile(test_it=both, test_other=both)
    run = (*QUICK, workers)
    pytester.runpytest_subprocess(*run, "--sblk-save", "before")
    named = (["-k", "one"], ["test_it.py"], ["test_it.py::test_speed[two]"])
    for chosen in (*named, ["--ignore", "test_other.py"], ["--ignore-glob", "*_other.py"]):
        assert pytester.runpytest_subprocess(*run, *GATE, *chosen).ret == 0, chosen
    # What is covered and gone is not left out.
    pytester.makepyfile(test_it=both.replace('"one", "two"', '"one", "three"'))
    result = pytester.runpytest_subprocess(*run, *GATE, "--sblk-allow-new", "-k", "one")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*against before: test_it.py::test_speed[[]two]: not measured in this session*"])
    assert pytester.runpytest_subprocess(*run, *GATE, "--sblk-allow-new", "test_other.py").ret == 0
    # Nor is it where the command line names a module.
    pytester.makepyfile(**{"pkg/__init__": "", "pkg/test_it": both})
    modules = (*run, "--import-mode=importlib", "--pyargs", "pkg.test_it")
    pytester.syspathinsert()
    pytester.runpytest_subprocess(*modules, "--sblk-save", "before")
    assert pytester.runpytest_subprocess(*modules, *GATE).ret == 0
    pytester.makepyfile(**{"pkg/test_it": both.replace('"one", "two"', '"one", "three"')})
    assert pytester.runpytest_subprocess(*modules, *GATE, "--sblk-allow-new").ret == pytest.ExitCode.TESTS_FAILED


def test_a_session_of_new_tests_only_fails_the_gate(pytester: pytest.Pytester) -> None:
    _run(pytester, 100, "--sblk-save", "before")
    pytester.makepyfile(test_new=MEASURED.format(speed=1))
    result = pytester.runpytest_subprocess(*QUICK, *GATE, "--sblk-allow-new", "test_new.py")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["sampleblk: against before: nothing was measured that the set has"])


def test_a_skipped_test_and_a_metric_that_is_gone_fail_the_gate(pytester: pytest.Pytester) -> None:
    text = """
        import itertools, pytest

        def test_speed(measure):
            for name in ({names}):
                measure(itertools.cycle([99.0, 100.0, 101.0]).__next__, name=name)

        def test_other(measure):
            {skip}
            measure(itertools.cycle([99.0, 100.0, 101.0]).__next__)
    """
    pytester.makepyfile(test_it=text.format(names="'read', 'write'", skip="pass"))
    pytester.runpytest_subprocess(*QUICK, "--sblk-save", "before")
    pytester.makepyfile(test_it=text.format(names="'read', 'trim'", skip="pytest.skip()"))
    result = pytester.runpytest_subprocess(*QUICK, *GATE, "--sblk-allow-new")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "*against before: test_it.py::test_other: not measured: the test skipped",
            "*against before: test_it.py::test_speed write: the later set does not have it",
        ]
    )


BOTH = """
    import itertools

    def test_schedulers(measure):
        def at(speed):
            return itertools.cycle([speed * factor for factor in (0.99, 1.0, 1.01)]).__next__
        made = measure.both(at(100), at({bfq}), names=("none", "bfq"), unit="us")
        assert made.verdict == "slower"
        measure.both(at(5), at(6), names=("read", "write"))
"""


def test_a_test_that_a_session_did_not_come_to_is_not_called_removed(pytester: pytest.Pytester) -> None:
    _run(pytester, 100, "--sblk-save", "before")
    pytester.makepyfile(test_first="def test_fails(): assert 0")
    result = pytester.runpytest_subprocess(*QUICK, "-x", "test_first.py", "test_it.py", *GATE)
    said = "test_it.py::test_speed: not measured in this session: it ended early"
    result.stdout.fnmatch_lines([f"sampleblk: against before: {said}"])


def test_variants_are_stored_compared_and_gated_like_the_rest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=BOTH.format(bfq=150))
    pytester.runpytest_subprocess(*QUICK, "--sblk-save", "before").assert_outcomes(passed=1)
    table = runs(pytester.path / "runs")
    assert [str(name) for name in table["metric"]] == ["none", "bfq", "read", "write"]
    assert [round(value) for value in table["value"]] == [100, 150, 5, 6]
    (said,) = pytester.path.glob("runs/before/0001/*/comparisons.json")
    first, _ = json.loads(said.read_text())
    assert (first["names"], first["verdict"]) == (["none", "bfq"], "slower")
    assert first["text"].startswith("bfq against none: slower: ratio 1.5")

    pytester.makepyfile(test_it=BOTH.format(bfq=200))
    result = pytester.runpytest_subprocess(*QUICK, *GATE)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "test_it.py::test_schedulers none",
            "  no difference shown: *",
            "test_it.py::test_schedulers bfq",
            "  slower: ratio 1.33*",
            "sampleblk: against before: test_it.py::test_schedulers bfq: slower",
        ]
    )
    # A variant of another name is one that the set does not have, and one that is not measured any more.
    pytester.makepyfile(test_it=BOTH.format(bfq=150).replace('"bfq"', '"kyber"'))
    result = pytester.runpytest_subprocess(*QUICK, *GATE)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*test_schedulers kyber: the earlier set*", "*test_schedulers bfq: the later set*"])


def test_a_second_measurement_of_a_name_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        def test_it(measure):
            measure.both(lambda: 1.0, lambda: 2.0)
            measure.both(lambda: 1.0, lambda: 2.0)
        """
    )
    result = pytester.runpytest_subprocess(*QUICK)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*measure.both(names=('before', 'after')): 'before' is this test's second of that name*"]
    )


def test_a_set_is_not_compared_with_itself(pytester: pytest.Pytester) -> None:
    _run(pytester, 100, "--sblk-save", "before")
    result = _run(pytester, 150, "--sblk-save", "before", *GATE)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["  slower: ratio 1.50*"])


def test_a_session_that_measures_nothing_fails_the_gate(pytester: pytest.Pytester) -> None:
    _run(pytester, 100, "--sblk-save", "before")
    result = _run(pytester, 100, *GATE, "-k", "quiet")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["sampleblk: against before: nothing was measured that the set has"])


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("measurements.json", "[]", "*--sblk-compare before: there are no measurements in *runs/before*"),
        ("measurements.json", None, "*--sblk-compare before: there are no measurements in *runs/before*"),
        ("measurements.json", "[{", "*--sblk-compare before: *measurements.json: at byte 2: expected JSON*"),
        ("env.json", None, "*--sblk-compare before: *No such file*env.json*"),
        ("spec.json", "{}", "*--sblk-compare before: *spec.json: at byte 0: expected 'test', a string*"),
    ],
)
def test_a_set_that_cannot_be_read_is_refused(
    pytester: pytest.Pytester, name: str, text: str | None, said: str
) -> None:
    _run(pytester, 100, "--sblk-save", "before")
    (path,) = pytester.path.glob(f"runs/before/*/*/{name}")
    path.unlink() if text is None else path.write_text(text)
    result = _run(pytester, 100, *GATE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([said])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--sblk-compare", "never"],
            "*--sblk-compare never: there are no measurements in *runs/never; a session with --sblk-save never*",
        ),
        (["--sblk-fail-slower"], "*--sblk-fail-slower: there is nothing to compare with*--sblk-compare"),
        (["--sblk-save", "../x"], "*--sblk-save: '../x' (expected letters, digits*"),
        (["--sblk-save", "x", "-n2", "--dist", "each"], "*--sblk-save x: --dist each runs a test several times*load)"),
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
    result = pytester.runpytest_subprocess(*QUICK, f"--junitxml={report}", "-v", timeout=400)
    result.assert_outcomes(passed=5, failed=2, errors=1)
    for kind in ("ext4", "xfs", "btrfs", "f2fs"):
        result.stdout.fnmatch_lines([f"*::test_each[[]{kind}[]] PASSED*"])
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
        def test_experiment(number, sampleblk_kernel):
            assert os.uname().release.startswith(f"{sampleblk_kernel}.")
            if number == 3:
                open("/proc/sysrq-trigger", "w").write("c")
                time.sleep(30)
        """
    )
    result = pytester.runpytest_subprocess(*QUICK, "-v", "--sblk-kernel", "6.1,6.12", "-n", "2", timeout=600)
    result.assert_outcomes(passed=18, failed=2)
    text = result.stdout.str()
    for kernel in ("6.1", "6.12"):
        for number in range(10):
            outcome = "FAILED" if number == 3 else "PASSED"
            assert f"{outcome} test_it.py::test_experiment[{number}-{kernel}]" in text
    consoles = sorted(path.parent.name[:32] for path in Path(pytester.path / "runs").rglob("console.log"))
    assert consoles == ["test_it.py-test_experiment-3-6.1", "test_it.py-test_experiment-3-6.1"]
