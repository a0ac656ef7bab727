# SPDX-License-Identifier: MIT
"""What the plugin does around a VM: options, names, plugins, files, debuggers, all the ways in which a guest can end.

A process of this machine stands for the VM (:mod:`local_guest`); test_pytest_plugin.py has real ones.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sampleblk_lab.pytest_plugin import options, waiting
from support import LIGHT, QUICK, STAND_IN

if TYPE_CHECKING:
    from collections.abc import Callable

# Each case is a pytest of its own; variants of one that is in the fast lane are in the other.
slow = pytest.mark.full


@pytest.fixture
def starts(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, str]]]:
    """The options of each guest that was started; installs the stand-in."""
    log = pytester.path / "guests.log"
    monkeypatch.setenv("LOCAL_GUEST_LOG", str(log))
    pytester.makepyfile(stand_in=STAND_IN)
    return lambda: [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@pytest.fixture
def run(pytester: pytest.Pytester, starts: Callable[[], list[dict[str, str]]]) -> Callable[..., pytest.RunResult]:
    """Runs pytest with the stand-in; `every_plugin`: also with those that take long to import."""
    assert starts() == []

    def run_it(*options: str, every_plugin: bool = False) -> pytest.RunResult:
        without = ("-p", "no:cacheprovider") if every_plugin else QUICK
        return pytester.runpytest_subprocess("-p", "stand_in", *without, *options, timeout=300)

    return run_it


def _ids(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line and " " not in line]


# --- the kernel as a parameter ---------------------------------------------------------------------------------------

MATRIX = {
    "test_marked.py": """
        import pytest, unittest
        from sampleblk_lab.pytest_plugin import selection

        def right(request, kernel):
            assert request.node.nodeid.endswith(f"{kernel}]")

        @pytest.mark.in_vm
        @pytest.mark.parametrize("a", ["x", "y::z"])
        def test_both(request, sampleblk_kernel, a):
            right(request, sampleblk_kernel)

        def test_plain(request, sampleblk_kernel):
            right(request, sampleblk_kernel)

        @pytest.mark.parametrize("a", ["here", pytest.param("there", marks=pytest.mark.in_vm)])
        def test_some(a):
            pass

        @pytest.mark.in_vm
        class TestCase(unittest.TestCase):
            def test_method(self):
                pass

        def test_host():
            pass
    """,
    "folder/conftest.py": """
        import pytest
        def pytest_collection_modifyitems(items):
            for item in items:
                if "folder" in str(item.path):
                    item.add_marker(pytest.mark.in_vm)
    """,
    "folder/test_folder.py": """
        def test_in_folder(): pass
    """,
}

MATRIX_IDS = [
    "test_marked.py::test_some[here]",
    "test_marked.py::test_host",
    *(
        name.replace("K", kernel)
        for kernel in ("6.1", "6.12")
        for name in (
            "folder/test_folder.py::test_in_folder[K]",
            "test_marked.py::test_both[x-K]",
            "test_marked.py::test_both[y::z-K]",
            "test_marked.py::test_plain[K]",
            "test_marked.py::test_some[there-K]",
            "test_marked.py::TestCase::test_method[K]",
        )
    ),
]

TWO = ("--sblk-kernel", "6.1,6.12")


def _make(pytester: pytest.Pytester, files: dict[str, str]) -> None:
    for name, text in files.items():
        lines = text.splitlines()[1:] if text.startswith("\n") else text.splitlines()
        indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(line[indent:] for line in lines) + "\n")


def test_the_ids_of_the_matrix_are_printed_and_accepted(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]
) -> None:
    _make(pytester, MATRIX)
    listed = _ids(run("--collect-only", "-q", *TWO))
    assert sorted(listed) == sorted(MATRIX_IDS)
    # The host's tests first, then one kernel after the other.
    kernels = [next((k for k in ("6.12]", "6.1]") if test.endswith(k)), "") for test in listed]
    assert kernels == sorted(kernels, key=["", "6.1]", "6.12]"].index)
    for chosen in (listed[-1:], [listed[0], listed[4]], [test for test in listed if test.endswith("6.12]")], listed):
        assert sorted(_ids(run("--collect-only", "-q", *TWO, *chosen))) == sorted(chosen)
    assert _ids(run("--collect-only", "-q", *TWO, "test_marked.py::test_plain[6.12]", "folder")) == [
        "folder/test_folder.py::test_in_folder[6.1]",
        "test_marked.py::test_plain[6.12]",
        "folder/test_folder.py::test_in_folder[6.12]",
    ]
    missing = run("--collect-only", "-q", *TWO, "folder/test_folder.py::test_in_folder[7.2]")
    assert missing.ret == pytest.ExitCode.USAGE_ERROR
    # Without a matrix the kernel is no part of a name.
    assert "test_marked.py::test_plain" in _ids(run("--collect-only", "-q", "--sblk-kernel", "6.1,6.1"))


def test_k_and_deselect_see_the_matrix(pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]) -> None:
    _make(pytester, MATRIX)
    on_one = [test for test in MATRIX_IDS if test.endswith("6.12]")]
    assert sorted(_ids(run("--collect-only", "-q", *TWO, "-k", "6.12"))) == sorted(on_one)
    left = _ids(run("--collect-only", "-q", *TWO, "--deselect", on_one[0]))
    assert sorted(left) == sorted(set(MATRIX_IDS) - {on_one[0]})


@pytest.mark.parametrize(
    "workers",
    [
        [],
        ["-n2", "--dist=loadscope"],
        *(pytest.param(["-n2", *more], marks=slow) for more in ([], ["--dist=loadfile"], ["--dist=worksteal"])),
    ],
    ids=lambda options: " ".join(options) or "alone",
)
def test_each_runs_once_on_its_kernel(
    pytester: pytest.Pytester,
    run: Callable[..., pytest.RunResult],
    starts: Callable[[], list[dict[str, str]]],
    workers: list[str],
) -> None:
    _make(pytester, MATRIX)
    result = run("-v", *TWO, *workers, "--junit-xml=j.xml")
    result.assert_outcomes(passed=len(MATRIX_IDS))
    text = result.stdout.str()
    for test in MATRIX_IDS:
        assert len(re.findall(rf"(?:^|PASSED ){re.escape(test)}(?: PASSED| *$)", text, re.MULTILINE)) >= 1, test
    cases = [case.get("name") for case in ET.parse(pytester.path / "j.xml").getroot().iter("testcase")]
    assert sorted(map(str, cases)) == sorted(re.sub(r".*?::(TestCase::)?", "", test, count=1) for test in MATRIX_IDS)
    assert {start["--kernel"] for start in starts()} == {"6.1", "6.12"}
    if not workers:
        assert [start["--kernel"] for start in starts()] == ["6.1", "6.12"]


@slow
def test_xdist_groups_see_the_matrix(pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]) -> None:
    _make(
        pytester,
        {
            "conftest.py": MATRIX["folder/conftest.py"].replace('"folder"', '"test_g"'),
            "test_g.py": """
                import os, pytest
                @pytest.mark.xdist_group("one")
                def test_a(worker_id): print("worker", worker_id)
                @pytest.mark.xdist_group("one")
                @pytest.mark.parametrize("p", ["q"])
                def test_b(worker_id, p): print("worker", worker_id)
                def test_c(): pass
            """,
        },
    )
    result = run("-v", "-n2", "--dist=loadgroup", "-rP", *TWO)
    result.assert_outcomes(passed=6)
    text = result.stdout.str()
    if "@" not in text:
        pytest.skip("this xdist does not mark groups under this pytest")
    for test in ("test_a[6.1]@one", "test_b[q-6.12]@one", "test_c[6.1]"):
        assert f"PASSED test_g.py::{test}" in text
    assert len(set(re.findall(r"^worker (gw\d)$", text, re.MULTILINE))) == 1


def test_last_failed_sees_the_matrix(pytester: pytest.Pytester, starts: Callable[[], list[dict[str, str]]]) -> None:
    _make(
        pytester,
        {
            "test_it.py": """
                def test_one(sampleblk_kernel):
                    assert sampleblk_kernel == "6.1"
                def test_two(sampleblk_kernel): pass
                def test_host(): assert 0
            """
        },
    )
    options = ("-v", "-p", "stand_in", *LIGHT, *TWO)
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=3, failed=2)
    result = pytester.runpytest_subprocess(*options, "--lf")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_one[[]6.12[]]*"])
    assert [start["--kernel"] for start in starts()] == ["6.1", "6.12", "6.12"]


def test_the_ini_file_has_the_options(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult], starts: Callable[[], list[dict[str, str]]]
) -> None:
    pytester.makepyprojecttoml(
        """
        [tool.pytest.ini_options]
        sblk_kernels = ["6.1", "6.12"]
        sblk_memory = "512M"
        sblk_cpus = 1
        sblk_deadline = "9"
        sblk_runs = "kept"
        """
    )
    pytester.makepyfile(
        test_it="def test_it(sampleblk_kernel, sampleblk_folder): (sampleblk_folder / 'f').write_text('')"
    )
    run("--sblk-keep").assert_outcomes(passed=2)
    assert [(s["--kernel"], s["--memory"], s["--cpus"]) for s in starts()] == [
        ("6.1", "512M", "1"),
        ("6.12", "512M", "1"),
    ]
    assert len(list(pytester.path.glob("kept/latest/0001/*/f"))) == 2
    # The command line goes before it, and --sblk-host has the kernel that it has.
    run("--sblk-kernel", "7.2", "--sblk-cpus", "3").assert_outcomes(passed=1)
    assert (starts()[-1]["--kernel"], starts()[-1]["--cpus"]) == ("7.2", "3")
    assert _ids(run("--collect-only", "-q", "--sblk-host")) == ["test_it.py::test_it"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sblk-cpus", "some"], "*--sblk-cpus 'some' (expected a number above 0)*"),
        (["--sblk-deadline", "-1"], "*--sblk-deadline '-1' (expected seconds, or 0 for no deadline)*"),
        (["--sblk-memory", "big"], "*--sblk-memory 'big' is not a size*"),
        (["--sblk-runs", "stand_in.py"], "*--sblk-runs '*/stand_in.py' (expected a folder)*"),
        (["-o", "sblk_runs=stand_in.py"], "*sblk_runs '*/stand_in.py' (expected a folder)*"),
        (["-o", "sblk_deadline=soon"], "*sblk_deadline 'soon' (expected seconds*"),
        (["--sblk-fresh", "often"], "*--sblk-fresh 'often' (expected test, module or session)*"),
        (["--sblk-pool", "all"], "*--sblk-pool 'all' (expected a number, or 0 for none)*"),
        (["--sblk-compare", ""], "*--sblk-compare '' (expected a value)*"),
        (["--sblk-scheduler="], "*--sblk-scheduler '' (expected a value)*"),
        (["--sblk-fresh", ""], "*--sblk-fresh '' (expected a value)*"),
        (["--sblk-kernel", ","], "*--sblk-kernel ',' names no kernel*"),
        (["--sblk-kernel", "6.1", "--sblk-host"], "*--sblk-kernel and --sblk-host: this machine has the kernel*"),
    ],
)
def test_options_that_cannot_be_are_named(run: Callable[..., pytest.RunResult], options: list[str], said: str) -> None:
    result = run(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([said])


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("in_vm(dedline=5)", "*test_it: in_vm(dedline=5) (expected the keywords deadline and fresh only)"),
        pytest.param("in_vm(5)", "*test_it: in_vm(5) (expected the keywords *", marks=slow),
        pytest.param("in_vm(deadline=float('nan'))", "*test_it: in_vm(deadline=) nan (expected seconds*", marks=slow),
        pytest.param("in_vm(deadline=10**400)", "*test_it: in_vm(deadline=) 1000*0 (expected seconds*", marks=slow),
        ("in_vm(deadline=1e300)", ""),
        pytest.param("in_vm(fresh=None, deadline=None)", "", marks=slow),
    ],
)
def test_marks_that_cannot_be_are_named(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult], mark: str, said: str
) -> None:
    pytester.makepyfile(test_it=f"import pytest\n@pytest.mark.{mark}\ndef test_it(): pass\n")
    result = run()
    assert result.parseoutcomes() == ({} if said else {"passed": 1})
    assert result.ret == (pytest.ExitCode.USAGE_ERROR if said else 0)
    result.stderr.fnmatch_lines([said] if said else [])


def test_kernels_of_the_ini_file_that_are_no_names_are_refused(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]
) -> None:
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\nsblk_kernels = [6.10, 6.12]\n")
    result = run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*sblk_kernels 6.1 (expected strings, such as *"])


# --- what a VM test is -----------------------------------------------------------------------------------------------

WHERE = """
    import os
    import pytest

    def in_vm():
        return "SAMPLEBLK_VM" in os.environ
"""


def test_a_project_s_own_fixtures_stay_here(pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]) -> None:
    _make(
        pytester,
        {
            "conftest.py": """
                import pytest
                @pytest.fixture
                def record(): return "conftest's"
                @pytest.fixture
                def fs(): return "as pyfakefs names it"
            """,
            "test_it.py": WHERE
            + """
    @pytest.fixture
    def workload(): return "module's"

    class TestIt:
        @pytest.fixture
        def faults(self): return "class's"

        def test_here(self, record, workload, faults, fs):
            assert (record, workload, faults) == ("conftest's", "module's", "class's")
            assert fs == "as pyfakefs names it"
            assert not in_vm()

    class TestOverridden:
        @pytest.fixture
        def sampleblk_factory(self, sampleblk_factory): return sampleblk_factory

        def test_there(self, sampleblk_factory):
            assert in_vm()
    """,
        },
    )
    run().assert_outcomes(passed=2)


def test_a_fixture_that_is_asked_for_too_late_says_so(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]
) -> None:
    pytester.makepyfile(
        test_it="""
        import pytest
        @pytest.mark.parametrize("name", ["sampleblk", "sampleblk_factory", "record", "workload", "sampleblk_mount"])
        def test_late(request, name):
            request.getfixturevalue(name)
        @pytest.mark.in_vm
        def test_in_time(request):
            request.getfixturevalue("record")
        """
    )
    result = run()
    result.assert_outcomes(failed=5, passed=1)
    result.stdout.fnmatch_lines(["*the fixture record works in the VM; this test runs on the host*@pytest.mark.in_vm"])


def test_fixtures_of_wider_scopes_live_in_the_guest(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]
) -> None:
    _make(
        pytester,
        {
            "conftest.py": """
                import os, pytest
                from pathlib import Path

                def note(what):
                    where = "vm" if "SAMPLEBLK_VM" in os.environ else "host"
                    with open(Path(__file__).with_name("notes"), "a") as file:
                        file.write(f"{where} {what}\\n")

                @pytest.fixture(scope="session")
                def wide():
                    note("session begins")
                    yield
                    note("session ends")

                @pytest.fixture(scope="module")
                def middle(wide):
                    note("module begins")
                    yield
                    note("module ends")

                @pytest.fixture
                def test(middle, request):
                    note(request.node.name)
            """,
            "test_a.py": """
                import pytest
                def test_host(test): pass
                @pytest.mark.in_vm
                def test_1(test): pass
                @pytest.mark.in_vm
                def test_2(test): pass
            """,
            "test_b.py": """
                import pytest
                @pytest.mark.in_vm
                def test_3(test): pass
            """,
        },
    )
    run().assert_outcomes(passed=4)
    begins, ends = ["session begins", "module begins"], ["module ends", "session ends"]
    there = [*begins, "test_1", "test_2", "module ends", "module begins", "test_3", *ends]
    expected = [f"host {what}" for what in [*begins, "test_host", *ends]] + [f"vm {what}" for what in there]
    assert (pytester.path / "notes").read_text().splitlines() == expected


def test_words_of_the_command_line_are_not_guessed(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult], starts: Callable[[], list[dict[str, str]]]
) -> None:
    _make(
        pytester,
        {
            "block/test_block.py": """
                import itertools, pytest
                @pytest.mark.in_vm
                def test_block(measure): measure(itertools.cycle([1.0, 1.01]).__next__)
                @pytest.mark.in_vm
                def test_other(): pass
            """,
        },
    )
    run("block", "-k", "block and not other").assert_outcomes(passed=1, deselected=1)
    run("--sblk-save", "block", "block").assert_outcomes(passed=2)
    run("block", "--sblk-save", "block", "-m", "in_vm", "-x").assert_outcomes(passed=2)
    assert len(starts()) == 3
    assert sorted(path.name for path in (pytester.path / "runs/block").iterdir()) == ["0001", "0002"]


# --- how a guest ends ------------------------------------------------------------------------------------------------

THREE = """
    import os, signal, sys, time
    import pytest
    pytestmark = pytest.mark.in_vm

    def test_before(): pass
    def test_it():
        {it}
    def test_after(): pass
"""


@pytest.mark.parametrize(
    ("dies", "said"),
    [
        ("os._exit(3)", "*pytest in the VM ended with status 3*"),
        ("raise RuntimeError('conftest says no')", "*conftest says no*"),
        pytest.param("os.kill(os.getpid(), 9)", "*pytest in the VM was ended by SIGKILL*", marks=slow),
        pytest.param("sys.exit(5)", "*pytest in the VM*", marks=slow),
    ],
)
@pytest.mark.parametrize("workers", ["-n0", pytest.param("-n1", marks=slow)])
def test_a_conftest_that_dies_in_the_guest_is_one_failure(
    pytester: pytest.Pytester,
    run: Callable[..., pytest.RunResult],
    starts: Callable[[], list[dict[str, str]]],
    dies: str,
    said: str,
    workers: str,
) -> None:
    pytester.makeconftest(f"import os, sys\nif 'SAMPLEBLK_VM' in os.environ:\n    {dies}\n")
    pytester.makepyfile(test_it=THREE.format(it="pass"))
    result = run(workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["the VM did not start: pytest in the VM *"])
    result.stdout.fnmatch_lines([said])
    result.stdout.fnmatch_lines(
        ["sampleblk: 2 more tests did not run: the VM did not start (see test_it.py::test_before)"]
    )
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    assert len(starts()) == 1


def test_a_vm_that_does_not_start_is_one_failure(
    pytester: pytest.Pytester,
    run: Callable[..., pytest.RunResult],
    starts: Callable[[], list[dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = "sampleblk-python: /boot/x: no kernel; sampleblk-lab kernel fetch 6.1\n"
    told = f"sampleblk-lab: fetching kernel 6.1 … 3.0 s\n{told}"
    monkeypatch.setenv("LOCAL_GUEST_FAILS", told)
    pytester.makepyfile(test_it=THREE.format(it="pass"), test_host="def test_host(): pass")
    result = run("--sblk-kernel", "6.1,6.12")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, errors=2)
    for kernel in ("6.1", "6.12"):
        said = f"the VM with kernel {kernel} did not start: /boot/x: no kernel; sampleblk-lab kernel fetch 6.1"
        result.stdout.fnmatch_lines([said])
    result.stdout.fnmatch_lines(["sampleblk: 2 more tests did not run: the VM with kernel 6.12 did not start (see *)"])
    result.stderr.fnmatch_lines(["sampleblk-lab: fetching kernel 6.1*3.0 s"])
    assert len(starts()) == 2


@pytest.mark.parametrize("variable", ["SAMPLEBLK_MEMORY", "SAMPLEBLK_CPUS"])
def test_a_variable_that_cannot_be_is_one_failure(
    pytester: pytest.Pytester,
    run: Callable[..., pytest.RunResult],
    starts: Callable[[], list[dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
) -> None:
    monkeypatch.setenv(variable, "much")
    monkeypatch.setenv("LOCAL_GUEST_FAILS", "sampleblk-python: 'much' cannot be\n")
    pytester.makepyfile(test_it=THREE.format(it="pass"))
    result = run("--sblk-fresh", "test", "--sblk-pool", "2")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["the VM did not start: 'much' cannot be"])
    assert len(starts()) == 1


@pytest.mark.parametrize(("killed", "outcomes"), [(1, {"passed": 3}), (2, {"errors": 1})])
def test_one_that_is_killed_while_it_starts_is_started_once_more(
    pytester: pytest.Pytester,
    run: Callable[..., pytest.RunResult],
    starts: Callable[[], list[dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
    killed: int,
    outcomes: dict[str, int],
) -> None:
    monkeypatch.setenv("LOCAL_GUEST_KILLED", str(killed))
    pytester.makepyfile(test_it=THREE.format(it="pass"))
    result = run("--sblk-pool", "0")
    result.assert_outcomes(**outcomes)
    assert len(starts()) == 2
    if killed == 2:
        result.stdout.fnmatch_lines(
            [
                "the VM did not start: the virtual machine ended",
                "the virtual machine ended unexpectedly; it was killed",
                "sampleblk: 2 more tests did not run: the VM did not start (see test_it.py::test_before)",
            ]
        )


def test_the_console_is_in_the_session_s_folder(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult], starts: Callable[[], list[dict[str, str]]]
) -> None:
    kernel = pytester.path / "boot/vmlinuz"
    kernel.parent.mkdir()
    kernel.write_text("no kernel")
    pytester.makepyfile(test_it=THREE.format(it="pass"))
    run("--sblk-kernel", str(kernel)).assert_outcomes(passed=3)
    (start,) = starts()
    assert start["--kernel"] == str(kernel)
    assert Path(start["--console"]).is_relative_to(start["--run-dir"])
    assert [path.name for path in kernel.parent.iterdir()] == ["vmlinuz"]


@pytest.mark.parametrize(
    ("dies", "said"),
    [
        ("os._exit(3)", "pytest in the VM ended with status 3 under this test"),
        pytest.param(
            "os.kill(os.getpid(), signal.SIGSEGV)",
            "pytest in the VM was ended by SIGSEGV under this test",
            marks=slow,
        ),
    ],
)
def test_a_test_that_takes_its_process_down_fails_alone(
    pytester: pytest.Pytester,
    run: Callable[..., pytest.RunResult],
    starts: Callable[[], list[dict[str, str]]],
    dies: str,
    said: str,
) -> None:
    pytester.makepyfile(test_it=THREE.format(it=dies))
    result = run("-v", "--junit-xml=j.xml")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["test_it.py::test_after PASSED*", "*_ test_it _*", said])
    assert len(starts()) == 2
    assert len(list(ET.parse(pytester.path / "j.xml").getroot().iter("testcase"))) == 3


def test_a_fork_that_comes_back_from_a_test_has_no_say(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]
) -> None:
    pytester.makepyfile(
        test_it="""
        import os, pytest
        pytestmark = pytest.mark.in_vm

        @pytest.fixture
        def made():
            yield
            print("ended by", os.getpid())

        def test_child_passes(made):
            if (child := os.fork()) == 0:
                return
            os.waitpid(child, 0)
            assert 0, f"in {os.getpid()}"

        def test_child_fails():
            if (child := os.fork()) == 0:
                assert 0, "of the child"
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1

        def test_child_interrupts():
            if (child := os.fork()) == 0:
                raise KeyboardInterrupt
            os.waitpid(child, 0)

        def test_after(): pass
        """
    )
    result = run("-v", "--sblk-deadline", "60")
    result.assert_outcomes(passed=3, failed=1)
    text = result.stdout.str()
    assert "AssertionError: of the child" in text
    assert re.findall(r"ended by (\d+)", text) == re.findall(r"^E +AssertionError: in (\d+)", text, re.MULTILINE)


@pytest.mark.parametrize("plugins", [["-p", "sampleblk_lab.pytest_plugin"], []])
def test_the_plugin_may_be_named_by_its_module(
    pytester: pytest.Pytester,
    starts: Callable[[], list[dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
    plugins: list[str],
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    if not plugins:
        pytester.makeconftest("pytest_plugins = ['sampleblk_lab.pytest_plugin']")
    pytester.makepyfile(test_it="import pytest\n@pytest.mark.in_vm\ndef test_it(): pass\n")
    pytester.runpytest_subprocess("-p", "stand_in", *plugins, timeout=300).assert_outcomes(passed=1)
    assert len(starts()) == 1


@pytest.mark.parametrize("name", ["capture", "assertion"])
def test_pytest_s_own_plugins_may_be_left_out(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult], name: str
) -> None:
    pytester.makepyfile(test_it="import pytest\n@pytest.mark.in_vm\ndef test_it(): pass\n")
    run("-p", f"no:{name}").assert_outcomes(passed=1)


def test_a_test_that_is_named_twice_runs_twice(pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]) -> None:
    pytester.makepyfile(
        test_it="import pytest\n@pytest.mark.in_vm\ndef test_a(): pass\n@pytest.mark.in_vm\ndef test_b(): pass\n"
    )
    run("--keep-duplicates", "--sblk-fresh", "test", "test_it.py", "test_it.py").assert_outcomes(passed=4)


def test_a_test_may_empty_its_environment(pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]) -> None:
    pytester.makepyfile(test_it=THREE.format(it="os.environ.clear()"))
    run().assert_outcomes(passed=3)


@pytest.mark.parametrize(
    "name",
    [
        "os.write",
        "os.getpid",
        pytest.param("os.read", marks=slow),
        pytest.param("pathlib.Path.mkdir", marks=slow),
        pytest.param("shutil.copy2", marks=slow),
    ],
)
def test_what_a_test_puts_in_the_place_of_the_system_s_is_not_met_by_its_report(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult], name: str
) -> None:
    pytester.makepyfile(
        test_it=f"""
        import os, pathlib, pytest, shutil

        @pytest.mark.in_vm
        @pytest.mark.parametrize("fails", [False, True])
        def test_it(monkeypatch, tmp_path, fails):
            (tmp_path / "file").touch()
            monkeypatch.setattr("{name}", lambda *_, **__: 1 / 0)
            assert not fails, "as it should"
        """
    )
    result = run()
    result.assert_outcomes(passed=1, failed=1, warnings=int(name in ("pathlib.Path.mkdir", "shutil.copy2")))
    result.stdout.fnmatch_lines(["*AssertionError: as it should"])


KEPT = """
    import os, subprocess, time, pytest

    @pytest.fixture(scope="module")
    def kept():
        yield
        {ends}

    @pytest.mark.in_vm
    def test_it(kept):
        {it}

    @pytest.mark.in_vm
    def test_after(): pass
"""


# The session stops while a guest keeps a fixture for a test to come.
STOPS = """
    import os

    def pytest_sessionstart(session):
        global here
        here = session

    def pytest_runtest_logfinish():
        if "SAMPLEBLK_VM" not in os.environ:
            here.shouldstop = "enough"
"""


@pytest.mark.parametrize(
    ("ends", "it", "options", "outcomes", "said"),
    [
        ("assert 0", "subprocess.Popen(['sleep', '60'])", (), {"passed": 2, "errors": 1}, "*assert 0"),
        ("assert 0", "assert 1 == 2", ("-x",), {"failed": 1, "errors": 1}, "*assert 0"),
        pytest.param(
            "time.sleep(60)",
            "assert 1 == 2",
            ("-x", "--sblk-deadline=9"),
            {"failed": 1, "errors": 1},
            "the test did not end in 9 s; its virtual machine was killed",
            marks=slow,
        ),
        ("assert 0", "pass", (), {"passed": 1, "errors": 1}, "*assert 0"),
        pytest.param(
            "os._exit(3)",
            "pass",
            ("-n1",),
            {"passed": 1, "errors": 1},
            "pytest in the VM ended with status 3 when its tests had ended",
            marks=slow,
        ),
        pytest.param(
            "time.sleep(60)",
            "pass",
            ("--sblk-deadline=9",),
            {"passed": 1, "errors": 1},
            "what fixtures kept did not end in 10 s; its virtual machine was killed when its tests had ended",
            marks=slow,
        ),
    ],
)
def test_what_fails_when_a_guest_ends_is_reported(
    pytester: pytest.Pytester,
    run: Callable[..., pytest.RunResult],
    ends: str,
    it: str,
    options: tuple[str, ...],
    outcomes: dict[str, int],
    said: str,
) -> None:
    pytester.makepyfile(test_it=KEPT.format(ends=ends, it=it))
    if it == "pass":
        pytester.makeconftest(STOPS)
    with (pytester.path / "stand_in.py").open("a") as more:
        more.write("\nguests._END_S = 1.0\nresidue.present = present\n")
    result = run(*options)
    found = result.parseoutcomes()
    assert {kind: number for kind, number in found.items() if kind not in ("warning", "warnings")} == outcomes
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_it*", said])


def test_a_guest_that_dies_after_its_last_test_has_failed_it(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]
) -> None:
    pytester.makeconftest("import os\ndef pytest_sessionfinish():\n    if 'SAMPLEBLK_VM' in os.environ: os._exit(3)\n")
    pytester.makepyfile(test_it="import pytest\n@pytest.mark.in_vm\ndef test_it(): pass\n")
    result = run()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["pytest in the VM ended with status 3 when its tests had ended"])


def test_a_deadline_kills_the_vm_and_fails_the_test(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult], starts: Callable[[], list[dict[str, str]]]
) -> None:
    pytester.makepyfile(
        test_it="""
        import time, pytest
        pytestmark = pytest.mark.in_vm

        def test_hangs():
            print("said before")
            time.sleep(300)

        @pytest.mark.in_vm(deadline=1.5)
        def test_hangs_shorter(): time.sleep(300)

        @pytest.mark.in_vm(deadline=60)
        def test_may_take_longer(): time.sleep(4)

        @pytest.mark.in_vm(deadline=60)
        def test_after(): pass
        """
    )
    begin = time.monotonic()
    result = run("--sblk-deadline", "3")
    assert time.monotonic() - begin < 250  # neither slept to its end
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["the test did not end in 3 s; its virtual machine was killed"])
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_hangs_shorter - the test did not end in 1.5 s; its *"])
    assert len(starts()) == 3


def test_the_guest_ends_with_a_session_that_is_killed() -> None:
    """By launch.py, whose child here is sampleblk-python's own code, replaced by a sleep."""
    code = (
        "import subprocess, sys, os\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import sys, sampleblk_lab.vm.launch as launch\\n'"
        "'import sampleblk_lab.vm.python as vm, time\\n'"
        "'vm.main = lambda: print(\"there\", flush=True) or time.sleep(300)\\n'"
        "'launch.main()', str(os.getpid()), '2'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "import time; time.sleep(300)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    end = time.monotonic() + 20
    while Path(f"/proc/{child}/stat").exists() and time.monotonic() < end:
        if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{child}/stat").exists()
    parent.stdout.close()
    # A parent that is gone before the start is noticed too.
    orphan = [sys.executable, "-m", "sampleblk_lab.vm.launch", "1" if os.getpid() != 1 else "2", "2"]
    assert subprocess.run(orphan, check=False, capture_output=True).returncode == 1


@slow
def test_what_ends_a_session_here_ends_it_from_there(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]
) -> None:
    pytester.makepyfile(test_it=THREE.format(it="pytest.exit('enough', returncode=7)"))
    result = run()
    assert result.ret == 7
    result.stdout.fnmatch_lines(["*Exit: enough*"])
    pytester.makepyfile(test_it=THREE.format(it="raise KeyboardInterrupt"))
    assert run().ret == pytest.ExitCode.INTERRUPTED
    pytester.makepyfile(test_it=THREE.format(it="assert 0"))
    run("-x").assert_outcomes(passed=1, failed=1)
    pytester.makeconftest(
        "import os\ndef pytest_runtest_setup(item):\n"
        "    if item.name == 'test_it' and 'SAMPLEBLK_VM' in os.environ: item.session.shouldstop = 'the hook says so'\n"
    )
    pytester.makepyfile(test_it=THREE.format(it="pass"))
    result = run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*the hook says so*"])


@slow
def test_an_error_in_a_hook_fails_the_test_with_what_it_says(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]
) -> None:
    pytester.makeconftest(
        "import os\ndef pytest_runtest_logreport(report):\n"
        "    if 'SAMPLEBLK_VM' in os.environ and 'test_it' in report.nodeid.split('::')[1]: 1 / 0\n"
    )
    pytester.makepyfile(test_it=THREE.format(it="pass"))
    result = run()
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["an error in pytest, or in a plugin of it, in the VM under this test", "*ZeroDivision*"]
    )


def test_a_test_that_the_guest_does_not_have_says_why(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]
) -> None:
    _make(
        pytester,
        {
            "test_a.py": "import os, pytest\nif 'SAMPLEBLK_VM' in os.environ: import not_in_the_guest\n"
            "@pytest.mark.in_vm\ndef test_a(): pass\n",
            "test_b.py": "import os, pytest\npytestmark = pytest.mark.in_vm\n"
            "if 'SAMPLEBLK_VM' not in os.environ:\n    def test_b(): pass\ndef test_c(): pass\n",
        },
    )
    result = run()
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(["pytest in the VM did not collect this test", "*No module named 'not_in_the_guest'*"])


# --- what comes back -------------------------------------------------------------------------------------------------


def test_files_of_a_failed_test_s_tmp_path_come_back(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]
) -> None:
    pytester.makepyfile(
        test_it="""
        import os, socket
        import pytest
        pytestmark = pytest.mark.in_vm

        @pytest.fixture
        def made(tmp_path):
            (tmp_path / "by-fixture").write_text("1")

        def test_fails(made, tmp_path):
            (tmp_path / "sub").mkdir()
            (tmp_path / "sub/bytes").write_bytes(bytes(range(256)))
            (tmp_path / "link").symlink_to("sub/bytes")
            with open(tmp_path / "large", "wb") as file:
                file.truncate(65 << 20)
            os.mkfifo(tmp_path / "fifo")
            assert 0

        def test_passes(tmp_path):
            (tmp_path / "not-kept").write_text("1")

        @pytest.fixture
        def breaks():
            yield
            assert 0

        def test_fails_at_its_end(breaks, tmp_path):
            (tmp_path / "kept").write_text("1")
        """
    )
    run("-o", "tmp_path_retention_policy=none").assert_outcomes(failed=1, passed=2, errors=1)
    (folder,) = pytester.path.glob("runs/latest/0001/*test_fails-*")
    kept = folder / "tmp_path"
    assert (kept / "by-fixture").read_text() == "1"
    assert (kept / "sub/bytes").read_bytes() == bytes(range(256))
    assert (kept / "link").readlink() == Path("sub/bytes")
    assert sorted(path.name for path in kept.iterdir()) == ["by-fixture", "link", "sub"]
    left = (folder / "tmp_path-left-out.txt").read_text().splitlines()
    assert [re.sub(r".*/", "", line) for line in left] == [
        "fifo: not a regular file",
        f"large: {65 << 20} bytes, over the {64 << 20} that are kept",
    ]
    assert len(list((pytester.path / "runs/latest/0001").iterdir())) == 2


def test_output_logs_warnings_and_properties_come_back(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]
) -> None:
    pytester.makepyfile(
        test_it="""
        import logging, os, subprocess, sys, warnings
        import pytest
        pytestmark = pytest.mark.in_vm

        class Odd:
            def __reduce__(self): raise TypeError("cannot be pickled")
            def __repr__(self): return "an odd one"

        class OwnWarning(UserWarning):
            def __init__(self, one, two): super().__init__(one)

        def test_it(caplog, capsys, capfd_dummy, monkeypatch, record_property, tmp_path):
            print("from print")
            assert capsys.readouterr().out == "from print\\n"
            with caplog.at_level("INFO"):
                logging.getLogger("mine").info("told %s", "you")
            assert caplog.messages == ["told you"]
            monkeypatch.setenv("THE_VARIABLE", "set")
            assert subprocess.check_output("echo $THE_VARIABLE", shell=True) == b"set\\n"
            record_property("odd", Odd())
            warnings.warn("plain one")
            warnings.warn(OwnWarning("own one", 2))
            logging.getLogger("mine").warning("told at the end")

        @pytest.fixture
        def capfd_dummy(): pass

        def test_shows():
            print("on stdout")
            print("on stderr", file=sys.stderr)
            os.system("echo by a process")
            logging.getLogger("mine").warning("a record")
            assert 0
        """
    )
    result = run("-o", "junit_family=xunit1", "--junit-xml=j.xml")
    result.assert_outcomes(passed=1, failed=1, warnings=2)
    result.stdout.fnmatch_lines(["*UserWarning: plain one*", "*own one*"])
    result.stdout.fnmatch_lines(
        ["on stdout", "by a process", "*Captured stderr*", "on stderr", "*Captured log*", "*a record"]
    )
    properties = {p.get("name"): p.get("value") for p in ET.parse(pytester.path / "j.xml").iter("property")}
    assert properties["odd"] == "an odd one"


def test_a_test_fails_by_its_subtests(pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]) -> None:
    pytester.makepyfile(
        test_it="""
        import pytest
        @pytest.mark.in_vm
        def test_it(subtests):
            for number in range(2):
                with subtests.test(number=number):
                    assert number
        """
    )
    result = run()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["SUBFAILED*number='0'*", "FAILED *::test_it - contains 1 failed subtest"])


@pytest.mark.parametrize(("most", "begun"), [("-x", 1), ("--maxfail=2", 2), ("--maxfail=9", 3)])
def test_no_subtest_begins_after_the_last_failure_that_is_waited_for(
    most: str, begun: int, pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]
) -> None:
    pytester.makepyfile(
        test_it="""
        import pytest
        @pytest.mark.in_vm
        def test_it(subtests):
            for number in range(3):
                with subtests.test():
                    assert number < 0
        """
    )
    run(most).assert_outcomes(failed=begun + 1)


def test_a_fixture_that_fails_is_told_as_on_the_host(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]
) -> None:
    pytester.makeconftest("import pytest\n@pytest.fixture\ndef fails(): raise ValueError('of mine')\n")
    pytester.makepyfile(test_it="import pytest\n@pytest.mark.in_vm\ndef test_it(fails): pass\n")
    result = run("--tb=short", "-q")
    result.assert_outcomes(errors=1)
    assert "worker.py" not in result.stdout.str()


def test_fixtures_add_to_the_junit_report(pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]) -> None:
    pytester.makepyfile(
        test_it="""
        import pytest
        pytestmark = pytest.mark.in_vm
        def test_it(record_testsuite_property, record_xml_attribute):
            record_testsuite_property("disk", 7)
            record_xml_attribute("assertions", 42)
        """
    )
    run("--junit-xml=j.xml", "-o", "junit_family=xunit1").assert_outcomes(passed=1, warnings=1)
    report = ET.parse(pytester.path / "j.xml")
    assert [(p.get("name"), p.get("value")) for p in report.iter("property")][:1] == [("disk", "7")]
    assert [case.get("assertions") for case in report.iter("testcase")] == ["42"]
    # As on the host, where no such attribute goes into a report of the other kind.
    run("--junit-xml=j.xml").stdout.fnmatch_lines(["*record_xml_attribute is incompatible with junit_family 'xunit2'*"])


LIVE = """
    import logging, os, sys, time
    import pytest

    @pytest.fixture
    def made(): logging.getLogger("mine").info("while made")

    @pytest.mark.in_vm
    def test_live(made):
        print("printed")
        print("complained", file=sys.stderr)
        os.system("echo by a process")
        logging.getLogger("mine").info("while called")
        assert not sys.stdin.read() if os.environ.get("READS") else True
"""


def test_s_shows_what_a_test_writes(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("READS", "1")
    pytester.makepyfile(test_it=LIVE)
    result = run("-s")
    result.assert_outcomes(passed=1)
    for line in ("printed", "complained", "by a process"):
        result.stdout.fnmatch_lines([f"*{line}"])


def test_live_logs_and_fixtures_are_shown(pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]) -> None:
    pytester.makepyfile(test_it=LIVE)
    result = run("-o", "log_cli=true", "--log-cli-level=INFO")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*live log setup*", "INFO *while made*", "*live log call*", "INFO *while called*", "PASSED*"]
    )
    result = run("--setup-show")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*SETUP    F made*", "*test_it.py::test_live (fixtures used: made*", "*TEARDOWN F made*"]
    )


@pytest.mark.parametrize("workers", ["-n0", pytest.param("-n2", marks=slow)])
def test_coverage_has_what_ran_in_the_guest(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult], workers: str
) -> None:
    _make(
        pytester,
        {
            "code/project.py": """
                def here():
                    return 1

                def there():
                    return 2

                def nowhere():
                    return 3
            """,
            "test_it.py": """
                import sys
                sys.path.insert(0, "code")
                import project, pytest

                def test_host(): project.here()

                @pytest.mark.in_vm
                def test_guest(): project.there()
            """,
        },
    )
    result = run("--cov=code", "--cov-report=json", "--cov-branch", workers, every_plugin=True)
    result.assert_outcomes(passed=2)
    assert result.ret == 0
    assert "INTERNALERROR" not in result.stdout.str()
    (measured,) = json.loads((pytester.path / "coverage.json").read_text())["files"].values()
    assert measured["missing_lines"] == [8]


# --- debuggers -------------------------------------------------------------------------------------------------------

BUGGY = """
    import pytest

    @pytest.mark.in_vm
    def test_it():
        value = 6 * 7
        {stop}
        assert value == 43

    @pytest.mark.in_vm
    def test_after(): pass
"""


def _typed(pytester: pytest.Pytester, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "stand_in", *QUICK, *options]
    return subprocess.run(
        command, cwd=pytester.path, input=text, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.usefixtures("starts")
def test_a_debugger_in_the_guest_reads_our_standard_input(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=BUGGY.format(stop="breakpoint()"))
    done = _typed(pytester, "p 'it', value\nvalue = 43\nc\n")
    assert "('it', 42)" in done.stdout
    assert "PDB set_trace" in done.stdout
    assert "PDB continue (IO-capturing resumed)" in done.stdout
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout

    pytester.makepyfile(test_it=BUGGY.format(stop="print('before')"))
    done = _typed(pytester, "p 'it', value\nc\n", "--pdb")
    assert "('it', 42)" in done.stdout
    assert "before" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert done.stdout.count("assert value == 43") <= 2  # by the debugger, and not again in a summary

    done = _typed(pytester, "p 'it', value\nq\n", "--pdb")
    assert "Quitting debugger" in done.stdout
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    assert "passed" not in done.stdout

    done = _typed(pytester, "n\nn\np 'it', value\nc\nc\n", "--trace")
    assert "('it', 42)" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert done.returncode == pytest.ExitCode.TESTS_FAILED

    # Nothing to read: pytest quits, as it does without a VM.
    done = _typed(pytester, "", "--pdb")
    assert "Quitting debugger" in done.stdout


def test_a_debugger_is_refused_where_there_is_no_terminal(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]
) -> None:
    pytester.makepyfile(test_it=BUGGY.format(stop="breakpoint()"))
    result = run("-n2")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["a debugger in the VM needs the terminal of the session: run it without -n"])
    result = run("-n2", "--trace")
    result.assert_outcomes(failed=2)


@pytest.mark.usefixtures("starts")
def test_a_debugger_in_the_guest_has_our_terminal(pytester: pytest.Pytester) -> None:
    pexpect = pytest.importorskip("pexpect")
    pytester.makepyfile(test_it=BUGGY.format(stop="breakpoint()"))
    command = ["-m", "pytest", "-p", "stand_in", *QUICK, "--sblk-deadline", "4"]
    child = pexpect.spawn(sys.executable, command, cwd=str(pytester.path), timeout=60, dimensions=(33, 101))
    child.expect_exact("(Pdb) ")
    child.sendline("!import os, sys; print('it has', os.isatty(0), os.isatty(1), tuple(os.get_terminal_size(1)))")
    child.expect_exact("it has True True (101, 33)")
    child.expect_exact("(Pdb) ")
    # Line editing: the wrong letter goes before the line is sent. Then a completion, and Ctrl-C instead of an answer.
    child.sendline("p 'edited', valuf\x7fe")
    child.expect_exact("('edited', 42)")
    child.expect_exact("(Pdb) ")
    child.send("p 'done', valu\t\n")
    child.expect_exact("('done', 42)")
    child.expect_exact("(Pdb) ")
    child.sendline("import time; time.sleep(60)")
    time.sleep(1)
    child.send("\x03")
    child.expect("KeyboardInterrupt")
    child.expect_exact("(Pdb) ")
    time.sleep(4)  # whoever debugs has no deadline
    child.sendline("value = 43")
    child.expect_exact("(Pdb) ")
    child.sendline("c")
    child.expect_exact("2 passed")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


# --- fresh guests ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "mark", "guests"),
    [
        ([], "", 1),
        (["--sblk-fresh", "test"], "", 3),
        pytest.param(["-o", "sblk_fresh=module"], "", 2, marks=slow),
        pytest.param([], "fresh='test'", 3, marks=slow),
    ],
)
def test_what_is_isolated_has_a_guest_of_its_own(
    pytester: pytest.Pytester,
    run: Callable[..., pytest.RunResult],
    starts: Callable[[], list[dict[str, str]]],
    options: list[str],
    mark: str,
    guests: int,
) -> None:
    _make(
        pytester,
        {
            "test_a.py": f"""
                import os, pytest
                @pytest.fixture(scope="module")
                def shared():
                    yield os.getpid()
                @pytest.mark.in_vm
                def test_one(shared): print("guest", os.getpid())
                @pytest.mark.in_vm({mark})
                def test_two(shared): print("guest", os.getpid())
            """,
            "test_b.py": """
                import os, pytest
                @pytest.mark.in_vm
                def test_three(): print("guest", os.getpid())
            """,
        },
    )
    result = run("-rP", *options)
    result.assert_outcomes(passed=3)
    assert len(starts()) == guests
    assert len(set(re.findall(r"^guest (\d+)$", result.stdout.str(), re.MULTILINE))) == guests


# --- guests that wait ------------------------------------------------------------------------------------------------

WAITING = """
    import os, pytest, signal, time
    from pathlib import Path
    pytestmark = pytest.mark.in_vm
    LOG = Path(os.environ["LOCAL_GUEST_LOG"])

    def started(wanted):
        end = time.monotonic() + (20 if wanted > 1 else 1)
        while len(LOG.read_text().splitlines()) < wanted and time.monotonic() < end:
            time.sleep(0.05)
        return len(LOG.read_text().splitlines())

    def stat(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return ["gone", ""]

    def test_one():
        assert started(int(os.environ["GUESTS"])) == int(os.environ["GUESTS"])
        for pid in [] if "KILL" not in os.environ else map(int, filter(str.isdigit, os.listdir("/proc"))):
            if stat(pid)[1] == str(os.getppid()) and pid != os.getpid():
                os.kill(pid, signal.SIGKILL)
                while stat(pid)[0] not in ("Z", "gone"):
                    time.sleep(0.01)

    def test_two(): pass
    def test_three(): pass
    def test_here(): pass
"""


@pytest.mark.parametrize(
    ("pool", "guests", "kill"), [("0", 1, False), ("1", 2, True), pytest.param("2", 3, False, marks=slow)]
)
def test_the_guests_of_tests_to_come_are_started_beside_one_that_runs(
    pytester: pytest.Pytester,
    run: Callable[..., pytest.RunResult],
    starts: Callable[[], list[dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
    pool: str,
    guests: int,
    kill: bool,
) -> None:
    """One that is killed while it waits fails nothing."""
    _make(pytester, {"test_a.py": WAITING})
    monkeypatch.setenv("GUESTS", str(guests))
    if kill:
        monkeypatch.setenv("KILL", "1")
    run("--sblk-fresh", "test", "--sblk-pool", pool).assert_outcomes(passed=4)
    assert len(starts()) == 4 + kill


def test_none_waits_for_which_there_is_no_memory(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    _make(pytester, {"test_a.py": WAITING})
    with (pytester.path / "stand_in.py").open("a") as file:
        file.write("\nimport sampleblk_lab.pytest_plugin.waiting as waiting\nwaiting.available_mib = lambda: 2300\n")
    monkeypatch.setenv("GUESTS", "1")
    run("--sblk-fresh", "test", "--sblk-pool", "2").assert_outcomes(passed=4)


class _Waiter:
    """As much of a guest as :class:`Waiting` knows."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def wait_until_ready(self) -> None:
        self.said.append("ready")

    def has_ended(self) -> bool:
        return False

    def kill(self) -> None:
        self.said.append("killed")


def test_what_measures_waits_for_those_that_are_being_started(pytester: pytest.Pytester) -> None:
    items = pytester.getitems("""
        def test_a(measure): pass
        def test_b(): pass
        def test_c(): pass
    """)
    for item in items:
        item.add_marker("in_vm")
        item.session.items = items
    made: dict[str, _Waiter] = {}

    def start(item: pytest.Item) -> Any:
        return made.setdefault(item.name, _Waiter())

    guests = waiting.Waiting(items[0].config, lambda item: item.name, start)
    items[0].config.stash[options._SETTINGS] = dataclasses.replace(options.of(items[0].config), pool=2)
    assert [waiting.is_disturbed(item) for item in items] == [True, False, False]
    guests.fill(items[0], items[1])
    guests.settle()
    assert {name: one.said for name, one in made.items()} == {"test_b": ["ready"], "test_c": ["ready"]}
    guests.fill(items[0], items[2])  # as when the one between was deselected
    assert made["test_b"].said == ["ready", "killed"]
    assert guests.take("test_b") is None
    assert guests.take("test_c") is made["test_c"]


# --- plugins ---------------------------------------------------------------------------------------------------------

PLUGINS = {
    "acme_report": "import pytest\ndef pytest_addoption(parser):\n    parser.addini('acme_report_style', 'how')\n"
    "    parser.getgroup('style').addoption('--acme-report', default='')\n"
    "def pytest_terminal_summary(terminalreporter): terminalreporter.write_line('reports of acme')\n"
    "class Defaults:\n    def __getattr__(self, name): raise KeyError(name)\ndefaults = Defaults()\n"
    "@pytest.fixture\ndef acme_value(): return 'value of acme'\n",
    "acme_runs": "def pytest_runtest_setup(item): item.acme_ran = True\n"
    "def pytest_addoption(parser): parser.extra_info['acme'] = 'of what only the true parser has'\n",
    "acme_mark": "def pytest_configure(config): config.addinivalue_line('markers', 'acme(x): a mark')\n"
    "def pytest_report_header(config): return 'acme header'\n"
    "class Hooks:\n    def pytest_acme(self): 'may be declared once'\n"
    "def pytest_addoption(parser, pluginmanager): pluginmanager.add_hookspecs(Hooks)\n",
}


@pytest.fixture
def acme(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three plugins as distributions have them."""
    site = pytester.path / "site"
    for name, code in PLUGINS.items():
        about = site / f"{name}-1.dist-info"
        about.mkdir(parents=True)
        (site / f"{name}.py").write_text(code)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (about / "entry_points.txt").write_text(f"[pytest11]\n{name.replace('_', '-')} = {name}\n")
        (about / "RECORD").write_text(f"{name}.py,,\n")
    monkeypatch.setenv("PYTHONPATH", str(site))


LOADED = """
    import sys
    import pytest

    @pytest.mark.in_vm
    {mark}
    def test_it({fixture}request):
        names = ("a" + "cme_report", "a" + "cme_runs", "a" + "cme_mark", "_hypo" + "thesis_pytestplugin", "xdi" + "st")
        {more}
        print("loaded", [name for name in names if name in sys.modules])
"""


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    ("options", "mark", "fixture", "more", "loaded"),
    [
        ([], "", "acme_value, ", "assert acme_value == 'value of acme'", ["acme_report", "acme_runs"]),
        ([], "@pytest.mark.acme(1)", "", "assert request.node.acme_ran", ["acme_runs", "acme_mark"]),
        (["-p", "no:acme-runs"], "", "", "pass", []),
        *(
            pytest.param(*case, marks=slow)
            for case in (
                ([], "", "", "request.getfixturevalue('acme_value')", ["acme_report", "acme_runs"]),
                (["--acme-report=x"], "", "", "pass", ["acme_report", "acme_runs"]),
                (["-o", "acme_report_style=x"], "", "", "pass", ["acme_report", "acme_runs"]),
                (["-p", "acme-mark"], "", "", "import hypothesis", ["acme_runs", "_hypothesis_pytestplugin"]),
                ([], "", "worker_id, ", "assert worker_id == 'master'", ["acme_runs", "xdist"]),
            )
        ),
    ],
)
def test_the_guest_loads_the_plugins_that_its_tests_use(
    pytester: pytest.Pytester,
    run: Callable[..., pytest.RunResult],
    options: list[str],
    mark: str,
    fixture: str,
    more: str,
    loaded: list[str],
) -> None:
    pytester.makeini(
        "[pytest]\naddopts = --strict-markers --strict-config -rA\nacme_report_style =\n"
        "required_plugins = acme_report\nfilterwarnings =\n    error\n"
        "    ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning\n"
    )
    pytester.makepyfile(test_it=LOADED.format(mark=mark, fixture=fixture, more=more))
    result = run(*options, every_plugin=True)
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"loaded {loaded}".replace("[", "[[]"), "reports of acme"])


@pytest.mark.usefixtures("acme")
def test_assertions_of_installed_plugins_are_rewritten(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]
) -> None:
    site = pytester.path / "site"
    (site / "acme_checks.py").write_text("def same(one, other):\n    assert one == other\n")
    (site / "acme_mark-1.dist-info/RECORD").write_text("acme_mark.py,,\nacme_checks.py,,\n")
    pytester.makepyfile(
        test_it="""
        import pytest
        from acme_checks import same
        @pytest.mark.in_vm
        def test_it(): same([1, 2], [1, 3])
        """
    )
    result = run(every_plugin=True)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*At index 1 diff: 2 != 3*"])


def test_a_file_s_name_may_be_any(pytester: pytest.Pytester, run: Callable[..., pytest.RunResult]) -> None:
    """Of [ and :: in a path pytest makes a test's name, and then none of the session's was found in the VM."""
    text = "import pytest\n@pytest.mark.in_vm\ndef test_it(): pass\n"
    for name in ("[2026] é", "a::b"):
        (pytester.path / name).mkdir()
        (pytester.path / name / "test_it.py").write_text(text)
    run("--import-mode=importlib").assert_outcomes(passed=2)


def test_a_fixture_that_only_this_process_has_is_refused(
    pytester: pytest.Pytester, starts: Callable[[], list[dict[str, str]]]
) -> None:
    pytester.makepyfile(
        test_it="""
        import pytest
        @pytest.mark.in_vm
        def test_it(only_here): pass
        @pytest.mark.in_vm
        def test_other(also_there): pass
        """,
        of_a_module="import pytest\n@pytest.fixture\ndef also_there(): pass\n",
        main="""
        import sys, pytest, of_a_module

        class Plugin:
            @pytest.fixture
            def only_here(self): return 1

        sys.exit(pytest.main(["-p", "stand_in", "-p", "no:cacheprovider"], plugins=[Plugin(), of_a_module]))
        """,
    )
    done = pytester.runpython("main.py")
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(["the fixture only_here comes from an object that only this process has*"])
    assert len(starts()) == 1


@pytest.mark.parametrize("workers", ["", "-n2"])
def test_a_fixture_whose_account_only_this_process_has_is_refused(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult], workers: str
) -> None:
    """Syrupy deleted the snapshots of VM tests, and pytest-benchmark had not saved what it said."""
    _make(
        pytester,
        {
            "syrupy/__init__.py": """
                import pytest
                def pytest_addoption(parser):
                    parser.addoption("--snapshot-update", action="store_true", dest="update_snapshots")
                @pytest.fixture
                def snapshot(): pass
                @pytest.hookimpl(tryfirst=True)
                def pytest_sessionfinish(session):
                    if session.config.option.update_snapshots and not hasattr(session.config, "workerinput"):
                        raise ValueError("deletes them")
            """,
            "pytest_benchmark/plugin.py": """
                import pytest
                def pytest_addoption(parser):
                    parser.addoption("--benchmark-disable", action="store_true")
                @pytest.fixture
                def benchmark(): pass
            """,
            "test_it.py": """
                import pytest
                @pytest.fixture
                def mine(snapshot): pass
                @pytest.mark.in_vm
                def test_mine(mine): pass
                @pytest.mark.in_vm
                class TestOwn:
                    @pytest.fixture
                    def snapshot(self): pass
                    def test_own(self, snapshot): pass
                def test_here(snapshot): pass
                @pytest.mark.in_vm
                def test_speed(benchmark): pass
            """,
        },
    )
    pytester.syspathinsert()
    options = ["-p", "syrupy", "-p", "pytest_benchmark.plugin", *workers.split()]
    result = run(*options, "--snapshot-update")
    # Under xdist pytest-benchmark measures nothing.
    result.assert_outcomes(passed=3 if workers else 2, errors=1 if workers else 2)
    result.stdout.fnmatch_lines(["the fixture snapshot of syrupy does not work in a VM*(expected --sblk-host,*"])
    assert "deletes them" not in result.stdout.str() + result.stderr.str()
    run(*options, "--benchmark-disable", "-k", "speed").assert_outcomes(passed=1)


def test_options_reach_the_guest_as_they_were_parsed(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    _make(
        pytester,
        {
            "conftest.py": """
                class Level:
                    def __init__(self, text): self.text = text

                def pytest_addoption(parser):
                    parser.addoption("--level", type=Level)
                    parser.addoption("--flag", action="store_true")
                    parser.addoption("--from-env", default="no")
                    parser.addoption("--unsendable", type=lambda text: (one for one in text))
            """,
            "tests/test_it.py": """
                import os, pytest

                @pytest.mark.in_vm
                def test_it(request, tmp_path):
                    config = request.config
                    assert config.getoption("--level").text == "test_it.py"
                    assert config.getoption("--flag")
                    assert config.getoption("--from-env") == "yes"
                    assert config.getoption("verbose") == 2
                    assert config.getini("usefixtures") == ["tmp_path"]
                    assert os.environ["PYTEST_ADDOPTS"] == "--from-env=yes"
                    assert "PYTEST_DISABLE_PLUGIN_AUTOLOAD" not in os.environ
                    assert config.rootpath.name == request.path.parents[1].name
                    assert os.getcwd() == str(config.rootpath)
                    assert request.node.nodeid == "tests/test_it.py::test_it"

                @pytest.mark.in_vm
                def test_assertions_are_rewritten():
                    assert [1, 2] == [1, 3]
            """,
        },
    )
    monkeypatch.setenv("PYTEST_ADDOPTS", "--from-env=yes")
    pytester.makeini("[pytest]\naddopts = --flag tests\n")
    result = run("-vv", "--level", "test_it.py", "-o", "usefixtures=tmp_path", "--import-mode=importlib", "-k", "test_")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*At index 1 diff: 2 != 3*"])
    result = run("-vv", "--level", "test_it.py", "-o", "usefixtures=tmp_path", "--unsendable", "x")
    result.stdout.fnmatch_lines(["*the VM is not given options whose values cannot be sent: unsendable*"])


@slow
def test_a_timeout_of_a_test_does_not_count_the_vm_s_start(
    pytester: pytest.Pytester, run: Callable[..., pytest.RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_GUEST_SECONDS", "4")
    pytester.makepyfile(
        test_it="""
        import time, pytest
        pytestmark = [pytest.mark.in_vm, pytest.mark.timeout(2)]
        def test_quick(): pass
        def test_slow(): time.sleep(60)
        def test_after(): pass
        """
    )
    result = run(every_plugin=True)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*Failed: Timeout*2.0s*"])
