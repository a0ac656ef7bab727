# SPDX-License-Identifier: MIT
"""The commands and their options. Each command is a module of this package, imported when it is called."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any

import sampleblk_lab
from sampleblk_lab.cli.output import any_text, is_unread
from sampleblk_lab.errors import FormatError, InputError, SampleblkError
from sampleblk_lab.interrupts import INTERRUPTED, UNREAD, ended_like_ctrl_c
from sampleblk_lab.progress import occupy_standard_streams

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import SupportsWrite

# command -> (module, and its function if not configure, one line of help)
COMMANDS = {
    "demo": ("demo", "the article's first experiment, from the job to the driver, in one command"),
    "run": ("job", "run a fio job file on a fresh device in a VM"),
    "record": ("job:configure_record", "run a fio job file, or a command, and record what the kernel does"),
    "bcc": ("bpf:configure_bcc", "a tool of bcc's beside a command: what it printed, as tables"),
    "bpf": ("bpf", "a bpftrace script beside a command: what it found, as tables"),
    "import": ("import_", "block I/O that perf script, trace-cmd, biosnoop or blktrace recorded, as a run"),
    "report": ("report", "a run as one HTML page, or the measurements there are"),
    "compare": ("compare", "two saved sets of measurements, or two ways to run the same tests, alternately"),
    "device": ("device", "devices of this machine: list, add, remove, counters"),
    "fault": ("fault", "a device's faults: list, set, clear"),
    "crash": ("crash", "what a crash may leave of a recording: explore, show, import"),
    "sweep": ("sweep", "a function over kernels, file systems and parameters: run, status, resume, show"),
    "xfstests": ("suite:configure_xfstests", "tests of xfstests, each in a VM of its own, on our devices"),
    "blktests": ("suite:configure_blktests", "tests of blktests, each in a VM of its own, on our device"),
    "suite-results": ("suite_results:configure", "what xfstests, blktests or kdevops left elsewhere, as a table"),
    "vm": ("vm", "run a command, or a shell, in a virtual machine"),
    "kernel": ("kernel", "kernels to boot: list, fetch, path, config, bisect"),
    "module": ("module", "the driver: build it for a kernel, find its source"),
    "jupyter": ("jupyter", "notebook kernels in VMs: install"),
    "doctor": ("doctor", "what works on this machine, and how to fix what does not"),
    "completion": ("completion", "completion for bash, zsh or fish"),
}

EPILOG = """\
exit status:
  0    well
  1    it failed, a job failed, a check failed, or with --fail-slower something is slower
  2    called wrongly, or an input that cannot be
  122  the VM ended under the command      123  the guest's kernel panicked
  124  a deadline passed                   125  the VM could not be started
  126, 127  the command could not be started in the guest, or was not found
  130, 143  interrupted by Ctrl-C or SIGTERM: what a job has measured until then is shown and kept
  141  nobody reads its output any more, as of | head
"""


# What comes before a command of the user's, or its arguments, which stand after "--".
_BISECT = ["kernel", "bisect"]
_BESIDE_A_COMMAND = (["record"], ["bcc"], ["bpf"], ["compare"], _BISECT)

# What it ends with where nothing was judged: 1 or 2 would tell git bisect that the commit is bad.
_NO_VERDICT = 128


class _Store(argparse.Action):
    """Keeps an option's value.

    An empty one, as of a shell's variable that is not set, is refused where it is neither the default nor any_text().
    """

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if option_string and values == "" and self.default != "" and self.type is not any_text:
            raise argparse.ArgumentError(self, "expected a value, not ''")
        setattr(namespace, self.dest, values)


class _Parser(argparse.ArgumentParser):
    """Parsers below it, of commands and their actions, are of its type."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.register("action", None, _Store)

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        if message:  # argparse's own says nothing of what it could not write
            print(message, end="", file=file or sys.stderr)


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns its exit status, as :data:`EPILOG` lists them."""
    occupy_standard_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr does with what its encoding lacks
    words = sys.argv[1:] if argv is None else argv
    try:
        return status_of(lambda: _main(words))
    except Exception:
        if words[:2] != _BISECT:
            raise
        with contextlib.suppress(OSError):
            traceback.print_exc()
        return _NO_VERDICT


def _main(argv: list[str]) -> int:
    try:
        return _command(argv)
    finally:  # also of --help, which raises SystemExit
        if sys.stdout is not None:  # closed
            sys.stdout.flush()


def _command(argv: list[str]) -> int:
    parser = _Parser(
        prog="sampleblk-lab",
        description=(sampleblk_lab.__doc__ or "").partition("\n")[0],  # there is none with PYTHONOPTIMIZE=2
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {sampleblk_lab.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name in argv[:1]:
            home, _, function = module.partition(":")
            getattr(import_module(f"sampleblk_lab.cli.{home}"), function or "configure")(command)
    words: list[str] = []
    bisecting = argv[:2] == _BISECT
    if "--" in argv and any(argv[: len(first)] == first for first in _BESIDE_A_COMMAND):
        # argparse would take them for a job file and its keys.
        end = argv.index("--")
        argv, words = argv[:end], argv[end + 1 :]
    try:
        options, others = parser.parse_known_args(argv)
        if others and hasattr(options, "keys") and not any(word.startswith("-") for word in others):
            options.keys += others  # argparse takes those only that follow the job file at once
        elif others:
            parser.error(f"unrecognized arguments: {' '.join(others)}")
    except SystemExit as ended:
        if bisecting and ended.code:
            ended.code = _NO_VERDICT
        raise
    options.words = words
    with ended_like_ctrl_c() as came:
        options.came = came
        status = status_of(lambda: int(options.run(options)), quiet=getattr(options, "quiet", False))
    return 128 + came[0] if came and status == INTERRUPTED else status


def status_of(work: Callable[[], int], *, quiet: bool = False) -> int:
    """The exit status of `work`, which it returns or which its error stands for; the error is printed.

    Args:
        work: What may fail.
        quiet: A VM's failure is told by its status alone.
    """
    try:
        return work()
    except (InputError, FormatError) as error:
        print(f"sampleblk-lab: {error}", file=sys.stderr)
        return 2
    except SampleblkError as error:
        status = getattr(error, "exit_status", None)
        if status is None or not quiet:
            print(f"sampleblk-lab: {error}", file=sys.stderr)
        return 1 if status is None else int(status)
    except OSError as error:
        if is_unread(error):
            return UNREAD
        print(f"sampleblk-lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
