# SPDX-License-Identifier: MIT
"""xfstests (fstests): its tests, its configuration, and what its ``check`` leaves behind."""

from __future__ import annotations

import re
import shlex
import subprocess
from typing import TYPE_CHECKING, ClassVar

from sampleblk_lab.errors import FormatError, InputError, UnsupportedError
from sampleblk_lab.paths import find_program
from sampleblk_lab.suites.suite import FAILED, NOTRUN, PASSED, UNJUDGED, Requirement, Setup, Suite, Test, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# File systems of which xfstests makes and mounts one on a device.
FILE_SYSTEMS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs")

# The folder of tests of a file system's own, where it has another one's (check, get_group_list).
_FOLDERS = {"ext2": "ext4", "ext3": "ext4"}

# btrfs' tests of several devices take them from a pool.
_POOL = 5

# Parts of the scratch file system on devices of their own, and on which file systems xfstests makes them. Named
# only to tests that ask for them: any other test would use them too.
_EXTERNAL = {
    "_require_logdev": ("SCRATCH_LOGDEV", ("ext3", "ext4", "xfs")),
    "_require_realtime": ("SCRATCH_RTDEV", ("xfs",)),
}
# xfs takes no log of 2 GiB, and mkfs.xfs makes it as large as its device.
_MOST_LOG_BYTES = 512 << 20

# What says in the environment on what tests run, which the user may have for runs of their own: only Setup is told
# beside the results. Others, such as SOAK_DURATION, stay.
_OF_SETUP = re.compile(
    r"(TEST|SCRATCH|LOGWRITES)_\w*DEV\w*|USE_EXTERNAL|\w*(MKFS|MOUNT)_OPT(ION)?S|(TEST|SCRATCH)_OPTIONS"
    r"|(RUN|EXCLUDE)_SECTION|RECREATE_TEST_DEV|IDMAPPED_MOUNTS"
)

# What a test's "_require_…" is of the kernel's configuration.
_OPTIONS = {
    "_require_fail_make_request": ("CONFIG_FAIL_MAKE_REQUEST",),
    "_require_log_writes": ("CONFIG_DM_LOG_WRITES",),
    "_require_loop": ("CONFIG_BLK_DEV_LOOP",),
    "_require_quota": ("CONFIG_QUOTA", "CONFIG_XFS_QUOTA"),
    "_require_realtime": ("CONFIG_XFS_RT",),
    "_require_scratch_casefold": ("CONFIG_UNICODE",),
    "_require_scratch_encryption": ("CONFIG_FS_ENCRYPTION",),
    "_require_scratch_verity": ("CONFIG_FS_VERITY",),
    "_require_scsi_debug": ("CONFIG_SCSI_DEBUG",),
}
_PROGRAMS = {"_require_fio": "fio", "_require_scratch_verity": "fsverity"}
_TARGETS = {
    "delay": "CONFIG_DM_DELAY",
    "dust": "CONFIG_DM_DUST",
    "flakey": "CONFIG_DM_FLAKEY",
    "log-writes": "CONFIG_DM_LOG_WRITES",
    "snapshot": "CONFIG_DM_SNAPSHOT",
    "thin-pool": "CONFIG_DM_THIN_PROVISIONING",
    "zero": "CONFIG_DM_ZERO",
}

# Tests that make devices of their own wait for udevd by "udevadm wait", without end where there is none (common/rc).
_MAKES_DEVICES = re.compile(
    r"common/(dm|scsi_debug|zbd)|_require_(loop|dm_target)|_dmsetup|DMSETUP_PROG|losetup|lvm|LVM|_udev_wait|UDEV\w*_PROG"
)

_REQUIRE = re.compile(r"^\s*(_require_\w+)[ \t]*([^\n#&|;]*)", re.MULTILINE)
_PROGRAM = re.compile(r'^\s*export (\w+_PROG)="?\$\(type -P ([\w.+-]+)\)', re.MULTILINE)
_VARIABLE = re.compile(r"\$\{?(\w+_PROG)\b")
_GROUPED = re.compile(r"^(\d{3,}(?:-[\w-]+)?)\s+(\S.*)$")


class Xfstests(Suite):
    """See the module."""

    name: ClassVar[str] = "xfstests"
    variable: ClassVar[str] = "SAMPLEBLK_XFSTESTS"
    home: ClassVar[str] = "https://git.kernel.org/pub/scm/fs/xfs/xfstests-dev.git"
    marks: ClassVar[tuple[str, ...]] = ("check", "common/rc", "tests/generic")
    build: ClassVar[tuple[tuple[str, ...], ...]] = (("make",),)

    def tests(self, folder: Path, fs: str, *, requires: bool = True) -> list[Test]:
        """See :meth:`Suite.tests`: those of ``generic``, and of the file system's own."""
        programs = dict(_PROGRAM.findall((folder / "common/config").read_text(errors="replace"))) if requires else None
        found = []
        for name in ("generic", _FOLDERS.get(fs, fs)):
            if (folder / "tests" / name).is_dir():
                found += _tests_of(folder, name, programs)
        return found

    def devices(self, setup: Setup) -> list[int]:
        """Test, scratch (for btrfs a pool), log-writes; an external log, and xfs' realtime device."""
        capacity = setup.capacity_bytes
        log = min(capacity, _MOST_LOG_BYTES)
        return [log if variable == "SCRATCH_LOGDEV" else capacity for variable in _variables(setup.fs)]

    def check_setup(self, setup: Setup) -> None:
        """See :meth:`Suite.check_setup`."""
        if setup.fs not in FILE_SYSTEMS:
            raise InputError(f"--fs {setup.fs!r}", expected=", ".join(FILE_SYSTEMS))
        for program in (f"mkfs.{setup.fs}", f"fsck.{setup.fs}"):
            if find_program(program) is None:
                raise UnsupportedError(
                    f"xfstests on {setup.fs}",
                    f"this system has no {program}",
                    "install the file system's programs: e2fsprogs, xfsprogs, btrfs-progs or f2fs-tools",
                )

    def run(self, folder: Path, test: str, setup: Setup, devices: Sequence[str], results: Path) -> Verdict:
        """See :meth:`Suite.run`."""
        from sampleblk_lab.suites import guest

        guest.add_users("fsgqa", "123456-fsgqa", "fsgqa2")
        here = guest.bound(folder, "/opt/xfstests")
        base = guest.bound(guest.made(results / "results"), "/mnt/results")
        test_mnt, scratch_mnt = guest.made("/mnt/test"), guest.made("/mnt/scratch")
        options = guest.made("/etc/xfstests") / "local.config"
        options.write_text("# everything is in the environment\n")
        settings = {
            "HOST_OPTIONS": options,
            "FSTYP": setup.fs,
            "TEST_DIR": test_mnt,
            "SCRATCH_MNT": scratch_mnt,
            "RESULT_BASE": base,
            # Lines of the diff in what check prints: it is what people see of a failure.
            "DIFF_LENGTH": 30,
        }
        text = (folder / "tests" / test).read_text(errors="replace")
        settings.update(_device_settings(setup.fs, devices, text))
        if setup.mkfs:
            settings["MKFS_OPTIONS"] = setup.mkfs
        if setup.mount:
            settings["MOUNT_OPTIONS"] = settings["TEST_FS_MOUNT_OPTS"] = f"-o {setup.mount}"
        made = subprocess.run(
            [
                *(f"mkfs.{setup.fs}", *(["-F"] if setup.fs.startswith("ext") else ["-f"])),
                *shlex.split(setup.mkfs),
                devices[0],
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if made.returncode != 0:
            said = made.stdout.decode(errors="replace")
            return Verdict(UNJUDGED, f"mkfs.{setup.fs} of the test device ended with {made.returncode}", said)
        # Elsewhere udevd would only be in the way: it looks into each new device, and keeps it busy meanwhile.
        wanted = _MAKES_DEVICES.search(text)
        environment = _without_setup(guest.environment(udevd=wanted is not None and guest.started_udevd()))
        environment.update({name: str(value) for name, value in settings.items()})
        output, _ = guest.recorded(["./check", test], here, environment, results / "check.out")
        return verdict(test, results / "results", output)


def _variables(fs: str) -> list[str]:
    """The variable of xfstests in which each device is named, in the devices' order."""
    scratch = ["SCRATCH_DEV_POOL"] * _POOL if fs == "btrfs" else ["SCRATCH_DEV"]
    external = [variable for variable, file_systems in _EXTERNAL.values() if fs in file_systems]
    return ["TEST_DEV", *scratch, "LOGWRITES_DEV", *external]


def _device_settings(fs: str, devices: Sequence[str], text: str) -> dict[str, str]:
    """What names a test's devices; those of _EXTERNAL only where its text asks for them."""
    asked = {_EXTERNAL[function][0] for function, _ in _REQUIRE.findall(text) if function in _EXTERNAL}
    left_out = {variable for variable, _ in _EXTERNAL.values()} - asked
    found: dict[str, str] = {}
    for variable, device in zip(_variables(fs), devices, strict=True):
        if variable not in left_out:
            found[variable] = f"{found[variable]} {device}" if variable in found else device
    if found.keys() & asked:
        found["USE_EXTERNAL"] = "yes"
    return found


def _without_setup(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not _OF_SETUP.fullmatch(name)}


def _tests_of(folder: Path, name: str, programs: Mapping[str, str] | None) -> list[Test]:
    path = folder / "tests" / name / "group.list"
    if not path.exists():
        raise FormatError(str(path), 0, "the list of groups that xfstests' build makes")
    found = []
    for line in path.read_text().splitlines():
        if match := _GROUPED.match(line):
            text = folder / "tests" / name / match[1]
            if programs is None or text.is_file():
                required = () if programs is None else tuple(_requirements(text.read_text(errors="replace"), programs))
                found.append(Test(f"{name}/{match[1]}", tuple(match[2].split()), required))
    return found


def _requirements(text: str, programs: Mapping[str, str]) -> list[Requirement]:
    found: dict[str, Requirement] = {}
    for function, given in _REQUIRE.findall(text):
        said = f"{function.removeprefix('_require_')} {given}".strip()
        program, options = _PROGRAMS.get(function, ""), _OPTIONS.get(function, ())
        if function == "_require_command" and (match := _VARIABLE.search(given)):
            program = programs.get(match[1], "")
        elif function == "_require_dm_target" and (target := _TARGETS.get(given.strip())):
            options = (target,)
        found.setdefault(said, Requirement(said, program, options))
    return list(found.values())


def verdict(test: str, results: Path, output: str) -> Verdict:
    """What ``check`` says of one test that it was asked to run.

    Args:
        test: The test's name.
        results: Its ``RESULT_BASE``.
        output: What it printed.
    """
    try:
        log = (results / "check.log").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return Verdict(UNJUDGED, _last_line(output) or "check printed nothing and left no check.log", output)
    # A test that is run again in its directory adds to the log.
    runs = [number for number, line in enumerate(log) if line.startswith("Kernel version")]
    log = log[runs[-1] :] if runs else log

    def names(title: str) -> list[str]:
        return next((line.split()[len(title.split()) :] for line in log if line.startswith(title)), [])

    seconds = _seconds(test, results)
    if "Interrupted!" in log or test not in names("Ran:"):
        said = [line for line in output.splitlines() if line.startswith("check: ")]
        reason = said[-1] if said else _last_line(output) or f"check did not run {test}"
        return Verdict(UNJUDGED, reason, output, seconds)
    if test in names("Not run:"):
        reason = (results / f"{test}.notrun").read_text(errors="replace").strip()
        return Verdict(NOTRUN, " ".join(reason.split()), output, seconds)
    if test in names("Failures:"):
        return Verdict(FAILED, _why(test, output), output, seconds)
    if any(line.startswith("Passed all ") for line in log):
        return Verdict(PASSED, "", output, seconds)
    return Verdict(UNJUDGED, "check.log says neither that the test passed nor that it failed", output, seconds)


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _why(test: str, output: str) -> str:
    """What ``check`` printed of a failed test beside its name, without the paths in the guest."""
    lines = output.splitlines()
    found = []
    for number, line in enumerate(lines):
        if line.startswith(test):
            found.append(line.removeprefix(test))
            # What the checks after a test find is on lines of its own, before the diff.
            found += [next_ for next_ in lines[number + 1 :] if next_.startswith(("_check_", "- output mismatch"))]
            break
    text = re.sub(r"\(see \S+/([^/\s)]+)\)", r"(see \1)", " ".join(found))
    text = re.sub(r"^\s*\d+s \.\.\.\s*", "", text)
    return " ".join(text.split()).removeprefix("- ") or "failed"


def _seconds(test: str, results: Path) -> float | None:
    path = results / "check.time"
    if path.exists():
        for line in path.read_text().splitlines():
            name, _, seconds = line.partition(" ")
            if name == test and seconds.strip().isdigit():
                return float(seconds)
    return None
