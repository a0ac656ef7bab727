# SPDX-License-Identifier: MIT
"""``git bisect run sampleblk-lab kernel bisect -- COMMAND…``: builds a commit, boots it, and has the command judge it.

git takes 0 for a good commit, 1 for a bad one, 125 for one that cannot be tested, and stops at 128 and above
(git-bisect(1)). Whatever is no verdict on the commit, down to a mistake of ours, must therefore end with 128 or more.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import shutil
import subprocess
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sampleblk_lab import interrupts
from sampleblk_lab.errors import InputError, SampleblkError
from sampleblk_lab.kernels import tree as kernel_tree
from sampleblk_lab.paths import CacheError, in_home, scratch_directory
from sampleblk_lab.progress import note

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

GOOD, BAD, SKIP, STOP = 0, 1, 125, 128

_CALLED = {GOOD: "good", BAD: "bad", SKIP: "skipped"}

# What a guest may take to load the driver, once it has booted.
_LOAD_S = 120.0

# Options of the pytest plugin that would have it test something else than the commit.
_OTHER_KERNELS = ("--sblk-kernel", "--sblk-host")

# What `pytest` ends with besides 0 and 1 (pytest.ExitCode).
_NO_JUDGEMENT = {
    2: "it was interrupted, did not collect its tests, or could not keep or compare what they measured",
    3: "it had an internal error",
    4: "it was called wrongly",
    5: "it found no tests",
}


class Verdict(NamedTuple):
    """What becomes of a commit: git's status, and the reason."""

    status: int
    reason: str


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options to the command's parser."""
    parser.usage = "git bisect run sampleblk-lab kernel bisect [options] -- COMMAND [ARG...]"
    parser.epilog = (
        "exit status: 0 good, 1 bad, 125 does not build or boot, or no test ran, 128 and more: git bisect stops"
    )
    parser.add_argument(
        "--build",
        metavar="COMMAND",
        help="build by this command, for the shell, instead of make (with what the configuration lacks merged into it)",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="start each build from this configuration, not from the last one"
    )
    parser.add_argument("--jobs", "-j", metavar="N", type=int, help="what make -j gets (the number of processors)")
    parser.add_argument(
        "--kernel", metavar="PATH", default=".", help="what the build leaves to boot: build tree, folder, image (.)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Judges the commit that is checked out, says so, and returns the status for git."""
    words: list[str] = options.words
    try:
        verdict = _judge(words, options)
    except KeyboardInterrupt:
        verdict = Verdict(interrupts.INTERRUPTED, "interrupted")
    except (SampleblkError, OSError) as error:
        verdict = Verdict(STOP, str(error))
    except Exception:  # Python would end with 1, which is a verdict
        verdict = Verdict(STOP, "an error in sampleblk-lab")
        with contextlib.suppress(OSError):
            traceback.print_exc()
    called = _CALLED.get(verdict.status, "not judged")
    with contextlib.suppress(OSError):  # as of a log on a disk that is full: also no verdict
        note(f"kernel bisect: {_commit()}: {called} (status {verdict.status}): {verdict.reason}")
    return verdict.status


def _judge(words: Sequence[str], options: argparse.Namespace) -> Verdict:
    from sampleblk_lab.vm.qemu import find

    here = Path.cwd()
    kernel = str(in_home(options.kernel).absolute())
    environment = _environment(words, kernel)
    find()  # without QEMU no commit can be judged
    start = Path(options.config).absolute() if options.config is not None else None
    if options.build is None:
        if options.jobs is not None and options.jobs < 1:
            raise InputError(f"--jobs {options.jobs} is not a positive number")
        kernel_tree.check(here, start)
    elif options.config is not None or options.jobs is not None:
        raise InputError("--config and --jobs are for make, and --build takes its place")
    try:
        if options.build is None:
            kernel_tree.build(here, jobs=options.jobs or kernel_tree.default_jobs(), start=start)
        else:
            kernel_tree.run(here, options.build)
    except kernel_tree.TreeError as error:
        return Verdict(SKIP, f"it does not build: {error}")
    try:
        release = _boot(kernel)
    except CacheError:
        raise
    except SampleblkError as error:
        return Verdict(SKIP, f"it does not boot, or its driver does not build: {error}")
    note(f"kernel bisect: Linux {release} boots; {shlex.join(words)}")
    with scratch_directory("bisect") as folder:
        judged = folder / "judged"
        environment["SAMPLEBLK_JUDGED"] = str(judged)  # made by a session that has (pytest_plugin/verdict.py)
        status = interrupts.run(list(words), end_factor=interrupts.END_FACTOR, env=environment)
        if not _is_pytest(words):
            return _verdict_of(words, status)
        return _verdict_of_pytest(status, has_judged=judged.exists())


def _is_pytest(words: Sequence[str]) -> bool:
    return Path(words[0]).name in ("pytest", "py.test") or ("-m", "pytest") in itertools.pairwise(words)


def _environment(words: Sequence[str], kernel: str) -> dict[str, str]:
    """The command's environment, in which sampleblk-lab and pytest take the kernel, whatever an ini-file names."""
    if not words:
        raise InputError("no command given", expected="kernel bisect -- pytest tests/test_mine.py")
    other = [word for word in words if word.partition("=")[0] in _OTHER_KERNELS]
    if other:
        raise InputError(f"{other[0]} is not for a bisection", expected="tests that take the kernel that was built")
    if shutil.which(words[0]) is None:
        raise InputError(f"the command '{words[0]}' was not found")
    if "," in kernel:
        raise InputError(f"kernel '{kernel}' has a comma in its path", expected="a path that --sblk-kernel can take")
    ours = ["-p sampleblk_lab.pytest_plugin.verdict", f"--sblk-kernel={shlex.quote(kernel)}"]
    addopts = " ".join(filter(None, [os.environ.get("PYTEST_ADDOPTS"), *ours]))
    return {**os.environ, "SAMPLEBLK_KERNEL": kernel, "PYTEST_ADDOPTS": addopts}


def _boot(kernel: str) -> str:
    """Boots what was built, with the driver, as the tests will, and returns its release. Raises SampleblkError."""
    from sampleblk_lab.vm import options as vm_options
    from sampleblk_lab.vm.errors import BootError

    with contextlib.closing(vm_options.build(vm_options.parsed(["--kernel", kernel]))) as machine:
        machine.start()
        if machine.kernel.build is not None:  # else there is no driver to load
            done = machine.run(["modprobe", "sampleblk"], timeout=_LOAD_S)
            if done.returncode != 0:
                said = ((done.stderr or b"") + (done.stdout or b"")).decode(errors="replace").strip()
                raise BootError(f"the driver does not load: {said}", machine.console.tail(20))
        return machine.kernel.release


def _verdict_of_pytest(status: int, *, has_judged: bool) -> Verdict:
    if status in (GOOD, BAD) and not has_judged:
        # As of a Python that has no pytest, or of `pytest --version`, or under a sudo that drops the environment.
        return Verdict(
            STOP, f"pytest gave no verdict: no session of it with this kernel came to its end (status {status})"
        )
    if status in (GOOD, BAD):
        return Verdict(status, "a test failed" if status else "the tests passed")
    if status == SKIP:
        return Verdict(SKIP, "no test ran: all were skipped, or the VM did not start")
    if status < 0:
        return Verdict(STOP, f"pytest was ended by signal {-status}")
    return Verdict(STOP, f"pytest gave no verdict: {_NO_JUDGEMENT.get(status, 'it ended')} (status {status})")


def _verdict_of(words: Sequence[str], status: int) -> Verdict:
    """What a command's status means: what git itself takes it for, but one that could not run is no verdict."""
    if status < 0:
        return Verdict(STOP, f"{words[0]} was ended by signal {-status}")
    ended = f"{words[0]} ended with status {status}"
    if status in (126, 127) or status >= STOP:
        return Verdict(STOP, ended)
    if status in _NO_JUDGEMENT and any("pytest" in word for word in words):
        return Verdict(STOP, f"{ended}; of pytest: {_NO_JUDGEMENT[status]}")
    return Verdict(status if status in (GOOD, SKIP) else BAD, ended)


def _commit() -> str:
    with contextlib.suppress(OSError):
        command = ["git", "log", "-1", "--format=%h (%s)"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    return "this tree"
