# SPDX-License-Identifier: MIT
"""VM tests, from the session's side: each is sent to a guest, and its reports come back as if it had run here.

Whoever distributes the session's tests, pytest itself or xdist, hands them to this process one by one; a process has
one guest at a time, a VM with a pytest session in it (:mod:`.worker`). A guest that dies fails the test that ran in it,
and the next test gets a new one. A guest that cannot be started fails one test and leaves the others of its kernel out:
only what has begun a test is started again, and once what was killed before it did.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pickle
import select
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from sampleblk_lab.errors import InputError
from sampleblk_lab.pytest_plugin import (
    artefacts,
    coverage,
    images,
    internals,
    kernel_log,
    options,
    plugins,
    relay,
    selection,
    waiting,
)
from sampleblk_lab.pytest_plugin.debugger import HostTerminal, shape_here
from sampleblk_lab.pytest_plugin.messages import Link, Message, can_be_sent, packed
from sampleblk_lab.pytest_plugin.worker import Setup
from sampleblk_lab.results import machine
from sampleblk_lab.vm.console import Console
from sampleblk_lab.vm.python import GIVE_UP

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

# Destinations of options that are the session's own affair: what is selected, distributed, reported; when it stops.
_SESSION_S = frozenset(
    {
        *("file_or_dir", "keyword", "markexpr", "deselect", "ignore", "ignore_glob", "pyargs", "keepduplicates"),
        *("collectonly", "lf", "failedfirst", "newfirst", "last_failed_no_failures", "cacheclear", "cacheshow"),
        *("stepwise", "stepwise_skip", "stepwise_reset", "maxfail", "continue_on_collection_errors"),
        *("xmlpath", "junitprefix", "pastebin", "htmlpath", "durations", "durations_min", "log_file", "log_file_mode"),
        *("numprocesses", "maxprocesses", "dist", "distload", "tx", "px", "rsyncdir", "rsyncignore", "looponfail"),
        *("loadgroup", "loadscopereorder", "maxworkerrestart", "maxschedchunk", "testrunuid"),
        *("help", "version", "markers", "showfixtures", "show_fixtures_per_test", "debug", "traceconfig"),
        *("basetemp", "sblk_save", "sblk_compare", "sblk_fail_slower", "sblk_scheduler"),
        # These go over as arguments, because they matter before plugins are loaded.
        *("plugins", "inifilename", "rootdir", "confcutdir", "override_ini", "pythonwarnings", "noconftest"),
        *("importmode", "assertmode", "capture", "disable_plugin_autoload"),
    }
)

# What runs a Python interpreter's arguments in a VM; VM options come first. The tests put a process of this machine in
# its place.
LAUNCH = ("-P", "-m", "sampleblk_lab.vm.launch")

# What a guest runs: as by -P, no module is looked for where the session was started.
WORKER = "import sys; del sys.path[0]; from sampleblk_lab.pytest_plugin import worker; sys.exit(worker.main())"

# In the guest, where nothing of the host's is in the way.
_BASETEMP = "/tmp/sampleblk-pytest"

# What a guest may take to end well: pytest's own end, and coverage's file.
_END_S = 60.0

# What a guest may take to print its stacks, and to be killed.
_STACKS_S = 20.0

# /proc/sys/fs/pipe-max-size, if nobody has changed it.
_PIPE_BYTES = 1 << 20

# What a guest without a deadline may take to be saved.
_PARKED_S = 60.0

# What a relay may take to end a guest on another host.
_TELL_S = 5.0

# The end of a guest's standard error that a failure shows.
_TAIL = 8000

# How much a note tells of what a test left.
_SHOWN = 4

# How sampleblk_lab.progress begins a line.
_STEP = "sampleblk-lab: "


class GuestLostError(Exception):
    """A guest is gone.

    Attributes:
        what: What happened, in one line.
        detail: The end of its console or of its standard error; may be empty.
        killed: Whether its QEMU ended without the guest's doing, as far as anybody knows: another one may live.
    """

    def __init__(self, what: str, detail: str = "", *, killed: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.detail = f"\n\n{detail}" if detail.strip() else ""
        self.killed = killed


class StartError(GuestLostError):
    """A guest never became ready."""


class DeadlineError(GuestLostError):
    """A guest took too long and was ended."""


class NotCollectedError(GuestLostError):
    """A guest does not have a test that the session has."""


@dataclass(frozen=True)
class SavedGuest:
    """A guest that has collected its tests, saved for clones of it.

    Attributes:
        files: Where its machine is.
        collected: What it calls each test, by the test's key.
        collect_errors: Why a file could not be collected, by node id.
    """

    files: tuple[str, str]
    collected: dict[tuple[str, str], int]
    collect_errors: dict[str, str]


class _Stream:
    """What comes on a descriptor, as text, of which the end is kept."""

    def __init__(self, fd: int) -> None:
        self.fd: int | None = fd
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._shown = 0

    def read(self) -> str:
        """Reads what is there; at the end of file the descriptor is closed."""
        assert self.fd is not None
        data = os.read(self.fd, 65536)
        text = self._decoder.decode(data, final=not data)
        if not data:
            self.close()
        self._text += text
        cut = max(0, len(self._text) - _TAIL)
        self._text, self._shown = self._text[cut:], max(0, self._shown - cut)
        return text

    def progress(self) -> str:
        """What is new of the lines that tell of a step, as :mod:`sampleblk_lab.progress` writes them."""
        new = []
        at = 0
        for line in self._text.splitlines(keepends=True):
            if line.startswith(_STEP) and at + len(line) > self._shown:
                new.append(line[max(0, self._shown - at) :])
            at += len(line)
        self._shown = len(self._text)
        return "".join(new)

    def said(self) -> str:
        """The end of it, without those lines and the program's name."""
        lines = [line for line in self._text.splitlines() if not line.startswith(_STEP)]
        return "\n".join(line.removeprefix("sampleblk-python: ") for line in lines).strip()

    def close(self) -> None:
        """Closes the descriptor. Idempotent."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


class Guest:
    """One VM, and the pytest session in it: on its way from the first moment, for :meth:`wait_until_ready`.

    Args:
        config: The session's configuration.
        kernel: As for ``--kernel``; None: the default.
        items: The tests that it is for, of which it can be asked any, in any order.
        image: What it is a clone of, with its tests collected; None: it collects them.
        for_image: Is for :meth:`make_image`, and runs none.
    """

    _made = 0

    def __init__(
        self,
        config: pytest.Config,
        kernel: str | None,
        items: Sequence[pytest.Item],
        *,
        image: SavedGuest | None = None,
        for_image: bool = False,
    ) -> None:
        self._config = config
        self.kernel = kernel
        Guest._made += 1
        scratch = artefacts.scratch_of(config)
        own = scratch / artefacts.GUESTS
        own.mkdir(exist_ok=True)
        self.console = Console(own / f"console-{os.getpid()}-{Guest._made}.log")
        self._coverage = coverage.arguments(config, own)
        self._last_failed: Any = None
        self._begun = False
        self._terminal: HostTerminal | None = None
        self._on_worker = hasattr(config, "workerinput")
        self._image = image
        self._collected: dict[tuple[str, str], int] = image.collected if image is not None else {}
        self._collect_errors: dict[str, str] = image.collect_errors if image is not None else {}
        self._internal = ""
        self.last: pytest.Item | None = None
        self._is_kept = False
        self.left: list[str] = []
        self.is_spent = False
        settings = options.of(config)
        chosen = {"--kernel": kernel, "--memory": settings.memory, "--cpus": settings.cpus}
        vm = [part for option, value in chosen.items() if value is not None for part in (option, value)]
        self._is_far = settings.scheduler is not None
        launch: Sequence[str] = LAUNCH
        if settings.scheduler is not None:
            try:
                launch = relay.prepared(config, settings.scheduler, LAUNCH, items)
            except InputError as error:
                raise StartError(str(error)) from None
        said, say = os.pipe()
        kind = ["--image", *image.files] if image is not None else ["--make-image"] if for_image else []
        command = [sys.executable, *launch, str(os.getpid()), str(say), *kind, *vm]
        command += ["--run-dir", str(scratch), "--console", str(self.console.path)]
        self._process = subprocess.Popen(
            [*command, "-c", WORKER],
            cwd=config.invocation_params.dir,
            env={**os.environ, **machine.for_guest()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[say],
            start_new_session=True,  # Ctrl-C is ours to pass on
        )
        os.close(say)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._output = _Stream(os.dup(self._process.stderr.fileno()))
        self._about_vm = _Stream(said)
        self._link = Link(self._process.stdout.fileno(), self._process.stdin.fileno())
        self._is_ready = False
        try:
            self._untold = b""
            if image is None:
                self._untold = packed("path", list(sys.path))
                self._untold += packed("setup", _setup(self._config, self.kernel, items, self._coverage))
            if not self._is_far and len(self._untold) <= _room(self._process.stdin.fileno()):
                self._tell()  # so that nobody need be there when it is up
        except BaseException:
            self.kill()
            raise

    # --- life -------------------------------------------------------------------------------------------------

    def wait_until_ready(self) -> None:
        """Waits until tests can be sent to it. Idempotent. Raises StartError, and has ended it then."""
        if self._is_ready:
            return
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise
        self._is_ready = True

    def _wait_until_ready(self) -> None:
        deadline = options.of(self._config).deadline_s
        try:
            if self._image is not None:
                self._expect("awake", deadline)
                self._begun = True
                return
            # Fetching a kernel and building its driver take what they take; booting has a deadline of its own.
            self._expect("up", None)
            self._tell()
            self._expect("ready", deadline)
            self._begun = True
            found, self._collect_errors = self._expect("collected", deadline)
        except GuestLostError as error:
            raise StartError(error.what, error.detail.strip(), killed=error.killed) from None
        self._collected = {tuple(test): number for number, test in enumerate(found)}

    def make_image(self) -> SavedGuest:
        """The guest with its tests collected, for clones of it; it runs none, and is there until :meth:`kill`.

        Raises GuestLostError where that cannot be, as with a file of the guest that is open or mapped.
        """
        self._send("park")
        end = time.monotonic() + (options.of(self._config).deadline_s or _PARKED_S)
        while True:
            watched = [fd for fd in (self._link.read_fd, self._output.fd, self._about_vm.fd) if fd is not None]
            ready, _, _ = select.select(watched, [], [], max(0.0, end - time.monotonic()))
            self._read_streams(ready)
            if self._link.read_fd in ready:  # its end: a worker that parks says nothing
                break
            if not ready:
                raise DeadlineError("the virtual machine was not saved")
        files = self._about_vm.said().split()
        if self._process.poll() is not None or len(files) != len(("ram", "state")):
            raise self._lost()
        return SavedGuest((files[0], files[1]), self._collected, self._collect_errors)

    def _tell(self) -> None:
        told, self._untold = self._untold, b""
        with contextlib.suppress(BrokenPipeError):
            self._link.send_packed(told)

    def _expect(self, kind: str, seconds: float | None) -> Message:
        for message in self._messages(seconds, "pytest in the VM did not collect its tests"):
            if message[0] == kind:
                return message[1:]
            self._handle(message)
        raise AssertionError("messages end with an exception")

    def close(self) -> Iterator[pytest.TestReport]:
        """Lets the guest's session end, and takes over what it measured. Idempotent.

        Yields the failures of fixtures that were kept for a test which does not come. Raises GuestLostError.
        """
        try:
            if self._process.returncode is None:
                yield from self._end()
        finally:
            self.kill()
            if self._coverage is not None and not coverage.collect(self._config, self._coverage):
                artefacts.warn(self._config, f"coverage of a VM is lost: {self.console.path.name}")
            self._coverage = None

    def _end(self) -> Iterator[pytest.TestReport]:
        seconds: float | None = _END_S
        if self.last is not None and self._is_kept:
            deadline = _deadline_of(self.last)
            seconds = None if deadline is None else _END_S + deadline
        self._send("finish")
        try:
            for message in self._messages(seconds, "what fixtures kept did not end"):
                if message[0] == "end":
                    break
                if message[0] == "report" and self.last is not None:
                    yield self._report(self.last, message[1])
                else:
                    self._handle(message)
        except DeadlineError:
            if self._is_kept:
                raise
        else:
            self._read_what_is_there()

    def kill(self) -> None:
        """Ends the VM at once. Idempotent."""
        self._close_terminal()
        if self._process.poll() is None and self._is_far:
            # It has to tell the other host; what it cannot tell, that host finds out by itself.
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_TELL_S)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr, self._output, self._about_vm):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def has_ended(self) -> bool:
        """Whether its process has, by itself or by somebody else."""
        return self._process.poll() is not None

    @property
    def is_there(self) -> bool:
        """Whether tests can still be sent to it."""
        return self._process.returncode is None

    # --- work -------------------------------------------------------------------------------------------------

    def number_of(self, item: pytest.Item) -> int | None:
        """What the guest calls a test; None when it has not collected it."""
        return self._collected.get(selection.key_of(item))

    def why_not_collected(self, item: pytest.Item) -> str:
        """Why :meth:`number_of` is None."""
        path, _ = selection.key_of(item)
        errors = [text for node, text in self._collect_errors.items() if path.endswith(node.partition("::")[0])]
        return "\n".join(["pytest in the VM did not collect this test", *errors])

    def run(self, item: pytest.Item, number: int, following: int | None) -> Iterator[pytest.TestReport]:
        """Runs a test and yields its reports as they come. Raises GuestLostError."""
        self._last_failed = None
        seconds = _deadline_of(item)
        self.last, self._is_kept = item, following is not None
        maxfail = item.config.getoption("maxfail")
        self._send("run", number, following, max(1, maxfail - item.session.testsfailed) if maxfail else 0)
        for message in self._messages(seconds, "the test did not end"):
            if message[0] == "report":
                report = self._report(item, message[1])
                self._last_failed = report if report.failed else None
                yield report
            elif message[0] == "done":
                _, shouldfail, shouldstop, self.left, self.is_spent = message
                item.session.shouldfail = item.session.shouldfail or shouldfail
                item.session.shouldstop = item.session.shouldstop or shouldstop
                return
            else:
                self._handle(message)

    def _send(self, *message: Any) -> None:
        try:
            self._link.send(*message)
        except BrokenPipeError:
            raise self._lost() from None

    def _report(self, item: pytest.Item, data: Any) -> pytest.TestReport:
        report: pytest.TestReport = self._config.hook.pytest_report_from_serializable(config=self._config, data=data)
        report.nodeid, report.location = item.nodeid, item.location
        report.__dict__["sblk_in_vm"] = True
        return report

    def _handle(self, message: Message) -> None:
        match message:
            case ("text", text):
                self._show(text)
            case ("debugger", True):
                if self._last_failed is not None:
                    internals.hide_from_summary(self._last_failed)
                self._terminal = HostTerminal(self._link, self._config)
            case ("debugger", False):
                self._close_terminal()
                self._link.send("closed")
            case ("output", data) if self._terminal is not None:
                self._terminal.show(data)
            case ("warning", text, category, filename, lineno, when, nodeid, location):
                shown = warnings.WarningMessage(_warning(category, text), category, filename, lineno)
                arguments = {"warning_message": shown, "when": when, "nodeid": nodeid, "location": location}
                self._config.hook.pytest_warning_recorded.call_historic(kwargs=arguments)
            case ("junit", attribute, name, value):
                internals.add_to_junit(self._config, self.last.nodeid if attribute and self.last else None, name, value)
            case ("internal", text):
                self._internal = text
            case ("interrupted", reason, status):
                self.kill()
                if reason is None:
                    raise KeyboardInterrupt
                pytest.exit(reason, returncode=status)
            case ("end", status):
                raise self._lost(f"pytest in the VM ended with status {status}")

    def _messages(self, seconds: float | None, late: str) -> Iterator[Message]:
        """What the guest says, until it has been silent... for good, or for `seconds` in all; then GuestLostError."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            begin = time.monotonic()
            if self._terminal is not None:
                wait, also = None, self._terminal.input_fd  # whoever debugs thinks as long as they like
            else:
                wait, also = None if end is None else max(0.0, end - begin), None
            watched = [fd for fd in (self._link.read_fd, self._output.fd, self._about_vm.fd, also) if fd is not None]
            ready, _, _ = select.select(watched, [], [], wait)
            if self._terminal is not None and end is not None:
                end += time.monotonic() - begin
            self._read_streams(ready)
            if self._terminal is not None and also is not None and also in ready:
                self._terminal.forward()
            if self._link.read_fd in ready:
                try:
                    message = self._link.receive()
                except EOFError:
                    raise self._lost() from None
                yield message
            elif not ready:
                hung = self._ask_why()
                self.kill()
                raise DeadlineError(f"{late} in {seconds:g} s; its virtual machine was killed", hung)

    # --- what it says -----------------------------------------------------------------------------------------

    def _read_what_is_there(self) -> None:
        """Shows what it wrote last, which the message that it ends may have overtaken."""
        while (fd := self._output.fd) is not None and (ready := select.select([fd], [], [], 0)[0]):
            self._read_streams(ready)

    def _read_streams(self, ready: Sequence[int]) -> None:
        if self._output.fd in ready:
            text = self._output.read()
            if self._begun:
                self._show(text)
        if self._about_vm.fd in ready:
            self._about_vm.read()
            if not self._begun and not self._on_worker:
                # Such as fetching a kernel, which takes long.
                sys.stderr.write(self._about_vm.progress())
                sys.stderr.flush()

    def _show(self, text: str) -> None:
        """Shows what a test wrote to the terminal; an xdist worker has none."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and not self._on_worker:
            if self._terminal is not None:
                text = text.replace("\n", "\r\n")
            reporter.write(text, flush=True)

    def _close_terminal(self) -> None:
        if self._terminal is not None:
            self._terminal.close()
            self._terminal = None

    def _ask_why(self) -> str:
        """The console with the stacks of what hangs, which ends the guest."""
        before = self.console.size()
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            self._process.send_signal(GIVE_UP)
            self._process.wait(timeout=_STACKS_S)
        return self._console(self.console.text(before).strip())

    def _console(self, text: str = "") -> str:
        """What is to be shown of it: its end, if nothing else."""
        text = text or self.console.tail()
        return f"--- Guest console ---\n{text}" if text.strip() else ""

    def _lost(self, ending: str = "") -> GuestLostError:
        """What became of the guest, now that it says nothing any more."""
        self._close_terminal()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_END_S)
        while ready := select.select([fd for fd in (self._output.fd, self._about_vm.fd) if fd is not None], [], [], 0)[
            0
        ]:
            self._read_streams(ready)
        self.kill()
        if self._internal:
            return GuestLostError("an error in pytest, or in a plugin of it, in the VM", self._internal)
        status = self._process.returncode
        if status == 123 or self.console.has_panic():
            return GuestLostError("the guest's kernel panicked", self._console())
        if status == 122:
            why = self._about_vm.said().partition("\n")[0]
            detail = "\n".join(filter(None, (why, self._console())))
            return GuestLostError("the virtual machine ended", detail, killed=True)
        if not ending and 124 <= status <= 127:
            what, _, detail = self._about_vm.said().partition("\n")
            return GuestLostError(what or f"the virtual machine failed (status {status})", detail)
        if not ending:
            by = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
            ending = f"pytest in the VM {by}"
        return GuestLostError(ending, "\n".join(filter(None, (self._output.said(), self._about_vm.said()))))


def _room(pipe: int) -> int:
    """What can be written to a pipe before anybody reads it, in bytes: made as much as a user may have (pipe(7))."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)


def _warning(category: type[Warning], text: str) -> Warning:
    try:
        return category(text)
    except Exception:  # one whose constructor wants something else
        return UserWarning(text)


def _asked(item: pytest.Item, name: str) -> Any:
    """What the closest mark that says it gives for a keyword; None: none does. Raises pytest.UsageError."""
    for mark in item.iter_markers("in_vm"):
        if mark.args or not mark.kwargs.keys() <= {"deadline", "fresh"}:
            given = options.written(mark)
            raise pytest.UsageError(f"{item.nodeid}: {given} (expected the keywords deadline and fresh only)")
        if mark.kwargs.get(name) is not None:
            return mark.kwargs[name]
    return None


def _fresh_of(item: pytest.Item) -> str:
    asked = _asked(item, "fresh")
    return options.of(item.config).fresh if asked is None else options.fresh(f"{item.nodeid}: in_vm(fresh=)", asked)


def _deadline_of(item: pytest.Item) -> float | None:
    asked = _asked(item, "deadline")
    if asked is None:
        return options.of(item.config).deadline_s
    return options.seconds(f"{item.nodeid}: in_vm(deadline=)", asked)


# --- what a guest is told --------------------------------------------------------------------------------------------


def _setup(
    config: pytest.Config, kernel: str | None, items: Sequence[pytest.Item], measured: dict[str, Any] | None
) -> Setup:
    choice = plugins.choose(config, items)
    values = {dest: value for dest, value in vars(config.option).items() if dest not in _SESSION_S}
    left = [dest for dest, value in values.items() if not can_be_sent(value)]
    if left:
        artefacts.warn(config, f"the VM is not given options whose values cannot be sent: {', '.join(sorted(left))}")
    worker = hasattr(config, "workerinput")
    values["basetemp"] = _BASETEMP
    columns, colours = internals.columns_and_colours(config)
    with internals.own_input(config):
        shape = None if worker else shape_here()
    return Setup(
        args=_arguments(config, items, {*choice.left_out, *(name for name, _ in choice.load)}),
        options={dest: pickle.dumps(value) for dest, value in values.items() if dest not in left},
        plugins=[plugins.own(config), *choice.load],
        rewritten=internals.rewritten(config),
        inis=choice.inis,
        tests=[selection.key_of(item) for item in items],
        shared=_fresh_of(items[0]) != "test",
        kernel=kernel if options.of(config).matrix else None,
        scratch=str(artefacts.scratch_of(config)),
        xdist=dict(config.workerinput) if worker else None,  # type: ignore[attr-defined]
        debugger=not worker,
        shape=shape,
        columns=columns,
        colours=colours,
        coverage=measured,
        junit=internals.junit_family(config),
    )


def _arguments(config: pytest.Config, items: Sequence[pytest.Item], decided: set[str]) -> list[str]:
    """The guest's command line: what pytest reads before it loads plugins, and the tests' files."""
    known = config.option
    early = internals.early_options(config)
    arguments = ["-c", str(config.inipath or os.devnull), f"--rootdir={config.rootpath}"]
    arguments += [f"--confcutdir={early.confcutdir}"] if early.confcutdir else []
    modes = {"import-mode": "importmode", "assert": "assertmode", "capture": "capture"}
    # -p no:capture takes its option with it.
    arguments += [f"--{name}={getattr(known, dest)}" for name, dest in modes.items() if hasattr(known, dest)]
    arguments += ["--noconftest"] if known.noconftest else []
    for name in known.plugins:
        if name.removeprefix("no:") not in decided or name.startswith("no:"):
            arguments += ["-p", name]
    arguments += [part for plugin in plugins.named(config) for part in ("-p", plugin)]
    for warning in known.pythonwarnings or ():
        arguments += ["-W", warning]
    # The session has read these: its options are what came of them, and its plugins are chosen.
    overrides = [*(known.override_ini or ()), "addopts=", "required_plugins="]
    arguments += [part for override in overrides for part in ("-o", override)]
    return [*arguments, *selection.files_of(items)]


# --- the session's guests ---------------------------------------------------------------------------------------------


class Guests:
    """The guest that this process has at the moment, and what it learnt of those before."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._guest: Guest | None = None
        self._unit: Hashable = None
        self._broken: dict[str | None, str] = {}
        self._done: set[str] = set()
        self._images = images.Images(config, self._for_image)
        self._waiting = waiting.Waiting(config, self._own_unit_of, self._started)

    def run(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Runs one test and reports it."""
        kernel = selection.kernel_of(item)
        if refused := plugins.refused(self._config, item):
            artefacts.scratch_of(self._config)  # whose session hears of it
            self._fail(item, "setup", refused, judged=False)
            return
        if kernel in self._broken:
            artefacts.note_not_run(self._config, self._broken[kernel])
            return
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        phases = []
        try:
            for report in self._reports(item, nextitem):
                phases.append(report.when)
                hook.pytest_runtest_logreport(report=report)
        except StartError as error:
            name = f"the VM with kernel {kernel}" if kernel is not None else "the VM"
            self._broken[kernel] = f"{name} did not start (see {item.nodeid})"
            self._fail(item, "setup", f"{name} did not start: {error.what}{error.detail}", judged=False)
        except NotCollectedError as error:
            self._fail(item, "setup", error.what)
        except GuestLostError as error:
            self._fail(item, "teardown" if "call" in phases else "call", f"{error.what}{error.detail}")
        self._done.add(item.nodeid)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _reports(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[pytest.TestReport]:
        kernel_log.allowed(item)  # an error of it is told before a VM is started
        guest = self._guest_for(item, nextitem)
        number = guest.number_of(item)
        if number is None:
            raise NotCollectedError(guest.why_not_collected(item))
        stays = nextitem is not None and selection.needs_guest(nextitem) and self._unit_of(nextitem) == self._unit
        following = guest.number_of(nextitem) if nextitem is not None and stays else None
        try:
            yield from guest.run(item, number, following)
            if guest.left or guest.is_spent:
                self._retire(item, guest)
            elif nextitem is None or (selection.needs_guest(nextitem) and not stays):
                self.close()
        except GuestLostError as error:
            self._keep_console(item, guest)
            if not isinstance(error, DeadlineError):
                error.what += " under this test"
            raise

    @staticmethod
    def _unit_of(item: pytest.Item) -> Hashable:
        """What tests that share a guest have in common."""
        match _fresh_of(item):
            case "test":
                return selection.kernel_of(item), item.nodeid
            case "module":
                return selection.kernel_of(item), str(item.path)
        return selection.kernel_of(item)

    def _own_unit_of(self, item: pytest.Item) -> Hashable | None:
        return None if _fresh_of(item) == "session" else self._unit_of(item)

    def _retire(self, item: pytest.Item, guest: Guest) -> None:
        """Ends a guest in which a test left something; the next test gets a fresh one."""
        self.close()
        if guest.left and _fresh_of(item) != "test":
            shown = "; ".join(guest.left[:_SHOWN]) + (
                f"; and {len(guest.left) - _SHOWN} more" if guest.left[_SHOWN:] else ""
            )
            artefacts.warn(self._config, f"{item.nodeid} left in its VM: {shown}. The next test gets a fresh one")

    def _guest_for(self, item: pytest.Item, nextitem: pytest.Item | None) -> Guest:
        unit = self._unit_of(item)
        if self._guest is None or not self._guest.is_there or unit != self._unit:
            self.close()
            waited = self._waiting.take(unit)
            self._guest, self._unit = waited or self._started(item), unit
            self._waiting.fill(item, nextitem)  # beside this one's start
            try:
                self._wait_for_guest(item, again=waited is not None)
            except StartError:
                self._guest = None
                self._waiting.kill()
                raise
        self._waiting.fill(item, nextitem)
        if waiting.is_disturbed(item):
            self._images.settle()
            self._waiting.settle()
        return self._guest

    def _wait_for_guest(self, item: pytest.Item, *, again: bool) -> None:
        """Waits until the guest is ready; with `again`, or if it was killed, for another one where that is not."""
        assert self._guest is not None
        try:
            self._guest.wait_until_ready()
        except StartError as error:
            if not (self._images.forget(selection.kernel_of(item)) or again or error.killed):
                raise
            self._guest = self._started(item)  # it was lost on its way, when no test was under way in it
            self._guest.wait_until_ready()

    def _started(self, item: pytest.Item) -> Guest:
        """A guest on its way, for a test and those that share it."""
        unit, kernel = self._unit_of(item), selection.kernel_of(item)
        mine = self._coming(item, lambda one: self._unit_of(one) == unit)
        image = self._images.of(item) if _fresh_of(item) == "test" else None
        return Guest(self._config, kernel, mine, image=image)

    def _for_image(self, item: pytest.Item) -> tuple[int, Callable[[], Guest]]:
        """How many tests could do with an image of a test's kernel, and how the guest for it is started."""
        kernel = selection.kernel_of(item)
        coming = self._coming(item, lambda one: selection.kernel_of(one) == kernel and _fresh_of(one) == "test")
        # A worker of xdist's runs about its part of them.
        count = len(coming) // waiting.workers(self._config)
        return count, lambda: Guest(self._config, kernel, coming, for_image=True)

    def _coming(self, item: pytest.Item, is_meant: Callable[[pytest.Item], bool]) -> list[pytest.Item]:
        """Of the VM tests that are meant a test that begins, and those that have not run."""
        return [
            one
            for one in item.session.items
            if selection.needs_guest(one)
            and (one is item or one.nodeid not in self._done)  # --keep-duplicates has one twice
            and is_meant(one)
        ]

    def _keep_console(self, item: pytest.Item, guest: Guest) -> None:
        folder = artefacts.directory_of(item)
        folder.mkdir(exist_ok=True)
        (folder / "console.log").write_text(guest.console.text())

    def _fail(self, item: pytest.Item, when: str, text: str, *, judged: bool = True) -> None:
        """Reports what the guest could not; with an end, without which JUnit and HTML reports have no case.

        `judged`: whether that says something of the kernel.
        """
        about: Any = {"keywords": dict.fromkeys(item.keywords, 1), "when": when, "sblk_judged": judged}
        made = [pytest.TestReport(item.nodeid, item.location, outcome="failed", longrepr=text, **about)]
        if when != "teardown":
            about["when"] = "teardown"
            made.append(pytest.TestReport(item.nodeid, item.location, outcome="passed", longrepr=None, **about))
        for report in made:
            item.ihook.pytest_runtest_logreport(report=report)

    def close(self) -> None:
        """Ends the guest, in order, and reports what fails in its end. Idempotent."""
        guest, self._guest = self._guest, None
        if guest is None:
            return
        try:
            for report in guest.close():
                self._config.hook.pytest_runtest_logreport(report=report)
        except GuestLostError as error:
            if guest.last is not None:
                self._keep_console(guest.last, guest)
                self._fail(guest.last, "teardown", f"{error.what} when its tests had ended{error.detail}")

    def end(self) -> None:
        """Ends it, and those that wait. Idempotent."""
        self._waiting.kill()
        self._images.kill()
        self.close()

    def kill(self) -> None:
        """Ends all of them at once. Idempotent."""
        self._waiting.kill()
        self._images.kill()
        guest, self._guest = self._guest, None
        if guest is not None:
            guest.kill()


_GUESTS = pytest.StashKey[Guests]()


def of(config: pytest.Config) -> Guests:
    """The guests of this process; made on first use."""
    if _GUESTS not in config.stash:
        config.stash[_GUESTS] = Guests(config)
        config.add_cleanup(config.stash[_GUESTS].kill)
    return config.stash[_GUESTS]


def close(config: pytest.Config, *, at_once: bool = False) -> None:
    """Ends what :func:`of` made, in order unless `at_once`."""
    if _GUESTS in config.stash:
        guests = config.stash[_GUESTS]
        guests.kill() if at_once else guests.end()
