# SPDX-License-Identifier: MIT
"""The VM as a library: several commands, saved states, and what becomes of a broken one."""

from pathlib import Path

import pytest

from sampleblk_lab.errors import InputError
from sampleblk_lab.vm import VM, CommandError, GuestPanicError, VMError, state
from sampleblk_lab.vm.console import Console


@pytest.mark.usefixtures("no_leftovers")
def test_runs_one_command_after_the_other() -> None:
    with VM(driver=False) as vm:
        assert vm.run(["/bin/echo", "-n", "one"]).stdout == b"one"
        done = vm.run(["sh", "-c", "cat; echo two >&2; exit 3"], stdin=b"in")
        assert (done.returncode, done.stdout, done.stderr) == (3, b"in", b"two\n")
        with pytest.raises(CommandError, match="No such file"):
            vm.run(["/nowhere"])
        with pytest.raises(CommandError, match="chdir to /no/such/folder"):
            vm.run(["true"], cwd="/no/such/folder")
        # A command that leaves a child behind with its pipes open has ended all the same.
        assert vm.run(["sh", "-c", "sleep 1000 & echo done"]).stdout == b"done\n"
        assert vm.run(["true"]).returncode == 0
    vm.close()  # a second close is nothing
    with pytest.raises(VMError, match="not running"):
        vm.run(["true"])


def test_a_closed_stdin_is_an_end_of_file() -> None:
    with VM(driver=False) as vm:
        assert vm.run(["wc", "-c"], stdin=b"x" * 1_000_000).stdout.split() == [b"1000000"]
        assert vm.run(["wc", "-c"], stdin=b"").stdout.split() == [b"0"]


def test_a_command_that_does_not_read_is_no_deadlock() -> None:
    with VM(driver=False) as vm:
        assert vm.run(["true"], stdin=b"x" * (4 << 20)).returncode == 0
        assert vm.run(["cat"], stdin=b"after").stdout == b"after"


@pytest.mark.usefixtures("no_leftovers")
def test_a_state_that_does_not_load_is_built_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    states = tmp_path / "states"
    states.mkdir()
    monkeypatch.setattr(state, "path_for", lambda _identity: states / "one.state")
    (states / "one.state").write_bytes(b"not a saved machine" * 1000)
    with VM(driver=False) as vm:
        assert not vm.restored
        assert vm.run(["true"]).returncode == 0
    with VM(driver=False) as vm:
        assert vm.restored
        assert vm.run(["true"]).returncode == 0


def test_a_panic_is_an_exception_with_the_console() -> None:
    with VM(driver=False) as vm:
        with pytest.raises(GuestPanicError) as caught:
            vm.run(["sh", "-c", "echo c > /proc/sysrq-trigger; sleep 10"])
        assert "sysrq triggered crash" in caught.value.console
        assert vm.console.splats()


def test_arguments_are_checked() -> None:
    with pytest.raises(InputError, match="cpus 0"):
        VM(cpus=0)
    with pytest.raises(InputError, match="64 MiB is too little"):
        VM(memory_mib=64)


def test_console_finds_complaints_and_no_chatter(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    console = Console(log)
    assert console.text() == ""
    log.write_bytes(b"\x1bc\x1b[2J[    0.0] Linux version 6.1\r\n[    1.0] sampleblk: loaded\r\n")
    assert console.splats() == []
    mark = console.size()
    with log.open("ab") as file:
        file.write(b"[    2.0] WARNING: CPU: 1 PID: 7 at block/blk-mq.c:99 blk_mq_x+0x1/0x2\r\n")
    assert console.splats(mark) == ["[    2.0] WARNING: CPU: 1 PID: 7 at block/blk-mq.c:99 blk_mq_x+0x1/0x2"]
    assert console.text().startswith("[    0.0] Linux version")
