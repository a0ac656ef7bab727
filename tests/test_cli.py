# SPDX-License-Identifier: MIT
"""The command line, as its users meet it."""

import argparse
import contextlib
import importlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

from sampleblk_lab import doctor, kernels, leftovers
from sampleblk_lab.cli import completion, main, output
from sampleblk_lab.cli import job as cli_job
from sampleblk_lab.cli.device import device_parameters
from sampleblk_lab.cli.main import COMMANDS
from sampleblk_lab.errors import UnsupportedError
from sampleblk_lab.kernels import driver, toolchain
from sampleblk_lab.paths import cache_root
from sampleblk_lab.results import store
from sampleblk_lab.table import Table
from sampleblk_lab.vm import accel, machine
from sampleblk_lab.vm.machine import Completed
from sampleblk_lab.vm.qemu import _version, find
from support import RunsInVM

COMMAND = [sys.executable, "-c", "from sampleblk_lab.cli import main; raise SystemExit(main())"]
JOB = "[job]\nrw=write\nbs=4k\nsize=256k\nioengine=psync\nfilename=file\n"


def test_doctor_says_what_works_and_how_to_mend_the_rest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["doctor", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["ready"]
    states = {check["name"]: check["state"] for check in said["checks"]}
    assert states["C++ core"] == states["QEMU"] == states["driver source"] == "ok"
    monkeypatch.setattr(doctor, "find_program", lambda _: None)
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "failed  make" in text
    assert "→ apt-get install e2fsprogs" in text
    assert "failed\n" in text.splitlines(keepends=True)[-1]


def test_a_number_that_is_missing_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has no NaN (RFC 8259, 6), and most readers refuse it."""
    table = Table.from_rows([{"n": 1.5, "text": "NaN"}, {"n": None, "text": None}, {"n": float("inf"), "text": "x"}])
    output.show_table(argparse.Namespace(json=True), table, "")
    rows = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert rows == [{"n": 1.5, "text": "NaN"}, {"n": None, "text": None}, {"n": None, "text": "x"}]
    assert json.loads(output.as_json({"a": (float("nan"), [float("-inf")])}), parse_constant=pytest.fail) == {
        "a": [None, [None]]
    }


def test_every_broken_check_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_program", lambda _: None)
    monkeypatch.setenv("SAMPLEBLK_CACHE", "/proc/none")
    for check in doctor.examine(host=True):
        assert (check.state == doctor.WELL) == (check.remedy == ""), check


def _checked(name: str) -> doctor.Check:
    [check] = [check for check in doctor.examine() if check.name == name]
    return check


def test_doctor_tells_of_a_device_that_is_not_for_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.os.path, "exists", lambda _: True)
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    check = _checked("acceleration")
    assert (check.state, check.remedy[:8]) == (doctor.MISSING, "adduser ")
    monkeypatch.setattr(doctor.os.path, "exists", lambda path: path != "/dev/kvm")
    assert "emulated (TCG)" in _checked("acceleration").found


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
@pytest.mark.parametrize("change", ["umount -l /proc", "mount --bind /etc/hostname /dev/null"])
def test_doctor_tells_of_a_system_that_lacks_what_programs_rely_on(change: str) -> None:
    command = ["unshare", "-m", "sh", "-ec", f'{change}; exec "$@"', "sh", *COMMAND, "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "failed  system" in done.stdout


def test_doctor_tells_of_too_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_CACHE_BYTES", 1 << 60)
    monkeypatch.setattr(doctor, "_MEMORY_BYTES", 1 << 60)
    assert "SAMPLEBLK_CACHE" in _checked("cache").remedy
    assert "--memory 512M" in _checked("memory").remedy


@pytest.mark.parametrize("name", ["my cache", "o'clock", "a#b"])
def test_a_cache_that_make_cannot_work_in_is_told(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernels.resolve("6.1")
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path / name))
    check = _checked("cache")
    assert (check.state, "kbuild takes no path with" in check.found) == (doctor.FAILED, True)
    with pytest.raises(UnsupportedError, match=r"kbuild takes no path with .*SAMPLEBLK_CACHE"):
        driver.module_tree(kernel)


def test_doctor_tells_of_a_kernel_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find(download=False)  # QEMU's version is kept there
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path))
    check = _checked("kernel")
    assert (check.state, check.remedy) == (doctor.MISSING, "sampleblk-lab kernel fetch 6.1")
    assert list(tmp_path.iterdir()) == [], "looking changes nothing"


@pytest.mark.parametrize(
    ("variable", "value"), [("KERNEL", "nope"), ("CPUS", "x"), ("MEMORY", "much"), ("TIMEOUT", "-1"), ("ACCEL", "xen")]
)
def test_doctor_tells_of_a_setting_with_which_no_vm_starts(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"SAMPLEBLK_{variable}", value)
    check = _checked("settings")
    assert (check.state, value in check.found) == (doctor.FAILED, True)


def test_qemu_is_found_where_the_cache_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    system = find()
    monkeypatch.setenv("SAMPLEBLK_CACHE", "/proc/none")
    assert _version(system.program) == system.version


def test_a_qemu_that_does_not_start_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "qemu"
    program.write_text("#!/bin/sh\necho no libfdt.so.1 >&2\nexit 127\n")
    program.chmod(0o755)
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SAMPLEBLK_QEMU", str(program))
    find.cache_clear()
    try:
        check = _checked("QEMU")
    finally:
        find.cache_clear()
    assert (check.state, "exit status 127: no libfdt.so.1" in check.found) == (doctor.FAILED, True)


def test_kvm_is_tried_again_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], own_builds: Path
) -> None:
    del own_builds
    monkeypatch.setenv("SAMPLEBLK_ACCEL", "tcg")
    monkeypatch.setattr(accel, "usable", lambda: True)
    monkeypatch.setattr(accel, "_path", lambda _: cache_root() / "verdict.json")
    monkeypatch.setattr(machine, "_probe_kvm", lambda _: accel.Verdict("kvm", "a guest boots"))
    assert main(["vm", "probe"]) == 0
    assert capsys.readouterr().out == "kvm: a guest boots\n"


def test_doctor_tells_of_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLEBLK_CACHE", "/sys/kernel/none")
    check = _checked("cache")
    assert check.state == doctor.FAILED
    assert "/sys/kernel" in check.found


def test_doctor_tells_of_a_kernel_that_is_not_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path))
    assert _checked("kernels whole").state == doctor.WELL
    (tmp_path / "kernels/6.1.0-test").mkdir(parents=True)
    (tmp_path / "kernels/6.1.0-test/kernel.json").write_text("{")
    check = _checked("kernels whole")
    assert (check.state, check.found) == (doctor.MISSING, f"not whole: {tmp_path}/kernels/6.1.0-test")


def test_doctor_tells_of_what_a_driver_s_build_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vmlinux").touch()
    (tmp_path / ".kernelvariables").write_text("CC = gcc-99\n")
    kernel = kernels.Kernel("6.12-test", tmp_path / "vmlinux", None, tmp_path)
    monkeypatch.setattr(kernels, "installed", lambda: [kernel])
    monkeypatch.setattr(
        toolchain, "find_program", lambda name: None if name in ("gcc-99", "pahole") else f"/bin/{name}"
    )
    assert "no gcc-99, pahole" in _checked("kernels' tools").found
    (tmp_path / "gcc-99").touch()
    (tmp_path / "pahole").touch()
    found = kernels.Kernel("6.12-test", tmp_path / "vmlinux", None, tmp_path, tools=tmp_path)
    monkeypatch.setattr(kernels, "installed", lambda: [found])
    assert "6.12-test" in _checked("kernels' tools").found


@pytest.mark.parametrize("final", [True, False])
def test_doctor_tells_what_kvm_has_shown_and_how_to_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, final: bool
) -> None:
    qemu = find(download=False)
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path))
    monkeypatch.setattr(accel, "known", lambda _: accel.Verdict("tcg", "it hung", final, 1e9, 3))
    monkeypatch.setattr(doctor.os, "access", lambda *_: True)
    monkeypatch.setattr(doctor.os.path, "exists", lambda _: True)
    assert qemu.version
    check = _checked("acceleration")
    assert "it hung (2001-09-0" in check.found
    assert ("tried again after 2001-09-0" in check.found) == (not final)
    assert check.remedy == "sampleblk-lab vm probe tries KVM again now"


def test_doctor_tells_of_what_was_left_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "directory", lambda: tmp_path)
    checks = {check.name: check for check in doctor.examine(host=True)}
    assert checks["host: leftovers"].state == doctor.WELL
    (tmp_path / "1-0.made").write_text('{"kind": "device", "key": "7", "identity": 1}\n')
    checks = {check.name: check for check in doctor.examine(host=True)}
    assert checks["host: leftovers"].found == "a killed experiment left device 7"
    assert (tmp_path / "1-0.made").exists(), "looking changes nothing"


def test_doctor_tells_of_an_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> str:
        raise doctor.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.importlib.metadata, "version", gone)
    for name, (extra, _) in doctor._EXTRAS.items():
        assert _checked(name).remedy == f"pip install 'sampleblk-lab[{extra}]'"


def test_completion_knows_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = completion.words()
    assert set(words) == set(COMMANDS)
    assert {"list", "fetch", "--json"} <= set(words["kernel"])
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        text = capsys.readouterr().out
        assert all(name in text for name in COMMANDS)


def _completion(shell: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", f"from sampleblk_lab.cli import main; main(['completion', '{shell}'])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


# What is typed, and what it becomes.
TYPED = (("do", "doctor"), ("kernel fe", "fetch"), ("compare --ro", "--rounds"))


def test_bash_completes_commands_and_options() -> None:
    script = _completion("bash")
    ask = 'COMP_WORDS=(sampleblk-lab {}); COMP_CWORD={}; _sampleblk_lab; echo "${{COMPREPLY[@]}}"'
    for typed, expected in TYPED:
        done = subprocess.run(
            ["bash", "-c", script + ask.format(typed, len(typed.split()))], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [expected]


def test_bash_completes_files_with_blanks_and_takes_no_folder_for_a_command(tmp_path: Path) -> None:
    (tmp_path / "my job.fio").touch()
    (tmp_path / "doctor").mkdir()
    (tmp_path / "script").write_text(_completion("bash"))
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execvp("bash", ["bash", "--norc", "-i"])
    os.write(terminal, b". ./script\n")
    for typed in ("run my", "doct"):  # and then what prints the words of the line
        os.write(terminal, f"sampleblk-lab {typed}\t\x01printf '<%s>' \x05\n".encode())
    os.write(terminal, b"exit\n")
    said = b""
    with contextlib.suppress(OSError):  # its end
        while part := os.read(terminal, 4096):
            said += part
    os.close(terminal)
    os.waitpid(pid, 0)
    assert b"<sampleblk-lab><run><my job.fio>" in said
    assert b"<sampleblk-lab><doctor>" in said


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_commands_and_options(tmp_path: Path) -> None:
    script = _completion("fish")
    for typed, expected in TYPED:
        done = subprocess.run(
            ["fish", "-N", "-c", f"{script}\ncomplete -C 'sampleblk-lab {typed}'"],
            cwd=tmp_path, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        offered = [line.split("\t")[0] for line in done.stdout.splitlines()]
        # From 4.0 on fish offers what has the typed letters anywhere, too.
        assert [each for each in offered if each.startswith(typed.split()[-1])] == [expected]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize("how", ["installed", "sourced"])
def test_zsh_completes_commands_and_options(tmp_path: Path, how: str) -> None:
    (tmp_path / "_sampleblk-lab").write_text(_completion("zsh"))
    begin = {
        "installed": f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -D",
        "sourced": f"autoload -Uz compinit; compinit -u -D; . {tmp_path}/_sampleblk-lab",
    }
    # Zsh completes on a terminal only; a widget that prints the line tells what became of it.
    (tmp_path / "begin").write_text(
        f"{begin[how]}\nsaid() {{ print -r -- \"<<$BUFFER>>\"; zle kill-whole-line }}; zle -N said; bindkey '^X' said\n"
    )
    for typed, expected in TYPED:
        asked = f"""
            zmodload zsh/zpty && zpty z zsh -f -i && zpty -w z '. {tmp_path}/begin'
            zpty -w -n z $'sampleblk-lab {typed}\\t\\x18' && zpty -r -m z seen '*<<*>>*' && print -r -- "$seen"
        """
        done = subprocess.run(["zsh", "-f", "-c", asked], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.rpartition("<<")[2].partition(">>")[0].split()[-1] == expected


def test_help_documents_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    for status in (0, 1, 2, 122, 123, 124, 125, 126, 130, 141, 143):
        assert f" {status}" in text


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("argv", [["completion", "bash"], ["doctor", "--help"], ["run", "nowhere"]])
def test_what_nobody_reads_ends_the_command_quietly(argv: list[str], buffered: bool) -> None:
    """As SIGPIPE ends git and ls, of which shells say 141."""
    read, write = os.pipe()
    os.close(read)
    environment = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    with os.fdopen(write, "wb") as out:
        err = out if "nowhere" in argv else subprocess.PIPE
        done = subprocess.run([*COMMAND, *argv], stdout=out, stderr=err, env=environment, check=False)
    assert (done.returncode, done.stderr or b"") == (141, b"")


@pytest.mark.parametrize("buffered", [False, True])
def test_a_disk_that_is_full_is_told_in_a_line(buffered: bool) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    command = [*COMMAND, "doctor", "--help"]
    with Path("/dev/full").open("wb") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, env=environment, check=False)
    assert (done.returncode, done.stderr) == (1, b"sampleblk-lab: [Errno 28] No space left on device\n")


def test_commands_need_no_docstrings() -> None:
    help_text = [sys.executable, "-OO", *COMMAND[1:], "--help"]
    assert "doctor" in subprocess.run(help_text, capture_output=True, text=True, check=True).stdout


def test_standard_streams_that_are_closed_are_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "job.fio").write_text(JOB)
    for closed, argv, status, said in (
        ("<&-", ["vm", "run", "--", "cat"], 0, ""),
        (">&-", ["vm", "run", "--", "ls", "/"], 0, ""),
        ("2>&-", ["run", "job.fio"], 0, "job: "),
        ("2>&-", ["run", "nowhere"], 2, ""),
    ):
        command = ["sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, *argv]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr, bool(done.stdout)) == (status, "", bool(said))
        assert said in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_a_signal_ends_while_its_vm_starts_has_ended_by_that_signal(number: int) -> None:
    """Whoever sent SIGTERM saw that Ctrl-C had come."""
    program = (
        "import os, sys\n"
        "from sampleblk_lab.cli.main import main\n"
        "from sampleblk_lab.vm import python\n"
        f"python._run = lambda *_: os.kill(os.getpid(), {int(number)})\n"
        "sys.exit(main(['vm', 'run', '--', 'true']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-number, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_jobs_that_a_signal_ended_are_kept(number: int, tmp_path: Path) -> None:
    """Also where timeout(1) sends it: to the group, and so to the jobs, too."""
    path = tmp_path / "f"
    spec = {"job_file": f"[a]\nrw=write\nsize=64k\nruntime=60\ntime_based\nfilename={path}\n", "source": "a file"}
    spec_text = json.dumps(spec | {"keys": {}, "record": None})
    code = (
        "import json, sys\nfrom pathlib import Path\nfrom sampleblk_lab.cli import job, job_guest, main\n"
        "job._work = lambda options, _: job_guest._job(json.loads(sys.argv[1]), Path(sys.argv[2]), '/dev/none')\n"
        "sys.exit(main(['run', 'file']))"
    )
    command = [sys.executable, "-c", code, spec_text, str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, process_group=0) as child:
        times = set()
        while len(times) < 3:  # laid out, and then written
            if path.exists():
                times.add(path.stat().st_mtime_ns)
            time.sleep(0.05)
        os.killpg(child.pid, number)
        assert child.wait(timeout=30) == 128 + number
    assert json.loads((tmp_path / "result.json").read_text())["sampleblk"]["stop_reason"] == "interrupted"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["run", "job", "keys"], "'keys' is not a key of a job (expected KEY=VALUE)"),
        (["run", ""], "job_file '' (expected a fio job file)"),
        (["run", "nowhere"], "job_file 'nowhere' does not exist (expected a fio job file)"),
        (["record", "."], "job_file '.' is a folder (expected a fio job file)"),
        (["sweep", "status", "nowhere"], "FILE.toml 'nowhere' does not exist (expected the file of a sweep)"),
        (["sweep", "show", ""], "FILE.toml '' (expected"),
        (["sweep", "install", "nowhere", "--scheduler", "tcp://127.0.0.1:1"], "WHEEL 'nowhere' does not exist"),
        (["compare", "a", "b", "--rounds", "-1"], "--rounds -1 (expected 0 or more)"),
        (["compare", "a", "b", "--", "tests"], "'tests' for pytest, which is not run (expected --rounds"),
        (["crash", "show", "nowhere"], "LOG 'nowhere' does not exist (expected a journal"),
        (["crash", "explore", "--fs", "ext4", "."], "LOG '.' has no file 'log' (expected a journal"),
        (["crash", "explore", "--fs", "ext4", "job"], "job: at byte 0: expected"),
        (["bpf", "."], "a folder '.' (expected its text, a path"),
        (["import", "nowhere", "-o", "out"], "'nowhere' does not exist (expected a recording, or its name before"),
        (["import", "", "-o", "out"], "'' does not exist (expected a recording"),
        (["import", ".", "-o", "out"], "'.' is a folder (expected a recording"),
        (["import", "job", "-o", "out"], "job: at byte 0: expected"),
        (["report", "nowhere"], "nowhere is not a directory"),
        (["report", ""], "RUN '' (expected the directory of a run)"),
        (["report", "-o", "page.html"], "--output 'page.html' without a RUN"),
        (["record", "--profile", "--hz", "0", "job"], "--hz 0 (expected samples a second, from 1 on)"),
        (["record", "--hz", "99", "job"], "--hz 99 of no profile (expected --profile)"),
        (["run", "--here", "--kernel", "6.12", "job"], "--kernel 6.12 changes nothing here (expected no option"),
        (["record", "--here", "--timeout", "9", "job"], "--timeout 9 changes nothing here"),
        (["bpf", "--here", "--cold", "BEGIN{}", "--", "true"], "--cold changes nothing here"),
        (["sweep", "show", "--metric", "time", "job"], "--metric time changes nothing here (expected it with"),
        (["crash", "explore", "--fs", "ext4", "--memory", "4G", "log"], "--memory 4G changes nothing here"),
        (["kernel", "path", ""], "kernel '' (expected a release or its beginning, a path"),
        (["kernel", "fetch", ""], "kernel '' is neither a release, a path nor a suite"),
        (["report", "--runs", "nowhere"], "--runs 'nowhere' is not a directory (expected where tests keep their runs)"),
        (["compare", "a", "b"], "there are no measurements in runs/a"),
        (["compare", "../a", "b"], "'../a'"),
        (["compare", "a", "a"], "'a' beside itself (expected two sets)"),
        (["compare", "a", "latest", "--rounds", "6"], "--rounds of 'latest', which keeps one session"),
        (["compare", "--after-args=-k x", "a", "b"], "'-k x' for pytest, which is not run (expected --rounds N"),
        (["fault", "set", "speed=1"], "a fault has no parameter 'speed'; there are"),
        (["fault", "set", "ops=read"], "the fault has no action"),
        (["fault", "set", "action=bad_sector", "repaired=1"], "a fault has no parameter 'repaired'; there are"),
        (["fault", "set", "action=error", "errno=EIO"], "errno=EIO (expected a whole number)"),
        (["fault", "set", "action=error", "probability=half"], "probability=half (expected a number)"),
        (["device", "add", "cache=off"], "cache=off (expected true or false)"),
        (["run", "--device", "cache=off", "job"], "cache=off (expected true or false)"),
        (["device", "add", "size=1"], "a device has no parameter 'size'"),
        (["device", "add", "64M"], "'64M' is not a parameter of a device (expected NAME=VALUE)"),
        (["device", "add", "queues=1", "queues=2"], "'queues=2' after another queues (expected each parameter once)"),
        (["device", "counters", "257"], "index=257 (expected a whole number from 1 to 256)"),
        (["fault", "clear", "--device", "-1"], "index=-1 (expected a whole number from 1 to 256)"),
        (["xfstests", "--deadline", "nan"], "--deadline nan (expected a positive number of seconds)"),
    ],
)
def test_what_cannot_be_is_named(
    argv: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job").write_text(JOB)
    assert main(argv) == 2
    assert said.replace("; there are", "") in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ["crash", "explore", "--fs", "ext4", "--check", "", "log"],
        ["crash", "explore", "--check=", "--fs", "ext4", "log"],
        ["crash", "explore", "--fs", "ext4", "--base", "", "log"],
        ["xfstests", "--baseline", "", "generic/001"],
        ["sweep", "show", "--html", "", "sweep.toml"],
        ["report", "-o", "", "run"],
        ["compare", "--runs", "", "a", "b"],
        ["vm", "run", "--kernel", "", "--", "true"],
    ],
)
def test_an_option_with_nothing_is_not_one_that_is_left_out(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as of a shell's variable that is not set: without the check all states would be well."""
    with pytest.raises(SystemExit, match="2"):
        main(argv)
    assert "expected a value, not ''" in capsys.readouterr().err


def test_no_options_of_mkfs_and_mount_are_what_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xfstests", "--mkfs-options", "", "--mount-options=", "--resume"]) == 2
    assert "--resume without --folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv", [["bpf", "BEGIN { exit(); }", "--", "sleep", "100"], ["bcc", "--quiet", "execsnoop", "--", "sleep", "100"]]
)
def test_a_deadline_is_that_of_a_command_beside_a_tool(argv: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main([argv[0], "--timeout", "1", *argv[1:]]) == 124
    assert ("deadline" in capfd.readouterr().err) == ("--quiet" not in argv)


@pytest.mark.parametrize("seconds", ["nan", "inf", "0"])
def test_a_timeout_that_is_no_time_starts_no_vm(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vm", "run", "--timeout", seconds, "--", "true"]) == 125
    assert capsys.readouterr().err == f"sampleblk-lab: --timeout '{seconds}' is not a positive number\n"


def test_a_job_file_s_mistake_is_found_before_a_vm_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job").write_text(JOB + "blocksise=8k\n")
    assert main(["run", "job"]) == 2
    assert "job:7" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


# What has no output of its own: a shell, the text that a shell reads, and what answers git by its status.
WITHOUT_JSON = {("kernel", "bisect"), ("vm", "shell"), ("completion", "")}


def _actions(name: str) -> dict[str, list[str]]:
    """The options of a command, or of each action below it."""
    module, _, function = COMMANDS[name][0].partition(":")
    parser = argparse.ArgumentParser()
    getattr(importlib.import_module(f"sampleblk_lab.cli.{module}"), function or "configure")(parser)
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    found = dict(below[0].choices) if below else {"": parser}
    return {word: [o for action in made._actions for o in action.option_strings] for word, made in found.items()}


@pytest.mark.parametrize("name", COMMANDS)
def test_everything_that_prints_prints_json_when_asked(name: str) -> None:
    for action, options in _actions(name).items():
        assert ("--json" in options) == ((name, action) not in WITHOUT_JSON), action


def test_kernels_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert main(["kernel", "path", "--json", listed[0]["release"]]) == 0
    assert json.loads(capsys.readouterr().out)["image"] == listed[0]["image"]
    assert main(["kernel", "path", listed[0]["release"]]) == 0
    assert f"image   {listed[0]['image']}\n" in capsys.readouterr().out


def test_a_command_s_status_and_output_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["vm", "run", "--kernel", "6.1", "--json", "--", "sh", "-c", "uname -n; echo no >&2; exit 3"]) == 3
    said = json.loads(capfd.readouterr().out)
    assert (said["status"], said["stdout"], said["stderr"]) == (3, "sampleblk\n", "no\n")
    assert said["vm"]["kernel"].startswith("6.1.")
    panics = "echo far; sleep 1; echo c > /proc/sysrq-trigger; sleep 10"
    assert main(["vm", "run", "--kernel", "6.1", "--json", "--", "sh", "-c", panics]) == 123
    captured = capfd.readouterr()
    said = json.loads(captured.out)
    assert (said["status"], said["stdout"]) == (123, "far\n")
    assert said["error"].startswith("the guest's kernel panicked")
    assert "sysrq triggered crash" in captured.err


def _save(root: Path, name: str, samples: list[float], test: str = "t.py::test_a") -> None:
    scratch = root / "scratch/test_a"
    measured = {"name": "", "unit": "ns", "better": "lower", "samples": samples}
    measured |= dict.fromkeys(("value", "low", "high"), samples[0])
    store.write(scratch, test, {}, [{**measured, "confidence": 0.98, "stopped": "narrow"}])
    store.add_round(root / "runs", name, [scratch])


def test_compare_and_report_of_measurements(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    _save(tmp_path, "a", [1.0, 1.01, 0.99] * 4)
    _save(tmp_path, "b", [1.5, 1.51, 1.49] * 4)
    assert main(["compare", "--json", "--fail-slower", "-o", "page.html", "a", "b"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert row["verdict"] == "slower"
    assert main(["compare", "b", "a"]) == 0
    assert main(["compare", "--fail-slower", "b", "a"]) == 0
    _save(tmp_path, "c", [1.0, 1.01, 0.99] * 4, test="t.py::test_b")
    assert main(["compare", "a", "c"]) == 0
    assert main(["compare", "a", "c", "--fail-slower"]) == 1  # options may follow, too
    capsys.readouterr()
    assert main(["compare", "--fail-slower", "--allow-new", "a", "c"]) == 1
    assert capsys.readouterr().err == "sampleblk-lab compare: t.py::test_a: the later set does not have it\n"
    page = (tmp_path / "page.html").read_text()
    assert page.count("data:image/svg+xml") == 2
    assert "t.py::test_a" in page
    assert main(["report"]) == 0
    assert "t.py::test_a" in capsys.readouterr().out
    (run,) = (tmp_path / "runs/a/0001").iterdir()
    assert main(["report", str(run)]) == 0
    assert "Measurements" in (run / "report.html").read_text()


@pytest.mark.parametrize("option", ["--before-args", "--after-args"])
def test_compare_says_where_a_quote_has_no_end(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "a", "b", option, "-k 'fast"]) == 2
    assert f'{option}="-k \'fast": No closing quotation' in capsys.readouterr().err


def test_compare_does_not_judge_by_rounds_of_before(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of tests that are skipped now nothing is known, however often they were measured."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        for test in ("test_t.py::test_one", "test_t.py::test_two"):
            _save(tmp_path, name, [1.0, 1.01, 0.99] * 4, test=test)
    lines = ["import pytest", "def test_one(measure):", "    pytest.skip('of no use')"]
    (tmp_path / "test_t.py").write_text("\n".join(lines))
    argv = ["compare", "--fail-slower", "--rounds=1", "a", "b", "--", "-pno:cacheprovider", "-pno:xdist", "test_t.py"]
    assert main(argv) == 2
    assert "no test measured anything: " in capfd.readouterr().err
    lines[2:] = ["    measure(lambda: 1.0)", "def test_two(measure):", "    measure(lambda: 1.0)"]
    (tmp_path / "test_t.py").write_text("\n".join(lines))
    assert main(["compare", "--after-args=-k two", *argv[1:]]) == 1
    assert "test_one: the later set does not have it" in capfd.readouterr().err


@pytest.mark.full
def test_compare_makes_the_sets_alternately(tmp_path: Path) -> None:
    (tmp_path / "test_t.py").write_text(
        "import itertools\n"
        "def test_t(measure):\n"
        "    values = itertools.cycle([0.99, 1.0, 1.01])\n"
        "    measure(lambda: next(values))\n"
    )
    command = [*COMMAND, "compare"]
    command += ["--json", "--rounds", "6", "a", "b", "--", "-p", "no:cacheprovider", "-p", "no:xdist", "test_t.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["paired"]
    assert row["samples"] == [6, 6]
    assert row["verdict"] == "no difference shown"


def test_run_and_record_in_a_vm(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job").write_text(JOB)
    run_dir = tmp_path / "run"
    argv = ["record", "--syscalls", "--block", "--json", "--run-dir", str(run_dir), str(tmp_path / "job"), "fsync=8"]
    assert main(argv) == 0
    said = json.loads(capfd.readouterr().out)
    assert said["run"] == str(run_dir)
    assert said["result"]["jobs"][0]["write"]["total_ios"] == 64
    from sampleblk_lab import open_run

    assert open_run(run_dir).syscalls().summary()["calls"]["pwrite64"] == 64
    assert main(["report", str(run_dir)]) == 0
    page = (run_dir / "report.html").read_text()
    for heading in ("Machine", "Job", "System calls", "I/O sizes", "Offsets", "Block requests", "Driver"):
        assert f"<h2>{heading}</h2>" in page


def test_files_elsewhere_than_on_the_device_put_a_run_in_doubt(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A job file of fio's users names their own disk: what it measures in the VM is the VM's memory."""
    (tmp_path / "job").write_text(
        "[global]\nrw=write\nsize=64k\n[here]\nfilename=a\n[made-up]\n[of_DEVICES]\nrw=read\nfilename=DEVICE\n"
        "[there]\ndirectory=/tmp\n[nowhere]\nioengine=null\ndirectory=/tmp\n"
    )
    # Of btrfs the number of a file's device is nobody's.
    assert main(["run", "--fs", "btrfs", "--run-dir", str(tmp_path / "run"), str(tmp_path / "job")]) == 0
    assert "of_DEVICES:" in (tmp_path / "run/report.txt").read_text()
    said = "files of the jobs: /tmp: not on /dev/sampleblk1"
    assert f"in doubt: {said}\n" in capfd.readouterr().err
    [doubt] = [one for one in json.loads((tmp_path / "run/trust.json").read_text()) if one["is_doubt"]]
    assert (doubt["kind"], f"{doubt['what']}: {doubt['found']}: {doubt['verdict']}") == ("files", said)


def test_a_switch_of_a_device_is_off_however_that_is_said() -> None:
    words = ["cache=False", "discard=no", "fua=0", "integrity=true", "queues=2", "capacity=64M", "zone=4096"]
    switches = {"cache": False, "discard": False, "fua": False, "integrity": True}
    assert device_parameters(words) == {**switches, "queues": 2, "capacity": "64M", "zone": 4096}


def test_a_device_that_is_not_there_is_not_removed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["device", "remove", "77"]) == 1
    assert "No such device: '/dev/sampleblk77'" in capsys.readouterr().err


@pytest.mark.full
def test_devices_and_faults_in_a_vm(sampleblk_python: RunsInVM) -> None:
    code = (
        "import json, subprocess, sys\n"
        "def lab(*argv):\n"
        "    code = 'import sys; from sampleblk_lab.cli import main; sys.exit(main())'\n"
        "    argv = [sys.executable, '-c', code, *argv, '--json']\n"
        "    return json.loads(subprocess.run(argv, stdout=-1, check=True).stdout)\n"
        "path = lab('device', 'add', 'capacity=32M', 'queues=2')['path']\n"
        "assert lab('fault', 'set', 'action=error', 'ops=write,flush', 'count=1')['rules'] == 1\n"
        "try:\n"
        "    with open(path, 'wb', buffering=0) as f: f.write(bytes(4096)); import os; os.fsync(f.fileno())\n"
        "except OSError: print('failed as told')\n"
        "assert lab('fault', 'set', 'action=error', 'ops=read')['rules'] == 2\n"
        "rule, _ = lab('fault', 'list')\n"
        "assert rule['hits'] == 1, rule\n"
        "assert lab('fault', 'clear')['rules'] == 0\n"
        "(info,) = [d for d in lab('device', 'list') if d['path'] == path]\n"
        "assert info['capacity_bytes'] == 32 << 20\n"
        "rows = {row['counter']: row['value'] for row in lab('device', 'counters', str(info['index']))}\n"
        "assert rows['faults'] == 1, rows\n"
        "lab('device', 'remove', str(info['index']))\n"
        "assert path not in [d['path'] for d in lab('device', 'list')]\n"
    )
    done = sampleblk_python("-c", code)
    assert done.returncode == 0, done.stderr.decode()
    assert b"failed as told" in done.stdout


def test_what_a_signal_ended_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_machine: object, run_dir: Path, _timeout_s: float | None) -> int:
        (run_dir / "command.json").write_text('{"command": ["./prog"], "returncode": -2, "elapsed_s": 1}')
        return 130

    monkeypatch.setattr(cli_job, "_do", interrupted)
    assert main(["record", "--here", "--run-dir", str(tmp_path / "run"), "--", "true"]) == 130
    assert "./prog: ended by signal 2 (Interrupt) after 1.000 s\n" in capsys.readouterr().out


def test_a_command_is_recorded_in_a_vm(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_dir = tmp_path / "run"
    argv = ["record", "--syscalls", "--block", "--profile", "--json", "--run-dir", str(run_dir)]
    assert main([*argv, "--", "sh", "-c", "dd if=/dev/zero of=MOUNT/x bs=4k count=8 conv=fsync && exit 3"]) == 3
    said = json.loads(capfd.readouterr().out)
    assert said["command"]["returncode"] == 3
    from sampleblk_lab import open_run

    run = open_run(run_dir)
    assert run.syscalls().summary()["calls"]["fsync"] == 1
    assert json.loads((run_dir / "counters.json").read_text())["write_bytes"] >= 8 * 4096
    assert len(run.profile()) > 0


def test_what_ctrl_c_cut_short_in_a_vm_is_shown(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    endless = "[a]\nsize=64k\nruntime=300\ntime_based\nfilename=DEVICE\n"
    tells = f"[b]\nstartdelay=1\ncreate_on_open=1\nsize=4k\nfilename={run_dir}/begun\n"
    (tmp_path / "job").write_text(endless + tells)
    # Keys may follow options.
    argv = ["run", str(tmp_path / "job"), "--fs", "none", "rw=write", "--run-dir", str(run_dir)]
    with subprocess.Popen([*COMMAND, *argv], stdout=subprocess.PIPE, process_group=0) as child:
        while not (run_dir / "begun").exists() and child.poll() is None:
            time.sleep(0.1)
        os.killpg(child.pid, signal.SIGTERM)
        assert child.stdout is not None
        text = child.stdout.read().decode()
        assert child.wait(timeout=60) == 128 + signal.SIGTERM
    assert "stopped: interrupted; what ran until then is shown" in text
    job, _ = json.loads((run_dir / "result.json").read_text())["jobs"]
    assert job["write"]["total_ios"] > 0
    assert json.loads((run_dir / "counters.json").read_text())["writes"] > 0


@pytest.mark.parametrize(("returncode", "interrupted", "status"), [(1, True, 130), (1, False, 1), (-2, False, 130)])
def test_ctrl_c_before_the_guest_s_work_begins(returncode: int, interrupted: bool, status: int, tmp_path: Path) -> None:
    """The guest's Python, which is importing, ends with a status of its own."""
    done = Completed([], returncode)
    done.interrupted = interrupted
    machine = mock.MagicMock()
    machine.run.return_value = done
    machine.describe.return_value = ""
    assert cli_job._do(machine, tmp_path, None) == status
    (tmp_path / "result.json").write_text("{}")
    assert cli_job._do(machine, tmp_path, None) == (returncode if returncode > 0 else 130)


def test_a_run_that_failed_shows_nothing_of_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job").write_text(JOB)
    run_dir = tmp_path / "run"
    argv = ["run", "--here", str(tmp_path / "job"), "--run-dir", str(run_dir)]

    def works(_machine: object, folder: Path, _timeout_s: float | None) -> int:
        (folder / "result.json").write_text("{}")
        (folder / "report.txt").write_text("the first run\n")
        return 0

    monkeypatch.setattr(cli_job, "_do", works)
    assert main(argv) == 0
    assert "the first run" in capsys.readouterr().out
    monkeypatch.setattr(cli_job, "_do", lambda *_: 3)
    assert main(argv) == 3
    assert capsys.readouterr().out == ""
    assert [path.name for path in run_dir.iterdir()] == ["spec.json"]


def test_runs_that_begin_together_have_directories_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda *_: "job-20260101-120000")
    (tmp_path / "job").write_text(JOB)

    def works(_machine: object, folder: Path, _timeout_s: float | None) -> int:
        for name in ("result.json", "report.txt"):
            (folder / name).write_text("{}")
        return 0

    monkeypatch.setattr(cli_job, "_do", works)
    for _ in range(3):
        assert main(["run", "--here", "job"]) == 0
    name = "job-20260101-120000"
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [name, f"{name}.2", f"{name}.3"]
    assert (
        f"The run: {tmp_path}/runs/{name}.3   (sampleblk-lab report {tmp_path}/runs/{name}.3)"
        in capsys.readouterr().out
    )


def test_where_runs_cannot_be_kept_another_place_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job").write_text(JOB)
    (tmp_path / "runs").write_text("a file")
    assert main(["run", "--here", "job"]) == 1
    assert f"unless --run-dir says where: '{tmp_path}/runs'" in capsys.readouterr().err


def test_a_run_in_which_nothing_ran_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job").write_text(JOB)

    def refused(*_: object) -> int:
        raise UnsupportedError("the driver", "it is not loaded")

    for fails in (refused, lambda *_: 3):
        monkeypatch.setattr(cli_job, "_do", fails)
        assert main(["run", "--here", "job"]) != 0
        assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("wrong", [["--device", "x"], ["--device", "size=1"], ["--fs", "zfs"], ["--cpus", "0"]])
def test_what_is_called_wrongly_leaves_an_earlier_run(
    wrong: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job").write_text(JOB)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/result.json").write_text("{}")
    assert main(["run", "job", *wrong]) == 2
    assert main(["run", "job", "--run-dir", "run", *wrong]) == 2
    assert "sampleblk-lab: " in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["job", "result.json", "run"]


def test_what_the_device_refuses_in_a_vm_is_told_in_a_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job").write_text(JOB)
    argv = ["run", str(tmp_path / "job"), "--run-dir", str(tmp_path / "run"), "--device", "capacity=1"]
    assert main(argv) == 2
    assert capfd.readouterr().err.strip() == "sampleblk-lab: capacity 1 bytes (expected 4 KiB to 1 PiB)"


@pytest.mark.parametrize("argv", [["record"], ["record", "job", "--", "true"], ["record", "--", "nonesuch"]])
def test_what_cannot_be_recorded_is_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert "expected" in capsys.readouterr().err


def test_a_locale_that_is_not_utf_8_is_refused_and_breaks_no_output(tmp_path: Path) -> None:
    done = subprocess.run(
        ["localedef", "-i", "de_DE", "-f", "ISO-8859-1", str(tmp_path / "de_DE.ISO-8859-1")],
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    if not (tmp_path / "de_DE.ISO-8859-1/LC_CTYPE").exists():
        pytest.skip(f"no such locale can be made here: {done.stderr.decode()[:200]}")
    environment = {**os.environ, "LOCPATH": str(tmp_path), "LC_ALL": "de_DE.ISO-8859-1"}
    environment.pop("PYTHONUTF8", None)

    def said(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *words], capture_output=True, text=True, check=False, timeout=120, env=environment
        )

    refused = said("report", str(tmp_path))
    assert refused.returncode == 1
    assert refused.stderr == (
        "sampleblk-lab: sampleblk_lab takes names and texts for UTF-8, and the locale's encoding is iso8859-1: "
        "set LC_ALL=C.UTF-8, or PYTHONUTF8=1\n"
    )
    shown = said("doctor")
    assert "set LC_ALL=C.UTF-8" in shown.stdout
    assert "Traceback" not in shown.stderr
