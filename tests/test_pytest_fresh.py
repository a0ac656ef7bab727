# SPDX-License-Identifier: MIT
"""Tests that each have a fresh machine, with real ones: most begin in it with what was collected once."""

import re
from pathlib import Path

import pytest

from sampleblk_lab.paths import cache_root
from sampleblk_lab.vm.machine import VM
from support import QUICK

COUNT = 7

TESTS = f"""
    import asyncio, os, random, secrets, statistics, subprocess, time, uuid
    from pathlib import Path
    import numpy, pytest

    pytestmark = pytest.mark.in_vm(fresh="test")
    COLLECTED = secrets.token_hex(8)
    changed = []

    @pytest.mark.parametrize("number", range({COUNT}))
    def test_it(number, tmp_path, capfd):
        here = Path(__file__)
        assert here.parent == Path.cwd()
        assert here.read_text().count("def test_it") == 2  # of the host, by now as at first
        assert abs(time.time() - float(subprocess.check_output(["date", "+%s.%N"]))) < 5
        # Nothing is there of another test's, in the process or in the machine.
        assert changed == []
        changed.append(number)
        for mark in (Path("/left"), tmp_path / "left", Path("/dev/shm/left")):
            assert not mark.exists()
            mark.touch()
        mounted = Path("/proc/mounts").read_text()
        assert " /mnt " not in mounted
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=True)
        subprocess.run(["modprobe", "null_blk", "nr_devices=1"], check=True)
        capfd.readouterr()
        os.system("echo by a process")
        assert capfd.readouterr().out == "by a process\\n"
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        drawn = (boot, os.urandom(8).hex(), uuid.uuid4().hex, random.random(), numpy.random.random())
        with capfd.disabled():
            print(f"\\n{{number}} drew", COLLECTED, *drawn, flush=True)
        print("the output of", number)
        assert number != 5
"""


@pytest.fixture(autouse=True)
def _ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same cache as outside, and a template in it."""
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(cache_root()))
    VM().make_template()


def _drawn(pytester: pytest.Pytester, *options: str) -> list[list[str]]:
    """What each test printed that it drew, once all have passed but for the one that fails."""
    pytester.makepyfile(test_it=TESTS)
    result = pytester.runpytest_subprocess(*QUICK, *options, timeout=300)
    result.assert_outcomes(passed=COUNT - 1, failed=1)
    assert "the output of 5" in result.stdout.str()
    assert "the output of 4" not in result.stdout.str()
    found = re.findall(r"^(\d) drew (.*)$", result.stdout.str(), re.MULTILINE)
    assert [int(number) for number, _ in found] == list(range(COUNT))
    return [text.split() for _, text in found]


@pytest.mark.usefixtures("no_leftovers")
def test_what_is_collected_once_is_where_each_machine_begins(pytester: pytest.Pytester) -> None:
    collected, *random_ones = zip(*_drawn(pytester), strict=True)
    assert len(set(collected)) == 2  # the first test does not wait for what the others begin with
    for kind in random_ones:
        assert len(set(kind)) == COUNT


@pytest.mark.usefixtures("no_leftovers")
def test_each_worker_of_xdist_has_its_own_image(pytester: pytest.Pytester) -> None:
    test = """
        import secrets
        from pathlib import Path
        import pytest

        pytestmark = pytest.mark.in_vm(fresh="test")
        COLLECTED = secrets.token_hex(8)

        @pytest.mark.parametrize("number", range(6))
        def test_it(number, worker_id):
            print("drew", worker_id, COLLECTED, Path("/proc/sys/kernel/random/boot_id").read_text())
            assert number != 5
        """
    pytester.makepyfile(test_a=test, test_b=test)
    result = pytester.runpytest_subprocess(*QUICK, "-n2", "--dist=loadfile", "-rP", timeout=300)
    result.assert_outcomes(passed=10, failed=2)
    drawn = [text.split() for text in re.findall(r"^drew (.*)$", result.stdout.str(), re.MULTILINE)]
    workers, _, boots = zip(*drawn, strict=True)
    assert workers.count("gw0") == workers.count("gw1") == 6
    assert len(set(boots)) == 12
    for own in set(workers):
        # Its first test, those that machines of the pool were started for meanwhile, and the image's.
        assert len({collected for worker, collected, _ in drawn if worker == own}) < 5


@pytest.mark.parametrize(
    "conftest",
    [
        "kept = open(__file__)",
        pytest.param("import subprocess; kept = subprocess.Popen(['sleep', '1000'])", marks=pytest.mark.full),
        pytest.param(
            "import threading, time; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
            marks=pytest.mark.full,
        ),
        pytest.param("import ctypes; ctypes.CDLL(None).unshare(0x20000)", marks=pytest.mark.full),
        pytest.param(
            "import ctypes; c = ctypes.CDLL(None); c.inotify_add_watch(c.inotify_init(), b'/tmp', 2)",
            marks=pytest.mark.full,
        ),
    ],
)
@pytest.mark.usefixtures("no_leftovers")
def test_what_is_in_use_cannot_be_saved_and_each_test_collects_by_itself(
    pytester: pytest.Pytester, conftest: str
) -> None:
    pytester.makeconftest(conftest)
    collected, *_ = zip(*_drawn(pytester), strict=True)
    assert len(set(collected)) == COUNT


BEGUN = """
    import logging, os, random, signal
    import pytest

    logging.basicConfig(level="INFO")  # which keeps the file that standard error is captured in
    random.random()
    signals = set()

    def handler(number, frame):
        with open(__file__):
            signals.add(number)

    if "SAMPLEBLK_VM" in os.environ:
        signal.signal(signal.SIGCONT, handler)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)

    def pytest_runtest_logstart(nodeid):
        print("not of the test")

    def pytest_runtest_setup(item):
        logging.info("logged")
        while not signals:
            pass
        assert signals == {signal.SIGALRM}

    def pytest_runtest_logreport(report):
        if report.when == "setup":
            assert report.capstderr == "INFO:root:logged\\n"
            assert report.capstdout == ""
"""


@pytest.mark.usefixtures("no_leftovers")
def test_what_a_conftest_has_begun_goes_on_in_each_machine(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    pytester.makeconftest(BEGUN)
    collected, *random_ones = zip(*_drawn(pytester), strict=True)
    assert len(set(collected)) == 2
    for kind in random_ones:
        assert len(set(kind)) == COUNT
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_an_image_that_is_lost_is_not_made_again(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import os, signal
        from pathlib import Path

        # The image is ready by the second test's end.
        def pytest_runtest_logfinish(nodeid):
            if "[0]" in nodeid or "SAMPLEBLK_VM" in os.environ:
                return
            for process in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                if b"--make-image" in Path("/proc", process, "cmdline").read_bytes():
                    os.kill(int(process), signal.SIGKILL)
                    with open("killed", "a") as file:
                        print(nodeid, file=file)
        """
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.in_vm(fresh="test")
        @pytest.mark.parametrize("number", range(14))
        def test_it(number): pass
        """
    )
    result = pytester.runpytest_subprocess(*QUICK, timeout=300)
    result.assert_outcomes(passed=14)
    assert len(set((pytester.path / "killed").read_text().splitlines())) == 1


@pytest.mark.full
def test_the_time_that_a_machine_may_take_is_that_of_a_clone(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMPLEBLK_TIMEOUT", "30")
    pytester.makepyfile(
        """
        import pytest, time

        @pytest.mark.in_vm(fresh="test")
        @pytest.mark.parametrize("number", range(6))
        def test_it(number):
            if number == 4:
                time.sleep(200)
        """
    )
    result = pytester.runpytest_subprocess(*QUICK, timeout=300)
    result.assert_outcomes(passed=5, failed=1)


@pytest.mark.full
def test_numbers_that_a_module_has_seeded_are_those_of_its_seed(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import random; random.seed(7)")
    *_, drawn, other = zip(*_drawn(pytester), strict=True)
    assert len(set(drawn)) == 1
    assert len(set(other)) == COUNT


def test_a_machine_that_is_lost_fails_its_test_alone(pytester: pytest.Pytester) -> None:
    """With what each begins with, as without."""
    pytester.makepyfile(
        test_it="""
        import os, signal, time
        import pytest

        pytestmark = pytest.mark.in_vm(fresh="test", deadline=10)

        @pytest.mark.parametrize("number", range(9))
        def test_it(number):
            if number == 3:
                open("/proc/sysrq-trigger", "w").write("c")
                time.sleep(60)
            if number == 5:
                os._exit(3)
            if number == 6:
                os.kill(os.getpid(), signal.SIGSTOP)
            if number == 7:
                pytest.exit("enough")
        """
    )
    result = pytester.runpytest_subprocess(*QUICK, timeout=300)
    result.assert_outcomes(passed=4, failed=3)
    text = result.stdout.str()
    assert "the guest's kernel panicked" in text
    assert "pytest in the VM ended with status 3" in text
    assert "the test did not end in 10 s" in text
    assert "enough" in text
