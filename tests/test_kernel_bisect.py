# SPDX-License-Identifier: MIT
"""git bisect over kernels: what each commit is judged as, and that nothing else passes for a verdict.

The tree is a fake one: its Makefile takes the image, the modules and the driver of a kernel of the cache, as its file
``kind`` says, so that everything but the compiler is the real thing.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from sampleblk_lab import kernels
from sampleblk_lab.cli import kernel_bisect
from sampleblk_lab.cli.main import main
from sampleblk_lab.kernels import Kernel, config, driver
from sampleblk_lab.vm import BootError
from support import QUICK, script

MAKEFILE = """\
KIND := $(shell cat kind)
# The first word is the kind, the second tells commits of the same kind apart.
KIND := $(firstword $(KIND))
ifneq ($(KBUILD_OUTPUT)$(KCONFIG_CONFIG),)
$(error The source tree is not clean, or has another configuration)
endif
RELEASE := {good.release}
IMAGE := {good.image}
MODULES := {good.modules}
DRIVER := {good_driver}
ifeq ($(KIND),bad)
RELEASE := {bad.release}
IMAGE := {bad.image}
MODULES := {bad.modules}
DRIVER := {bad_driver}
endif
ifeq ($(KIND),panics)
IMAGE := {broken}
endif

ifdef M
.PHONY: forward $(MAKECMDGOALS)
$(MAKECMDGOALS): forward
	@:
forward:
	+@test $(KIND) != nodriver || {{ echo "error: too few arguments to function 'add_disk'"; exit 2; }}
	@case $(M) in */probes) touch $(M)/passed.o;; *) cp $(DRIVER) $(M);; esac
else
.PHONY: olddefconfig bzImage modules modules_install
olddefconfig:
	@test $(KIND) != old || sed -i /CONFIG_OVERLAY_FS/d .config
bzImage:
	@test $(KIND) != nobuild || {{ echo "error: 'struct request' has no member named 'bio'"; exit 2; }}
	@mkdir -p arch/x86/boot include/config
	@ln -sf $(IMAGE) arch/x86/boot/bzImage
	@test $(KIND) != cut || {{ rm arch/x86/boot/bzImage; head -c 1000000 $(IMAGE) >arch/x86/boot/bzImage; }}
	@echo $(RELEASE) >include/config/kernel.release
modules: bzImage
modules_install:
	@mkdir -p $(INSTALL_MOD_PATH)/lib/modules
	@ln -sfn $(MODULES) $(INSTALL_MOD_PATH)/lib/modules/$(RELEASE)
endif
"""


def _driver_of(kernel: Kernel) -> Path:
    built = driver.module_tree(kernel)
    assert built is not None
    return built / "updates/sampleblk.ko"


def _broken(kernel: Kernel, path: Path) -> Path:
    """An image that is as long as it should be, and whose first code is zeroes: the processor gives up at once."""
    path.write_bytes(kernel.image.read_bytes())
    with path.open("r+b") as file:
        file.seek(struct.unpack_from("<Q", file.read(64), 32)[0] + 8)
        [offset] = struct.unpack("<Q", file.read(8))
        file.seek(offset)
        file.write(bytes(8 << 20))
    return path


def _git(tree: Path, *words: str) -> str:
    who = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org"]
    done = subprocess.run(["git", *who, *words], cwd=tree, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _commit(tree: Path, kind: str) -> str:
    (tree / "kind").write_text(f"{kind} {os.urandom(4).hex()}\n")
    _git(tree, "add", "kind", "Makefile", ".gitignore")
    _git(tree, "commit", "-qm", f"a commit that is {kind}")
    return _git(tree, "rev-parse", "HEAD")


@pytest.fixture
def tree(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A tree with one commit, whose kernel is good, and a configuration that lacks an option."""
    folder = tmp_path / "linux"
    folder.mkdir()
    good, bad = kernels.resolve("6.1"), kernels.resolve("6.12")
    drivers = {f"{kind}_driver": _driver_of(kernel) for kind, kernel in (("good", good), ("bad", bad))}
    (folder / "Makefile").write_text(MAKEFILE.format(good=good, bad=bad, broken=tmp_path / "broken", **drivers))
    (folder / ".gitignore").write_text(".config\narch/\ninclude/\nlib/\n")
    request.getfixturevalue("own_builds")  # after it was seen where the drivers are
    everything = config.fragment(config.missing())
    (folder / ".config").write_text(everything.replace("CONFIG_9P_FS=y\n", "# CONFIG_9P_FS is not set\n"))
    _git(folder, "init", "-q")
    _commit(folder, "good")
    return folder


# --- the real thing


TEST = """
import os, pathlib, subprocess, pytest

@pytest.mark.in_vm
def test_release():
    assert pathlib.Path("/sys/module/sampleblk").exists() or not subprocess.call(["modprobe", "sampleblk"])
    assert os.uname().release.startswith("6.1.")
"""


@pytest.mark.parametrize("judge", ["command", pytest.param("pytest", marks=pytest.mark.full)])
def test_git_bisect_names_the_commit(tree: Path, tmp_path: Path, judge: str) -> None:
    """On its way it meets a commit that does not build and one that does not boot."""
    program = script("sampleblk-lab")
    if judge == "pytest":
        (tmp_path / "test_mine.py").write_text(TEST)
        # What would test another kernel without the command's care.
        (tmp_path / "pytest.ini").write_text("[pytest]\nsblk_kernels = 5.10\n")
        words = [sys.executable, "-m", "pytest", "-q", *QUICK, str(tmp_path / "test_mine.py")]
        good_is, bad_is = "the tests passed", "a test failed"
    else:
        words = ["sh", "-c", f"{program} vm run -- uname -r | tee /dev/stderr | grep -q '^6[.]1[.]'"]
        good_is, bad_is = "sh ended with status 0", "sh ended with status 1"
    _broken(kernels.resolve("6.1"), tmp_path / "broken")
    good = _git(tree, "rev-parse", "HEAD")
    made = [_commit(tree, kind) for kind in ("good", "good", "nobuild", "panics", "good", "bad", "bad")]
    _git(tree, "bisect", "start", made[-1], good)
    command = ["git", "bisect", "run", program, "kernel", "bisect", "-j1", "--", *words]
    env = {**os.environ, **({} if judge == "pytest" else {"SAMPLEBLK_MEMORY": "512M"})}  # too little for a Python
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=1500, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert f"{made[5]} is the first bad commit" in said
    assert (
        "(a commit that is nobuild): skipped (status 125): it does not build: `make -j1 bzImage modules` ended" in said
    )
    assert "error: 'struct request' has no member named 'bio'" in said
    assert "(a commit that is panics): skipped (status 125): it does not boot" in said
    assert f"(a commit that is bad): bad (status 1): {bad_is}" in said
    assert f"(a commit that is good): good (status 0): {good_is}" in said
    assert "6.12." in said
    # The fragment was merged.
    assert config.missing((tree / ".config").read_text()) == {}


# --- each verdict


class Bisect:
    """The command in a tree, with a guest that boots, or not, as told."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.said = ""

    def __call__(self, *words: str) -> int:
        try:
            status = main(["kernel", "bisect", *words])
        except SystemExit as ended:
            status = int(ended.code or 0)
        self.said = self._capsys.readouterr().err
        return status


def pytest_command(folder: Path, *words: str | Path) -> list[str]:
    """A pytest of a folder that has no configuration but this."""
    return [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(folder), *QUICK, *map(str, words)]


@pytest.fixture
def bisect(tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bisect:
    monkeypatch.chdir(tree)
    monkeypatch.setattr(kernel_bisect, "_boot", lambda _kernel: "6.1.0-fake")
    return Bisect(capsys)


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("exit 0", 0, "good (status 0): sh ended with status 0"),
        ("exit 1", 1, "bad (status 1): sh ended with status 1"),
        ("exit 5", 1, "bad (status 1): sh ended with status 5"),
        ("exit 123", 1, "bad (status 1): sh ended with status 123"),
        ("exit 125", 125, "skipped (status 125): sh ended with status 125"),
        ("exit 126", 128, "not judged (status 128): sh ended with status 126"),
        ("no-such-command-at-all 2>&-", 128, "sh ended with status 127"),
        ("exit 200", 128, "sh ended with status 200"),
        ("kill -SEGV $$", 128, "sh was ended by signal 11"),
    ],
)
def test_the_status_of_a_command(bisect: Bisect, command: str, status: int, said: str) -> None:
    assert bisect("--", "sh", "-c", command) == status
    assert said in bisect.said
    assert "(a commit that is good)" in bisect.said


@pytest.mark.parametrize(
    ("test", "status", "said"),
    [
        ("def test_it(): pass", 0, "the tests passed"),
        ("def test_it(): assert 0", 1, "a test failed"),
        ("import pytest\ndef test_it(): pytest.skip('needs Linux 9')", 125, "all were skipped"),
        ("import pytest\n@pytest.mark.skip\ndef test_it(): pass", 125, "all were skipped"),
        ("import pytest\n@pytest.mark.xfail\ndef test_it(): assert 0", 0, "the tests passed"),
        # In the names: what stands for tests that VMs have run.
        ("import pytest\ndef test_vm(): pytest.skip('no')\ndef test_here(): pass", 125, "all were skipped"),
        ("import pytest\ndef test_vm(): pass\ndef test_here(): pytest.skip('no')", 0, "the tests passed"),
        ("import pytest\n@pytest.mark.in_vm\ndef test_it(): assert 0", 125, "or the VM did not start"),
        ("", 128, "it found no tests (status 5)"),
        (
            "import not_there",
            128,
            "did not collect its tests, or could not keep or compare what they measured (status 2)",
        ),
        ("import os\ndef test_it(): os._exit(1)", 128, "no session of it with this kernel came to its end (status 1)"),
        ("import os\ndef test_a(): pass\ndef test_it(): os._exit(0)", 128, "came to its end (status 0)"),
        ("import os, signal\ndef test_it(): os.kill(os.getpid(), signal.SIGKILL)", 128, "ended by signal 9"),
    ],
)
def test_what_pytest_says(bisect: Bisect, tmp_path: Path, test: str, status: int, said: str) -> None:
    path = tmp_path / "test_one.py"
    path.write_text(test)
    (tmp_path / "conftest.py").write_text(
        "import pytest\n@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_makereport(item):\n"
        "    report = yield\n    report.sblk_in_vm = item.name == 'test_vm'\n    return report\n"
    )
    assert bisect("--", *pytest_command(tmp_path, "--sblk-memory=17M", path)) == status
    assert said in bisect.said


@pytest.mark.parametrize("option", ["--version", "--fixtures", "-pno:sampleblk_lab.pytest_plugin.verdict"])
def test_pytest_that_judges_nothing(bisect: Bisect, tmp_path: Path, option: str) -> None:
    path = tmp_path / "test_one.py"
    path.write_text("import pytest\ndef test_it(): pytest.skip('needs Linux 9')\n")
    assert bisect("--", *pytest_command(tmp_path, option, path)) == 128
    assert "no session of it with this kernel came to its end (status 0)" in bisect.said


def test_a_python_without_pytest_stops_git(bisect: Bisect, tmp_path: Path) -> None:
    """It ends with 1, as a test that fails."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    assert bisect("--", str(tmp_path / "bare/bin/python"), "-m", "pytest") == 128
    assert "no session of it with this kernel came to its end (status 1)" in bisect.said


@pytest.mark.parametrize(
    ("test", "status", "said"),
    [
        ("pass", 128, "did not collect its tests"),
        ("assert 0", 1, "a test failed"),
    ],
)
def test_a_file_that_is_not_collected_is_no_test_that_failed(
    bisect: Bisect, tmp_path: Path, test: str, status: int, said: str
) -> None:
    (tmp_path / "test_one.py").write_text(f"def test_it(): {test}\n")
    (tmp_path / "test_two.py").write_text("import not_there\n")
    assert bisect("--", *pytest_command(tmp_path, "--continue-on-collection-errors", tmp_path)) == status
    assert said in bisect.said


@pytest.mark.parametrize(
    ("kind", "status", "said"),
    [
        ("faster", 0, "the tests passed"),
        ("slower", 1, "a test failed"),
        ("of another unit", 128, "or could not keep or compare what they measured"),
        ("not kept", 128, "or could not keep or compare what they measured"),
    ],
)
def test_only_what_is_slower_fails_by_what_it_measured(
    bisect: Bisect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, status: int, said: str
) -> None:
    path = tmp_path / "test_one.py"

    def measures(value: int, unit: str) -> None:
        path.write_text(
            "import itertools\n"
            "def test_it(measure):\n"
            f"    values = itertools.cycle([{value} * factor for factor in (0.99, 1.0, 1.01)])\n"
            f"    measure(lambda: next(values), unit={unit!r})\n"
        )

    measures(100, "us")
    assert bisect("--", *pytest_command(tmp_path, "--sblk-save=before", path)) == 0
    measures({"faster": 80, "slower": 130}.get(kind, 100), "ns" if kind == "of another unit" else "us")
    if kind == "not kept":
        (tmp_path / "runs/latest").write_text("a file")
        monkeypatch.setenv("TMPDIR", str(tmp_path))  # where what was measured is kept then
    gate = ["--sblk-compare=before", "--sblk-fail-slower"]
    assert bisect("--", *pytest_command(tmp_path, *gate, path)) == status
    assert said in bisect.said


@pytest.mark.parametrize(
    ("addopts", "words", "said"),
    [
        ("--sblk-host", "", "ended with status 4"),  # on this machine's kernel
        ("", "--sblk-kernel=6.12", "ended with status 4"),
        ("--sblk-kernel=6.12", "", ""),
        ("", "no-such-file.py", "ended with status 4; of pytest: it was called wrongly"),
        ("", "-k no_such_test", "ended with status 5; of pytest: it found no tests"),
    ],
)
def test_pytest_in_a_command_that_judges_something_else(
    addopts: str, words: str, said: str, bisect: Bisect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "test_one.py"
    path.write_text("def test_it(): pass")
    monkeypatch.setenv("PYTEST_ADDOPTS", f"-c {os.devnull} --rootdir {tmp_path} {' '.join(QUICK)} {addopts}")
    command = f"{sys.executable} -m pytest {words if words.endswith('.py') else f'{path} {words}'}"
    assert bisect("--", "sh", "-c", command) == (128 if said else 0)
    assert said in bisect.said


def test_the_command_is_given_the_kernel(bisect: Bisect, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-q")
    assert bisect("--", "sh", "-c", f'test "$SAMPLEBLK_KERNEL" = "{tree}"') == 0
    assert (
        bisect("--", "sh", "-c", f'case "$PYTEST_ADDOPTS" in "-q -p "*" --sblk-kernel={tree}") ;; *) exit 1 ;; esac')
        == 0
    )
    assert bisect("--kernel", "out/of/it", "--", "sh", "-c", f'test "$SAMPLEBLK_KERNEL" = "{tree}/out/of/it"') == 0


@pytest.mark.parametrize("kind", ["nobuild", "old"])
def test_what_does_not_build_is_skipped(bisect: Bisect, tree: Path, kind: str) -> None:
    _commit(tree, kind)
    assert bisect("--", "true") == 125
    wanted = {
        "nobuild": "bzImage modules` ended with status 2",
        "old": "after make olddefconfig its configuration still lacks what a VM needs: CONFIG_OVERLAY_FS",
    }
    assert wanted[kind] in bisect.said


@pytest.mark.parametrize("variable", ["KBUILD_OUTPUT", "KCONFIG_CONFIG"])
def test_a_build_is_of_the_tree_whatever_the_user_s_others_are(
    variable: str, bisect: Bisect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "elsewhere")
    assert bisect("--", "true") == 0, bisect.said


def test_a_build_of_one_s_own(bisect: Bisect, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBUILD_OUTPUT", "elsewhere")
    build = "echo $MAKEFLAGS $KBUILD_OUTPUT >built; exit 3"
    assert bisect("--build", build, "--", "false") == 125
    assert f"`{build}` ended with status 3" in bisect.said
    assert (tree / "built").read_text() == "elsewhere\n"
    assert bisect("--build", "kill -9 $$", "--", "false") == 125
    assert bisect("--build", "true", "--", "false") == 1


def test_each_build_may_start_from_one_configuration(bisect: Bisect, tree: Path, tmp_path: Path) -> None:
    start = tmp_path / "start.config"
    start.write_text((tree / ".config").read_text() + "CONFIG_OF_THE_START=y\n")
    (tree / ".config").write_text("CONFIG_OF_THE_LAST_BUILD=y\n")
    assert bisect("--config", str(start), "--", "true") == 0
    text = (tree / ".config").read_text()
    assert "CONFIG_OF_THE_START=y" in text
    assert "CONFIG_OF_THE_LAST_BUILD" not in text
    assert config.missing(text) == {}


def test_a_configuration_that_has_everything_is_not_touched(bisect: Bisect, tree: Path) -> None:
    """kbuild would look at all that depends on it again."""
    assert bisect("--", "true") == 0
    before = (tree / ".config").stat().st_mtime_ns
    assert bisect("--", "true") == 0
    assert (tree / ".config").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no command given"),
        (("--",), "no command given"),
        (("--", "no-such-command-at-all"), "'no-such-command-at-all' was not found"),
        (("--jobs", "0", "--", "true"), "--jobs 0 is not a positive number"),
        (("--jobs", "x", "--", "true"), "invalid int value"),
        (("--bild", "make", "--", "true"), "unrecognized arguments"),
        (("--build", "true", "--jobs", "2", "--", "true"), "--config and --jobs are for make"),
        (("--config", "/not/there", "--", "true"), "'/not/there' is not a kernel configuration"),
        (("--kernel", "a,b", "--", "true"), "has a comma in its path"),
        (("--", "pytest", "--sblk-kernel=6.1"), "--sblk-kernel=6.1 is not for a bisection"),
        (("--", "pytest", "--sblk-host"), "--sblk-host is not for a bisection"),
    ],
)
def test_what_is_no_verdict_stops_git(bisect: Bisect, words: tuple[str, ...], said: str) -> None:
    assert bisect(*words) == 128
    assert said in bisect.said


def test_a_mistake_of_ours_is_no_verdict(bisect: Bisect, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_kernel: str) -> str:
        raise LookupError("a mistake")

    monkeypatch.setattr(kernel_bisect, "_boot", broken)
    assert bisect("--", "true") == 128
    assert "an error in sampleblk-lab" in bisect.said

    def interrupted(_kernel: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(kernel_bisect, "_boot", interrupted)
    assert bisect("--", "true") == 130

    def not_there(_name: str) -> object:
        raise ImportError("a mistake")

    monkeypatch.setattr(sys.modules["sampleblk_lab.cli.main"], "import_module", not_there)
    assert bisect("--", "true") == 128
    assert "a mistake" in bisect.said


@pytest.mark.parametrize("words", [(), ("--",), ("--bild", "make", "--", "true")])
def test_what_cannot_be_told_is_no_verdict(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [script("sampleblk-lab"), "kernel", "bisect", *words]
        assert subprocess.run(command, stderr=full, check=False).returncode == 128


def test_a_tree_that_cannot_be_built_stops_git(bisect: Bisect, tree: Path) -> None:
    (tree / ".config").unlink()
    assert bisect("--", "true") == 128
    assert ".config' is not a kernel configuration" in bisect.said
    (tree / "Makefile").unlink()
    assert bisect("--", "true") == 128
    assert "has no Makefile" in bisect.said


@pytest.mark.parametrize(
    ("kind", "said"), [("nodriver", "the driver does not build for"), ("cut", "a kernel image of"), ("none", "bzImage")]
)
def test_what_cannot_be_booted_is_skipped(
    tree: Path, kind: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tree)
    _commit(tree, kind)
    bisect = Bisect(capsys)
    assert bisect(*(("--build", "true") if kind == "none" else ()), "--", "true") == 125
    assert "it does not boot, or its driver does not build" in bisect.said
    assert said in bisect.said


def test_a_guest_that_does_not_load_the_driver_is_skipped(bisect: Bisect, monkeypatch: pytest.MonkeyPatch) -> None:
    def boot(_kernel: str) -> str:
        raise BootError("the driver does not load: Invalid argument", "the end of the console")

    monkeypatch.setattr(kernel_bisect, "_boot", boot)
    assert bisect("--", "true") == 125
    assert "the end of the console" in bisect.said
