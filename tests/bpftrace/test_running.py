# SPDX-License-Identifier: MIT
"""How bpftrace is started and stopped, with a program that behaves as it does; tests/vm has the real one."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from unittest import mock

import pytest

import sampleblk_lab as lab
from sampleblk_lab import trust
from sampleblk_lab.bpftrace import process, recording, require, run_command
from sampleblk_lab.cli.main import main

FAKE = Path(__file__).with_name("fake_bpftrace.py")
SCRIPT = "kprobe:a,\nkprobe:b { @ = count(); }"


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    monkeypatch.setattr(recording, "require", lambda: str(FAKE))

    def behave(*how: str) -> None:
        monkeypatch.setenv("FAKE", " ".join(how))

    return behave


def test_the_block_runs_when_the_probes_are_attached_and_maps_come_after(fake):
    """It says how many it attaches a second before it does; and it still waits for events after it was interrupted."""
    fake("slow")
    before = time.monotonic()
    with lab.bpf(SCRIPT, max_map_keys=10) as found:
        assert time.monotonic() - before > 1.0
        assert found.running
        with pytest.raises(RuntimeError, match="still runs"):
            _ = found.output
    assert not found.running
    assert found["@"]["value"][0] == 7
    assert found.output.printed == "attached\n"
    assert found.output.warnings == []
    assert "@" in found
    assert found.stop() is found.output


def test_what_maps_did_not_take_and_what_cannot_be_read_is_in_doubt(fake):
    fake("full")
    with trust.collected() as told, lab.bpf(SCRIPT):
        pass
    assert [str(check) for check in told.doubts()] == [
        "entries that bpftrace's maps did not take: 2: incomplete",
        "lines of bpftrace that cannot be read: 1: incomplete",
    ]


def test_a_signal_that_is_lost_is_sent_again(fake):
    fake("loses")
    with lab.bpf(SCRIPT) as found:
        pass
    assert found["@"]["value"][0] == 7


def test_one_that_is_never_seen_to_wait_is_stopped_too(fake, monkeypatch):
    monkeypatch.setattr(process, "_BUSY_S", 1.0)
    fake("busy")
    with lab.bpf(SCRIPT) as found:
        time.sleep(1.0)
    assert found["@"]["value"][0] == 7


def test_types_that_bpftrace_cannot_read_are_the_kernels_or_the_scripts(fake):
    fake("untyped", "blind")
    with pytest.raises(lab.UnsupportedError, match="cannot read this kernel's BTF"), lab.bpf(SCRIPT):
        pytest.fail("it ran")
    fake("untyped")
    with pytest.raises(lab.BpftraceError, match="unknown type name 'dev_t'"), lab.bpf(SCRIPT):
        pytest.fail("it ran")


def test_one_that_does_not_end_is_killed_and_says_so(fake, monkeypatch):
    monkeypatch.setattr(process, "_STOP_S", 1.0)
    fake("deaf")
    found = lab.bpf(SCRIPT)
    with pytest.raises(lab.BpftraceError, match="did not end and was killed") as caught, found:
        found._timeout_s = 1.0
    assert caught.value.output is not None
    assert caught.value.output.printed == "attached\n"
    assert caught.value.output.incomplete


def test_what_it_found_before_an_exception_is_kept(fake):
    fake()
    found = lab.bpf(SCRIPT)
    with pytest.raises(ZeroDivisionError), found:
        _ = 1 / 0
    assert found["@"]["value"][0] == 7


def test_a_script_that_ends_itself(fake):
    fake("exits")
    for script in (f"{SCRIPT} interval:s:1 {{ exit(); }}", "BEGIN { @ = 7; }"):
        with lab.bpf(script) as found:
            time.sleep(0.5)
        assert found["@"]["value"][0] == 7
        # Not an error, but of a part of the block only.
        assert found["@"].metadata["incomplete"] == "it ended by itself before the block did"
        assert "before the block did" in found.output.text()


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGINT, "ended before the block was"), (signal.SIGKILL, "ended by signal 9")]
)
def test_one_that_somebody_ends_is_not_whole(fake, number, said):
    """bpftrace prints its maps and ends with 0 at SIGTERM, too."""
    fake()
    found = lab.bpf(SCRIPT + " // exit()")

    def end() -> None:
        os.kill(found._process.pid, number)
        found._process.wait()

    with trust.collected() as told, pytest.raises(lab.BpftraceError, match=said) as caught, found:
        end()
    output = caught.value.output
    assert said in output.incomplete
    # A recording that it went with goes on without what it had no time to print.
    [doubt] = told.doubts()
    assert str(doubt) == f"what bpftrace found: {output.incomplete}: incomplete"
    if number == signal.SIGKILL:
        with pytest.raises(KeyError, match=f"no map '@' was printed; there are none; .*{said}"):
            output.table("@")


def test_what_a_script_is_given_is_no_option_of_bpftrace(fake):
    fake()
    with lab.bpf(SCRIPT, args=[-1, "-d", "--info", "x"]) as found:
        pass
    assert found.output.printed.startswith("-1 -d --info x\n")


def test_the_ways_to_fail(fake):
    fake("syntax")
    with pytest.raises(lab.InputError, match=r"^script:3: Unknown function: prinf") as wrong, lab.bpf(SCRIPT):
        pytest.fail("it ran")
    assert wrong.value.line == 3
    fake("missing")
    with pytest.raises(lab.UnsupportedError, match="tracepoint not found: nosuch:thing"), lab.bpf(SCRIPT):
        pytest.fail("it ran")
    fake("broken")
    with pytest.raises(lab.BpftraceError, match=r"out of luck \(exit status 1\)"), lab.bpf(SCRIPT):
        pytest.fail("it ran")
    fake("fails")
    with pytest.raises(lab.BpftraceError, match="on the last step") as failed, lab.bpf(SCRIPT):
        pass
    assert failed.value.output is not None
    assert failed.value.output["@"].metadata["incomplete"].startswith("it failed")


def test_a_probe_that_the_kernel_lacks_is_told_and_an_action_without_any_is_refused(fake):
    fake("skips")
    with lab.bpf(SCRIPT) as found:
        pass
    assert found.output.warnings[0] == "script:1:1-2: WARNING: a is not traceable"
    with pytest.raises(lab.UnsupportedError, match="has not kprobe:a"), lab.bpf("kprobe:a { @ = 1; } kprobe:b { }"):
        pytest.fail("it ran")


def test_attaching_has_a_deadline(fake):
    fake("slow")
    with pytest.raises(lab.BpftraceError, match="not attached after 0 s"), lab.bpf(SCRIPT, timeout_s=0.4):
        pytest.fail("it ran")


def test_what_this_machine_lacks_is_said_before_the_run(monkeypatch):
    monkeypatch.setattr(recording.paths, "find_program", lambda _name: None)
    with pytest.raises(lab.UnsupportedError, match="apt-get install bpftrace"):
        require()
    monkeypatch.setattr(recording.paths, "find_program", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(lab.UnsupportedError, match="root"):
        require()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for lacks, option in (("/proc/sys/kernel", "CONFIG_BPF_SYSCALL"), ("/sys/kernel/btf", "CONFIG_DEBUG_INFO_BTF")):
        there = lambda path, lacks=lacks: not str(path).startswith(lacks)  # noqa: E731
        with mock.patch.object(Path, "exists", there), pytest.raises(lab.UnsupportedError, match=option):
            require()


def test_beside_a_command(fake, tmp_path, capfd):
    fake()
    found, status = run_command(SCRIPT, ["sh", "-c", "pwd; exit 3"], cwd=str(tmp_path))
    assert (found["@"]["value"][0], status) == (7, 3)
    assert capfd.readouterr().out == f"{tmp_path}\n"
    assert run_command(SCRIPT, ["sh", "-c", "kill -9 $$"])[1] == 128 + 9
    with pytest.raises(lab.InputError, match="no program"):
        run_command(SCRIPT, ["no-such-program"])
    assert main(["bpf", "--here", "--json", "--save", str(tmp_path / "kept"), SCRIPT, "--", "sh", "-c", "exit 5"]) == 5
    said = json.loads(capfd.readouterr().out)
    assert (said["maps"]["@"], said["incomplete"]) == ([{"value": 7}], "")
    assert {"kind": "printf", "text": "attached\n"} in said["texts"]
    assert lab.read_bpftrace(tmp_path / "kept")["@"]["value"][0] == 7
    for wrong in (["bpf", "io-sizes"], ["bpf", "no-such-tool", "--", "true"], ["bpf", "io-sizes", "--", "no-such"]):
        assert main(wrong) == 2
    assert "no-such-tool" in capfd.readouterr().err


def test_the_magic_runs_a_statement_beside_the_cell(fake, capsys):
    from IPython.core.interactiveshell import InteractiveShell

    from sampleblk_lab.jupyter.magics import SampleblkMagics

    fake()
    shell = InteractiveShell()
    shell.register_magics(SampleblkMagics)
    shell.run_cell_magic("bpftrace", "told --run 'x = 6 * 7'", SCRIPT)
    assert shell.user_ns["x"] == 42
    assert shell.user_ns["told"]["@"]["value"][0] == 7
    assert "attached" in capsys.readouterr().out
    shell.run_cell_magic("bpftrace", "--seconds 0.1", SCRIPT)
    assert shell.user_ns["found"]["@"]["value"][0] == 7
