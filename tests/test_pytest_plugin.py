# SPDX-License-Identifier: MIT
"""The plugin, as its users meet it: a pytest of its own for each case."""

import subprocess
import sys

import pytest

from sampleblk_lab.paths import cache_root

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
    result = pytester.runpytest_subprocess("-v", "-p", "no:cacheprovider", timeout=300)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*FAILED*::test_panic*",
            "*_ test_panic _*",
            "the guest's kernel panicked under this test (gw0)",
            "*Guest console*",
            "*Kernel panic - not syncing: sysrq triggered crash*",
            "FAILED *::test_panic - the guest's kernel panicked *",
        ]
    )


def test_each_test_runs_where_it_belongs(pytester: pytest.Pytester) -> None:
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

        def test_host_too():
            assert "SAMPLEBLK_VM" not in os.environ
        """
    )
    result = pytester.runpytest_subprocess("-v", "-p", "no:cacheprovider", "test_it.py")
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*collected 6 items*",
            "*[[]100%[]]*",
            "the kernel complained: *WARNING: CPU: 0*",
            "FAILED *::test_kernel_complains - the kernel complained: *",
        ]
    )
    assert "[120%]" not in result.stdout.str()


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
    result = pytester.runpytest_subprocess("--sblk-kernel", "6.1,6.12", "-n1", "-p", "no:cacheprovider", timeout=300)
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
    pytester.runpytest_subprocess("--sblk-host", "-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_without_xdist_it_says_what_to_install(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="import pytest\n@pytest.mark.in_vm\ndef test_guest(): pass\n")
    result = pytester.runpytest_subprocess("-p", "no:xdist", "-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*1 tests need a virtual machine*pytest-xdist*--sblk-host*"])


def test_a_wrong_device_parameter_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.sampleblk(capacitty="64M")
        def test_device(sampleblk):
            pass
        """
    )
    result = pytester.runpytest_subprocess("--sblk-host", "-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*@pytest.mark.sampleblk has no parameter 'capacitty'; there are*capacity*fs*"])


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

        @pytest.mark.parametrize("fs", ["ext4"])
        def test_mount(sampleblk_mount, fs):
            mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
            assert [m[2] for m in mounts if m[1] == os.fspath(sampleblk_mount)] == [fs]

        def test_nothing_is_left():
            assert not list(Path("/sys/block").glob("sampleblk*"))
            assert "sampleblk" not in Path("/proc/mounts").read_text().replace("sampleblk-", "")

        test_nothing_is_left = pytest.mark.in_vm(test_nothing_is_left)
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=300).assert_outcomes(passed=3)
