# SPDX-License-Identifier: MIT
"""blktests: its tests, and what its ``check`` leaves behind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from sampleblk_lab.errors import InputError
from sampleblk_lab.suites.suite import FAILED, NOTRUN, PASSED, UNJUDGED, Requirement, Setup, Suite, Test, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Tests that run as long as they are let (TIMED=1) are let run so long.
_TIMEOUT_S = 30

# What a "_have_…" is of the kernel's configuration, and of the programs here.
_OPTIONS = {
    "_have_loop": "CONFIG_BLK_DEV_LOOP",
    "_have_null_blk": "CONFIG_BLK_DEV_NULL_BLK",
    "_have_scsi_debug": "CONFIG_SCSI_DEBUG",
    "_have_nbd": "CONFIG_BLK_DEV_NBD",
    "_have_ublk": "CONFIG_BLK_DEV_UBLK",
    "_have_rnbd": "CONFIG_BLK_DEV_RNBD_CLIENT",
}
_MODULES = {"null_blk": "CONFIG_BLK_DEV_NULL_BLK", "scsi_debug": "CONFIG_SCSI_DEBUG", "dm-mod": "CONFIG_BLK_DEV_DM"}
_PROGRAMS = {"_have_fio": "fio", "_have_blktrace": "blktrace", "_have_nbd": "nbd-client"}

_HAVE = re.compile(r"^\s*(_have_\w+|_require_\w+)(?:[ \t]+([\w.-]+))?", re.MULTILINE)
_GROUPS = {"quick": r"^QUICK=1", "timed": r"^TIMED=1", "device": r"^test_device\(\)", "zoned": r"^CAN_BE_ZONED=1"}


class Blktests(Suite):
    """See the module."""

    name: ClassVar[str] = "blktests"
    variable: ClassVar[str] = "SAMPLEBLK_BLKTESTS"
    home: ClassVar[str] = "https://github.com/linux-blktests/blktests"
    marks: ClassVar[tuple[str, ...]] = ("check", "common/rc", "tests/block")
    build: ClassVar[tuple[tuple[str, ...], ...]] = (("make",),)

    def tests(self, folder: Path, fs: str, *, requires: bool = True) -> list[Test]:  # noqa: ARG002  # there are few
        """See :meth:`Suite.tests`; those of the suite itself, ``meta``, are left out."""
        found = []
        for path in sorted(folder.glob("tests/*/[0-9][0-9][0-9]")):
            group = path.parent.name
            if group != "meta":
                text = path.read_text(errors="replace")
                groups = (group, *(name for name, mark in _GROUPS.items() if re.search(mark, text, re.MULTILINE)))
                found.append(Test(f"{group}/{path.name}", groups, tuple(_requirements(text))))
        return found

    def devices(self, setup: Setup) -> list[int]:
        """The one of ``TEST_DEVS``."""
        return [setup.capacity_bytes]

    def check_setup(self, setup: Setup) -> None:
        """See :meth:`Suite.check_setup`."""
        if setup.fs or setup.mkfs or setup.mount:
            raise InputError("blktests has no file system", expected="no --fs, --mkfs-options or --mount-options")

    def run(self, folder: Path, test: str, setup: Setup, devices: Sequence[str], results: Path) -> Verdict:  # noqa: ARG002
        """See :meth:`Suite.run`."""
        from sampleblk_lab.suites import guest

        here = guest.bound(folder, "/opt/blktests")
        # Its tests make images of loop devices beside their results: not on the share with the host.
        base = guest.memory("/mnt/results")
        # The disks of scsi_debug and others come with their drivers, which somebody has to load.
        environment = guest.environment(udevd=guest.started_udevd())
        environment.update(TEST_DEVS=" ".join(devices), TIMEOUT=str(_TIMEOUT_S))
        command = ["./check", "-c", "/dev/null", "-o", str(base), test]
        try:
            output, status = guest.recorded(command, here, environment, results / "check.out")
            return verdict(test, base, output, status)
        finally:
            guest.copy_files(base, results / "results")


def _requirements(text: str) -> list[Requirement]:
    found: dict[str, Requirement] = {}
    for function, given in _HAVE.findall(text):
        said = f"{re.sub('^_(have|require)_', '', function)} {given}".strip()
        option = _OPTIONS.get(function, "")
        program = _PROGRAMS.get(function, "")
        if function == "_have_program":
            program = given
        elif function == "_have_kernel_option" and given:
            option = f"CONFIG_{given}"
        elif function in ("_have_module", "_have_driver", "_have_module_param"):
            option = _MODULES.get(given, "")
        found.setdefault(said, Requirement(said, program, (option,) if option else ()))
    return list(found.values())


def verdict(test: str, results: Path, output: str, status: int = 0) -> Verdict:
    """What ``check`` says of one test that it was asked to run: on a device, without one, or under several conditions.

    Args:
        test: The test's name.
        results: What it was given by ``-o``.
        output: What it printed.
        status: Its exit status.
    """
    # check makes the folder before the test begins, and writes the file in it once the test has ended.
    group, _, number = test.partition("/")
    begun = [path for path in sorted(results.glob(f"*/{group}")) if not path.parent.name.startswith("tmpdir.")]
    found = [record(path / number) if (path / number).exists() else {} for path in begun]
    statuses = [one.get("status", "") for one in found]
    reasons = "; ".join(dict.fromkeys(_reasons(output)))
    runtimes = [float(time[:-1]) for one in found if re.fullmatch(r"[\d.]+s", time := one.get("runtime", ""))]
    seconds = sum(runtimes) if runtimes else None
    if "fail" in statuses:
        why = {
            "output": "output mismatch (see .out.bad)",
            "dmesg": "something found in dmesg (see .dmesg)",
            "kmemleak": "memory leaked (see .kmemleak)",
        }
        failed = next(one for one in found if one.get("status") == "fail")
        code = failed.get("exit_status", "?")
        reason = why.get(failed.get("reason", ""), f"exited with status {code}")
        return Verdict(FAILED, reason, output, seconds)
    if any(one not in ("pass", "not run") for one in statuses):
        left = ", ".join(f"{path.parent.name}: {one or 'nothing'}" for path, one in zip(begun, statuses, strict=True))
        return Verdict(UNJUDGED, f"check did not say how each part of the test ended: {left}", output, seconds)
    if status != 0 and statuses:
        # What it has of the parts that ended is good, and it fails for no other test: a part was never begun.
        return Verdict(UNJUDGED, f"check ended with status {status}, and no part of the test failed", output, seconds)
    if "pass" in statuses:
        left_out = statuses.count("not run")
        return Verdict(PASSED, f"{left_out} of {len(statuses)} not run: {reasons}" if left_out else "", output, seconds)
    if statuses or reasons:
        return Verdict(NOTRUN, reasons or "check gives no reason", output, seconds)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return Verdict(UNJUDGED, lines[-1] if lines else f"check printed nothing of {test}", output, seconds)


def record(path: Path) -> dict[str, str]:
    """What blktests wrote of a test: status, reason, runtime, exit_status and more, by those names."""
    found = {}
    for line in path.read_text(errors="replace").splitlines():
        key, tab, value = line.partition("\t")
        if tab:
            found[key] = value
    return found


def _reasons(output: str) -> list[str]:
    """The indented lines below each "[not run]", but for what was measured: name, last time's, "...", value."""
    found = []
    below = False
    for line in output.splitlines():
        if line.startswith("    ") and below:
            if "..." not in re.split(r"\s{2,}", line.strip()):
                found.append(line.strip())
        else:
            below = line.rstrip().endswith("[not run]")
    return found
