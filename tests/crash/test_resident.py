# SPDX-License-Identifier: MIT
"""Tools that stay loaded: the same answers as from a process of its own each, and nothing that stays."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sampleblk_lab.crash import resident
from sampleblk_lab.device.filesystem import ToolError, checker, run_tool

FSTYPES = ("ext4", "xfs", "btrfs", "f2fs")
SIZE = {"ext4": 16 << 20, "xfs": 320 << 20, "btrfs": 128 << 20, "f2fs": 64 << 20}


@pytest.fixture
def tools() -> Iterator[resident.ResidentTools]:
    made = resident.ResidentTools()
    try:
        with made.used():
            yield made
    finally:
        made.close()
    assert not _children()


def _children() -> list[str]:
    """The processes that this one has started and that are still there."""
    return (Path("/proc/self/task") / str(os.getpid()) / "children").read_text().split()


def _image(folder: Path, fstype: str) -> Path:
    image = folder / f"{fstype}.img"
    image.touch()
    os.truncate(image, SIZE[fstype])
    force = {"ext4": "-F", "xfs": "-f", "btrfs": "-f", "f2fs": "-f"}[fstype]
    run_tool([str(Path(checker("ext4")[0]).parent / f"mkfs.{fstype}"), force, "-q", str(image)])
    return image


def _said(run: Callable[[list[str]], str], command: list[str]) -> tuple[int, str]:
    try:
        return 0, run(command)
    except ToolError as error:
        return error.status, error.output


def _steady(output: str) -> list[str]:
    """Without where something was in memory, and how long it took; threads may say the same in another order."""
    return sorted(re.sub(r"0x[0-9a-f]{10,}|[\d.]+ secs", "?", line) for line in output.splitlines())


@pytest.mark.parametrize("fstype", FSTYPES)
def test_a_checker_that_stays_says_what_one_of_its_own_process_says(
    fstype: str, tools: resident.ResidentTools, tmp_path: Path
) -> None:
    whole = checker(fstype)
    sound = _image(tmp_path, fstype)
    broken = tmp_path / "broken.img"
    broken.write_bytes(sound.read_bytes())
    with broken.open("r+b") as file:
        # Behind the first superblock: group descriptors, an AG's headers, a checkpoint.
        for at in (4096, 8192, 1 << 20, 17 << 20):
            if at < SIZE[fstype]:
                file.seek(at)
                file.write(b"\xff" * 2048)
    missing = tmp_path / "no such image"
    statuses = set()
    for image in (sound, broken, missing, sound, broken):
        command = [*whole, str(image)]
        status, output = _said(run_tool, command)
        ours, answer = _said(resident.run, command)
        assert (ours, _steady(answer)) == (status, _steady(output))
        statuses.add(status)
    assert len(statuses) > 1
    assert len(_children()) == 1
    tools.close()


# Whatever a program can leave in its memory: the first run says what it is before.
FORGETFUL = r"""
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int global, set = 7;
static char *leaked;
static _Thread_local int of_thread;

static void at_end(void)
{
    printf("end %d\n", global);
}

int main(int argc, char **argv)
{
    static char line[64];
    char *volatile first = malloc(10); /* what follows it is new, and calloc() knows that */
    char *zeros = calloc(1, 3 << 20);

    for (size_t i = 0; i < 3 << 20; i++)
        if (zeros[i])
            puts("not zero");
    memset(zeros, *first = 0xff, 3 << 20);
    printf("%d %d %d %d %s %s %s %d %s\n", global++, set++, of_thread++, errno, leaked ? leaked : "none",
        getenv("LEFT") ? "left" : "unset", line, optind, setlocale(LC_ALL, NULL));
    if (atexit(at_end))
        puts("no more");
    setenv("LEFT", "1", 1);
    strcpy(line, "written");
    getopt(argc, argv, "n");
    leaked = strdup(argv[argc - 1]);
    for (int i = 0; i < 300; i++)
        memset(malloc(5000), i, 5000);
    errno = 99;
    fflush(stdout);
    if (!strcmp(leaked, "abort"))
        abort();
    if (!strcmp(leaked, "fall"))
        *(volatile int *)16 = 1;
    printf("not flushed");
    if (!strcmp(leaked, "at once"))
        _exit(3);
    return 5;
}
"""


def test_what_a_tool_leaves_in_memory_the_next_run_does_not_see(
    tools: resident.ResidentTools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, tool = tmp_path / "tool.c", tmp_path / "forgetful"
    source.write_text(FORGETFUL)
    subprocess.run(["gcc", "-O1", "-o", tool, source], check=True)
    monkeypatch.setattr(resident, "_IN_PLACE", frozenset({"forgetful"}))
    mappings = set()
    for run in range(60):
        for word in ("one", "abort", "at once", "fall", "-n"):
            command = [str(tool), word]
            ours = _said(resident.run, command)
            assert ours == _said(run_tool, command)
            assert ours[0] == {"abort": -signal.SIGABRT, "at once": 3, "fall": -signal.SIGSEGV}.get(word, 5)
        (server,) = _children()
        if run > 3:
            mappings.add(Path(f"/proc/{server}/maps").read_text())
    assert len(mappings) == 1
    tools.close()


def test_a_check_in_place_that_is_killed_is_not_missed(tools: resident.ResidentTools, tmp_path: Path) -> None:
    sound = _image(tmp_path, "ext4")
    command = checker("ext4")
    said = _said(run_tool, [*command, str(sound)])
    assert _said(resident.run, [*command, str(sound)]) == said
    (server,) = _children()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)  # opened by nobody else: it waits for ever

    def kill() -> None:
        below = Path(f"/proc/{server}/task/{server}/children")
        while not (children := below.read_text().split()):
            time.sleep(0.01)
        os.kill(int(children[0]), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    assert _said(resident.run, [*command, str(fifo)])[0] == -signal.SIGKILL
    killer.join()
    assert _said(resident.run, [*command, str(sound)]) == said
    assert _children() == [server]
    tools.close()


def test_a_server_does_not_stay_for_ever(tools: resident.ResidentTools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "_RUNS", 3)
    command = ["/bin/echo", "here"]
    servers = []
    for _ in range(7):
        assert resident.run(command) == "here\n"
        servers += _children()
    assert [servers.count(one) for one in dict.fromkeys(servers)] == [3, 3, 1]
    tools.close()


def test_a_script_is_run_with_its_arguments_each_time_anew(tools: resident.ResidentTools, tmp_path: Path) -> None:
    script = tmp_path / "tool"
    script.write_text("#!/bin/sh -e\nn=$((n + 1)); printf '%s\\n' \"$0\" $n \"$@\"; printf '\\377' >&2; exit $#\n")
    script.chmod(0o755)
    for words in (["a", "b c"], [""], ["x"] * 50):
        command = [str(script), *words]
        printed = "\n".join([str(script), "1", *words]) + "\n\\xff"
        assert _said(resident.run, command) == _said(run_tool, command) == (len(words), printed)
    assert len(_children()) == 1
    tools.close()


def test_what_it_is_started_with_reaches_what_it_starts(tools: resident.ResidentTools, tmp_path: Path) -> None:
    script = tmp_path / "tool"
    script.write_text("#!/bin/sh\n/usr/bin/env; kill -$1 $$\n")
    script.chmod(0o755)
    status, printed = _said(resident.run, [str(script), "TERM"])
    assert status == -signal.SIGTERM
    assert "SAMPLEBLK_RESIDENT" not in printed
    assert "LD_PRELOAD" not in printed
    added = {line.partition("=")[0] for line in printed.splitlines()} - set(os.environ)
    assert not {name for name in added if name.startswith(("SAMPLEBLK_", "LD_"))}
    assert f"PATH={os.environ['PATH']}\n" in printed
    assert "LC_ALL=C\n" in printed
    assert "LC_ALL=C\n" in run_tool(["/usr/bin/env"])
    tools.close()


def test_a_server_that_is_gone_is_done_without(tools: resident.ResidentTools) -> None:
    command = ["/bin/echo", "here"]
    assert resident.run(command) == "here\n"
    (server,) = _children()
    os.kill(int(server), signal.SIGKILL)
    assert resident.run(command) == "here\n"
    assert not _children()
    assert resident.run(command) == "here\n"
    # More than a packet has room for.
    tools.close()
    words = ["/bin/echo", *["w" * 1000] * 100]
    assert resident.run(words) == run_tool(words)


@pytest.mark.usefixtures("tools")
def test_a_tool_that_does_not_let_us_in_is_run_as_ever(tmp_path: Path) -> None:
    source, static = tmp_path / "tool.c", tmp_path / "tool"
    source.write_text('#include <stdio.h>\nint main(int argc, char **argv) { puts(argc > 1 ? argv[1] : "usage"); }\n')
    subprocess.run(["gcc", "-static", "-o", static, source], check=True)
    for word in ("one", "two"):
        assert resident.run([str(static), word]) == f"{word}\n"
    assert not _children()


def test_what_is_interrupted_answers_nobody_else(tools: resident.ResidentTools, tmp_path: Path) -> None:
    script = tmp_path / "tool"
    begun = tmp_path / "begun"
    script.write_text(f"#!/bin/sh\nif [ $1 = slow ]; then touch {begun}; exec sleep 1000; fi; echo $1\n")
    script.chmod(0o755)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 2)
        with pytest.raises(KeyboardInterrupt):
            resident.run([str(script), "slow"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not _children()
    assert resident.run([str(script), "fast"]) == "fast\n"
    # What it was at ends with the server.
    deadline = time.monotonic() + 10
    assert begun.exists()
    tools.close()
    while _sleepers() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _sleepers()


def _sleepers() -> list[Path]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes() == b"sleep\0001000\0":
                found.append(process)
        except OSError:
            continue
    return found


def test_outside_an_exploration_nothing_stays() -> None:
    assert resident.run(["/bin/echo", "here"]) == "here\n"
    assert not _children()
