# SPDX-License-Identifier: MIT
"""The plugin, as its users meet it: a pytest of its own for each case."""

import fnmatch
import re
import subprocess
import sys

import pytest

from sampleblk_lab.paths import cache_root
from sampleblk_lab.pytest_plugin import kernel_log
from support import QUICK

HEAVY = ("numpy", "sampleblk_lab._core", "sampleblk_lab.table", "sampleblk_lab.vm", "xdist.dsession", "subprocess")


@pytest.fixture(autouse=True)
def _same_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytester has a home of its own; kernels and states stay where they are."""
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(cache_root()))


def test_loading_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import sampleblk_lab.pytest_plugin\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "sampleblk_lab.pytest_plugin" in loaded
    assert not loaded.intersection(HEAVY)


def test_a_session_without_tests_of_ours_imports_nothing_heavy(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")
    pytester.makeconftest(
        """
        import pathlib, sys

        def pytest_unconfigure():
            pathlib.Path("loaded").write_text("\\n".join(sys.modules))
        """
    )
    pytester.runpytest_subprocess(timeout=60).assert_outcomes(passed=1)
    loaded = set((pytester.path / "loaded").read_text().splitlines())
    assert "sampleblk_lab.pytest_plugin" in loaded
    assert not loaded.intersection(HEAVY) - {"subprocess"}  # others' plugins import that


@pytest.mark.usefixtures("no_leftovers")
def test_a_panic_fails_one_test_and_the_next_gets_a_fresh_vm(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import os, time
        import pytest

        pytestmark = pytest.mark.in_vm

        def test_before():
            assert os.uname().nodename == "sampleblk"

        def test_panic():
            open("/proc/sysrq-trigger", "w").write("c")
            time.sleep(30)

        def test_after():
            assert os.uname().nodename == "sampleblk"
        """
    )
    result = pytester.runpytest_subprocess("-v", *QUICK, timeout=300)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*::test_panic FAILED*",
            "*::test_after PASSED*",
            "*_ test_panic _*",
            "the guest's kernel panicked under this test",
            "*Guest console*",
            "*Kernel panic - not syncing: sysrq triggered crash*",
            "FAILED *::test_panic - the guest's kernel panicked *",
        ]
    )


def test_each_test_runs_where_it_belongs(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import os
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):  # as pytest-rerunfailures has it
            if item.name != "test_once_more" or "SAMPLEBLK_VM" not in os.environ:
                return None
            runtestprotocol(item, nextitem=nextitem, log=False)
            runtestprotocol(item, nextitem=nextitem)
            return True
        """
    )
    pytester.makepyfile(
        test_it="""
        import os
        import pytest

        def test_host():
            assert "SAMPLEBLK_VM" not in os.environ

        @pytest.mark.in_vm
        @pytest.mark.parametrize("odd", ["a/b", "c d", "[e]"])
        def test_guest(odd):
            assert "SAMPLEBLK_VM" in os.environ

        @pytest.mark.in_vm
        def test_kernel_complains():
            with open("/dev/kmsg", "w") as log:
                log.write("WARNING: CPU: 0 PID: 1 at made/up.c:1\\n")
            pytest.skip("which is no excuse")

        @pytest.mark.in_vm
        def test_tainted():
            with open("/proc/sys/kernel/tainted", "w") as taint:
                taint.write("512")

        runs = []

        @pytest.mark.in_vm
        def test_once_more():
            runs.append(1)
            if len(runs) == 2:
                with open("/dev/kmsg", "w") as log:
                    log.write("BUG: made up\\n")

        def test_host_too():
            assert "SAMPLEBLK_VM" not in os.environ
        """
    )
    result = pytester.runpytest_subprocess("-v", "-p", "no:cacheprovider", "test_it.py")
    result.assert_outcomes(passed=5, failed=3)
    result.stdout.fnmatch_lines(
        [
            "*collected 8 items*",
            "*[[]100%[]]*",
            "the kernel complained: *WARNING: CPU: 0*",
            "FAILED *::test_kernel_complains - the kernel complained: *",
            "FAILED *::test_tainted - the kernel complained: kernel taint 512 *",
            "FAILED *::test_once_more - the kernel complained: *",
        ]
    )
    assert "[120%]" not in result.stdout.str()


@pytest.mark.usefixtures("no_leftovers")
def test_a_vm_in_which_a_test_left_something_is_retired(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import os, subprocess
        from pathlib import Path
        import pytest

        pytestmark = pytest.mark.in_vm
        BOOT = Path("/proc/sys/kernel/random/boot_id")

        @pytest.fixture(scope="module")
        def folder(tmp_path_factory):
            made = tmp_path_factory.mktemp("mounted")
            subprocess.run(["mount", "-t", "tmpfs", "none", made], check=True)
            yield made
            subprocess.run(["umount", made], check=True)

        @pytest.fixture(autouse=True)
        def mark():
            yield
            Path("/tmp/been-here").touch()

        def test_clean(tmp_path):
            subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path], check=True)
            subprocess.run(["umount", tmp_path], check=True)

        def test_leaves_a_mount(tmp_path):
            assert Path("/tmp/been-here").exists()
            subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path], check=True)

        def test_in_a_fresh_one(sampleblk):
            assert not Path("/tmp/been-here").exists()

        def test_after_a_device():
            assert Path("/tmp/been-here").exists()

        def test_shared(folder):
            assert Path("/tmp/been-here").exists()

        def test_after_what_is_shared(folder):
            assert Path("/tmp/been-here").exists()

        @pytest.mark.kernel_warning("at made/[a-z]+[.]c")
        def test_provokes_a_warning():
            Path("/dev/kmsg").write_text("WARNING: CPU: 0 PID: 1 at made/up.c:1\\n")
            Path("/proc/sys/kernel/tainted").write_text("512")

        def test_in_a_fresh_one_too():
            assert not Path("/tmp/been-here").exists()

        @pytest.mark.kernel_warning("at made/", "at other/")
        def test_also_provokes_what_it_does_not_name():
            Path("/dev/kmsg").write_text("WARNING: CPU: 0 PID: 1 at made/up.c:1\\n")
            Path("/dev/kmsg").write_text("BUG: made up\\n")
        """
    )
    strict = ("-W", "error", "-W", "ignore:Module already imported")
    result = pytester.runpytest_subprocess("-v", *QUICK, *strict, timeout=300)
    result.assert_outcomes(passed=8, failed=1, warnings=2)
    result.stdout.fnmatch_lines(
        [
            "the kernel complained: *BUG: made up",
            "*::test_leaves_a_mount left in its VM: mount /tmp/*test_leaves_a_mount0 (tmpfs of none: rw,*). The next *",
            "*::test_also_provokes_what_it_does_not_name left in its VM: the kernel complained: *BUG: made up. The *",
        ]
    )


@pytest.mark.full
def test_what_a_fixture_kept_may_not_stay_when_it_has_ended(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_one="""
        from pathlib import Path
        import pytest

        @pytest.fixture(scope="session")
        def swaps_less():
            Path("/proc/sys/vm/swappiness").write_text("30")

        @pytest.fixture(scope="module")
        def swaps_little(swaps_less):
            Path("/proc/sys/vm/swappiness").write_text("17")
            yield
            Path("/proc/sys/vm/swappiness").write_text("30")

        @pytest.fixture(scope="session")
        def makes_groups():
            yield Path.mkdir
            Path("/sys/fs/cgroup/made").rmdir()

        @pytest.fixture(scope="module")
        def has_a_group(makes_groups):
            makes_groups(Path("/sys/fs/cgroup/made"))

        @pytest.mark.in_vm
        def test_shared(swaps_little, has_a_group):
            Path("/tmp/been-here").touch()

        @pytest.mark.in_vm
        def test_shared_too(swaps_little):
            assert Path("/tmp/been-here").exists()
        """,
        test_two="""
        from pathlib import Path
        import pytest

        pytestmark = pytest.mark.in_vm

        def test_has_what_the_session_keeps():
            assert Path("/tmp/been-here").exists()
            assert Path("/proc/sys/vm/swappiness").read_text() == "30\\n"

        def test_leaves_the_same():
            assert Path("/tmp/been-here").exists()
            Path("/proc/sys/vm/swappiness").write_text("17")

        def test_in_a_fresh_one():
            assert not Path("/tmp/been-here").exists()
        """,
    )
    result = pytester.runpytest_subprocess("-v", *QUICK, timeout=300)
    result.assert_outcomes(passed=5, warnings=1)
    result.stdout.fnmatch_lines(["*::test_leaves_the_same left in its VM: sysctl vm.swappiness is 17. The next *"])


LEAVES = {
    "warn": ("Path('/proc/sys/kernel/tainted').write_text('512')", "the kernel complained: kernel taint 512 "),
    "complaint": (
        "Path('/dev/kmsg').write_text('WARNING: possible recursive locking detected\\n')",
        "the kernel complained: ",
    ),
    "taint": ("Path('/proc/sys/kernel/tainted').write_text('32768')", "kernel taint 32768 (a live patch)"),
    "device": ("lab.Device(capacity='16M').__enter__(); kept.append(1)", "block device sampleblk"),
    "tracing": ("Path('/sys/kernel/tracing/instances/mine').mkdir()", "tracing instance mine"),
    "process": ("subprocess.Popen(['sleep', '1000'], start_new_session=True)", "process sleep (pid "),
    "sysctl": ("Path('/proc/sys/vm/swappiness').write_text('17')", "sysctl vm.swappiness is 17"),
}


@pytest.mark.full
@pytest.mark.usefixtures("no_leftovers")
def test_what_a_test_left_is_named_with_it(pytester: pytest.Pytester) -> None:
    lines = [
        "import subprocess, pytest, sampleblk_lab as lab",
        "from pathlib import Path",
        "pytestmark = pytest.mark.in_vm",
        "MARK = Path('/tmp/been-here')",
        "kept = []",
        "@pytest.fixture(scope='module')",
        "def damaged(): Path('/proc/sys/kernel/tainted').write_text('128')",
    ]
    for name, (statement, _) in LEAVES.items():
        lines += [f"def test_{name}():", "    assert not MARK.exists()", "    MARK.touch()", f"    {statement}"]
    lines += ["def test_last(damaged): pass", "def test_in_a_fresh_one():", "    assert not MARK.exists()"]
    pytester.makepyfile("\n".join(lines))
    result = pytester.runpytest_subprocess("-v", *QUICK, timeout=600)
    result.assert_outcomes(passed=len(LEAVES) - 1, failed=2, errors=1, warnings=len(LEAVES) + 1)
    for name, (_, left) in LEAVES.items():
        result.stdout.re_match_lines([rf".*::test_{name} left in its VM: (.*; )?{re.escape(left)}.*"])
    result.stdout.re_match_lines([r".*::test_last left in its VM: (.*; )?kernel taint 128 \(an oops\).*"])


@pytest.mark.full
def test_a_log_that_ran_over_is_said(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.in_vm
        def test_floods():
            for _ in range(9000):
                with open("/dev/kmsg", "w") as log:  # those of one are limited
                    log.write("<7>nothing\\n")
        """
    )
    result = pytester.runpytest_subprocess("-v", *QUICK, "-W", "error", timeout=300)
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*::test_floods: the kernel's log ran over; complaints may have been missed"])


@pytest.mark.parametrize(
    ("mark", "told"),
    [
        ("kernel_warning", "kernel_warning() (expected regular expressions, such as 'at fs/btrfs/')"),
        ("kernel_warning('')", "kernel_warning('') (expected regular expressions, such as 'at fs/btrfs/')"),
        ("kernel_warning(match='btrfs')", "kernel_warning(match='btrfs') (expected regular expressions, *"),
        ("kernel_warning('[btrfs')", "kernel_warning('[[]btrfs'): unterminated character set at position 0 *"),
        ("kernel_warning(b'btrfs')", "kernel_warning(b'btrfs'): cannot use a bytes pattern on a string-like object *"),
        ("kernel_warning(7)", "kernel_warning(7): first argument must be string or compiled pattern (expected *"),
    ],
)
def test_a_wrong_kernel_warning_is_named(pytester: pytest.Pytester, mark: str, told: str) -> None:
    item = pytester.getitem(f"import pytest\n@pytest.mark.{mark}\ndef test_func(): pass")
    with pytest.raises(pytest.UsageError) as error:
        kernel_log.allowed(item)
    assert fnmatch.fnmatch(str(error.value), f"test_*::test_func: {told}")


@pytest.mark.full
def test_several_kernels_and_host_workers(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import os
        import pytest

        def test_host():
            assert "SAMPLEBLK_VM" not in os.environ

        @pytest.mark.in_vm
        def test_release():
            print("release", os.uname().release)
            assert 0
        """
    )
    result = pytester.runpytest_subprocess("--sblk-kernel", "6.1,6.12", "-n1", *QUICK, timeout=300)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["release 6.1.*", "release 6.12.*"])
    result.stdout.fnmatch_lines(["FAILED *::test_release[[]6.1[]]*", "FAILED *::test_release[[]6.12[]]*"])


def test_host_option_runs_them_here(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import os
        import pytest

        @pytest.mark.in_vm
        def test_here():
            assert "SAMPLEBLK_VM" not in os.environ
        """
    )
    pytester.runpytest_subprocess("--sblk-host", *QUICK).assert_outcomes(passed=1)


def test_a_wrong_device_parameter_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.sampleblk(capacitty="64M")
        def test_device(sampleblk):
            pass

        @pytest.mark.sampleblk(capacitty="64M")
        def test_states(crash):
            pass
        """
    )
    result = pytester.runpytest_subprocess("--sblk-host", *QUICK)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(2 * ["*@pytest.mark.sampleblk has no parameter 'capacitty'; there are*capacity*fs*"])


def test_fixtures_make_a_device_and_mount_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import os
        from pathlib import Path
        import pytest

        @pytest.mark.sampleblk(capacity="32M", queues=2)
        def test_device(sampleblk):
            name = Path(sampleblk.path).name
            assert int(Path(f"/sys/block/{name}/size").read_text()) == (32 << 20) // 512
            assert len(os.listdir(f"/sys/block/{name}/mq")) == 2

        @pytest.fixture(scope="module")
        def wide(sampleblk_factory):
            device = sampleblk_factory(capacity="32M")
            yield device
            assert Path(device.path).exists()
            device.close()

        def test_wide(wide):
            Path(wide.path).write_bytes(b"kept")

        def test_wide_again(wide):
            assert Path(wide.path).read_bytes()[:4] == b"kept"

        @pytest.mark.parametrize("fs", ["ext4"])
        def test_mount(sampleblk_mount, fs):
            mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
            assert [m[2] for m in mounts if m[1] == os.fspath(sampleblk_mount)] == [fs]

        def test_nothing_is_left():
            assert len(list(Path("/sys/block").glob("sampleblk*"))) == 1  # the module's
            assert "sampleblk" not in Path("/proc/mounts").read_text().replace("sampleblk-", "")

        test_nothing_is_left = pytest.mark.in_vm(test_nothing_is_left)
        """
    )
    pytester.runpytest_subprocess(*QUICK, "--sblk-cpus", "2", timeout=300).assert_outcomes(passed=5)


def test_a_test_that_hangs_in_the_kernel_says_where(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import os
        import pytest
        import sampleblk_lab as lab

        def read(device):
            with open(device.path, "rb", buffering=0) as file:
                os.pread(file.fileno(), 4096, 8192)

        @pytest.mark.in_vm
        def test_whole(sampleblk, faults):  # what is slow the first time is behind us when the deadline counts
            read(sampleblk)

        @pytest.mark.in_vm(deadline=15)
        def test_read(sampleblk, faults):
            faults(lab.Fault(action="hang", ops="read"))
            read(sampleblk)
        """
    )
    result = pytester.runpytest_subprocess(*QUICK)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "the test did not end in 15 s; its virtual machine was killed",
            "*Show Blocked State*",
            "* io_schedule+*",
            "sampleblk1: 1 reads and 0 writes in flight",
            "*sampleblk1 hctx* busy: *.op=READ*.state=in_flight*",
            "CPU#0",
            "RIP=*",
        ]
    )
