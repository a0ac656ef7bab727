# SPDX-License-Identifier: MIT
"""The plugin's options: on the command line, in the ini-file, and as values that have been checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

# A test that takes longer than this hangs.
DEADLINE_S = 300.0

# As good as for ever; time_t, in which select(2) waits, ends somewhere above it.
_FOR_EVER_S = 1e9

# What may share a VM, from the least to the most.
FRESH = ("test", "module", "session")


def add(parser: pytest.Parser) -> None:
    """Declares the options, all prefixed ``--sblk-``, and the ini-file's, ``sblk_``."""
    group = parser.getgroup("sampleblk", "sampleblk-lab: experiments on the Linux storage stack")
    group.addoption(
        "--sblk-host", action="store_true", help="run VM tests on this machine, as root, instead of in a VM"
    )
    group.addoption(
        "--sblk-kernel",
        metavar="NAME",
        default=None,
        help="the kernel of the VM: release or its beginning (6.1), path, Debian suite, or host; several, with commas "
        "between them: run each VM test on each; ini: sblk_kernels",
    )
    group.addoption("--sblk-memory", metavar="SIZE", default=None, help="memory of the VM (1G); ini: sblk_memory")
    group.addoption("--sblk-cpus", metavar="N", default=None, help="virtual CPUs of the VM (2); ini: sblk_cpus")
    group.addoption(
        "--sblk-deadline",
        metavar="SECONDS",
        default=None,
        help=f"kill the VM when a test takes longer ({DEADLINE_S:g}; 0: never); ini: sblk_deadline",
    )
    group.addoption(
        "--sblk-fresh",
        metavar="|".join(FRESH),
        default=None,
        help="start a fresh VM for each test or module, or use one for the session; ini: sblk_fresh",
    )
    group.addoption(
        "--sblk-pool",
        metavar="N",
        default=None,
        help="how many fresh VMs at most are started before their tests' turn (as many as processors, 4 at most; 0: "
        "none); ini: sblk_pool",
    )
    group.addoption(
        "--sblk-scheduler",
        metavar="ADDRESS",
        default=None,
        help="run VM tests on the hosts of a Dask cluster, such as tcp://host:8786; with -n, on several at a time; "
        "ini: sblk_scheduler",
    )
    group.addoption(
        "--sblk-runs",
        metavar="DIR",
        default=None,
        help="where run directories are kept (runs, beside the ini-file); ini: sblk_runs",
    )
    group.addoption(
        "--sblk-keep",
        action="store_true",
        help="keep the run directory of every test that has one, not only of those that measured or failed",
    )
    group.addoption(
        "--sblk-save",
        metavar="NAME",
        default=None,
        help="save this session's measurements as a round of the set NAME",
    )
    group.addoption(
        "--sblk-compare",
        metavar="NAME",
        default=None,
        help="compare this session's measurements with those of the set NAME",
    )
    group.addoption(
        "--sblk-across",
        metavar="ASPECT",
        action="append",
        default=[],
        help="let --sblk-compare compare results of different accelerators, kernels or machines: "
        "accelerator, kernel, machine; may be given again",
    )
    group.addoption(
        "--sblk-fail-slower",
        action="store_true",
        help="with --sblk-compare: end with status 1 when a measurement is slower or cannot be compared",
    )
    group.addoption(
        "--sblk-allow-new",
        action="store_true",
        help="with --sblk-fail-slower: pass measurements that the set does not have yet",
    )
    parser.addini("sblk_kernels", "the kernels of --sblk-kernel", type="args", default=[])
    for name, what in (("memory", "memory"), ("cpus", "virtual CPUs"), ("deadline", "seconds of a test")):
        parser.addini(f"sblk_{name}", f"the {what} of --sblk-{name}", default="")
    parser.addini("sblk_fresh", "what gets a fresh VM, as for --sblk-fresh", default="")
    parser.addini("sblk_pool", "how many fresh VMs wait, as for --sblk-pool", default="")
    parser.addini("sblk_scheduler", "the address of --sblk-scheduler", default="")
    parser.addini("sblk_runs", "the folder of --sblk-runs, relative to the ini-file's", default="")


@dataclass(frozen=True)
class Settings:
    """What the command line and the ini-file ask for.

    Attributes:
        kernels: The kernels to run each VM test on; none: the default one.
        memory: Of the VM; None: its default.
        cpus: Of the VM; None: its default.
        deadline_s: What a test may take; None: as long as it likes.
        fresh: What gets a fresh VM, of :data:`FRESH`.
        pool: How many fresh VMs wait for their tests; None: as the machine allows.
        runs: The folder of all sets of run directories.
        scheduler: Of the cluster whose hosts have the VMs; None: this one.
    """

    kernels: tuple[str, ...]
    memory: str | None
    cpus: str | None
    deadline_s: float | None
    fresh: str
    pool: int | None
    runs: Path
    scheduler: str | None

    @property
    def matrix(self) -> bool:
        """Whether the kernel is part of a VM test's name."""
        return len(self.kernels) > 1


def of(config: pytest.Config) -> Settings:
    """The settings of a session. Raises pytest.UsageError."""
    if _SETTINGS not in config.stash:
        config.stash[_SETTINGS] = _read(config)
    return config.stash[_SETTINGS]


_SETTINGS = pytest.StashKey[Settings]()


def _value(config: pytest.Config, name: str) -> tuple[str, str | None]:
    """An option's value with the name it was given under; the command line goes before the ini-file."""
    given = config.getoption(f"--sblk-{name}")
    if given is not None:
        return f"--sblk-{name}", str(given)
    return f"sblk_{name}", str(config.getini(f"sblk_{name}")).strip() or None


def written(mark: pytest.Mark) -> str:
    """A mark as a test has it."""
    given = [*map(repr, mark.args), *(f"{key}={value!r}" for key, value in mark.kwargs.items())]
    return f"{mark.name}({', '.join(given)})"


def seconds(name: str, value: object) -> float | None:
    """A deadline; 0 stands for none."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not 0 <= number < float("inf"):
        raise pytest.UsageError(f"{name} {value!r} (expected seconds, or 0 for no deadline)")
    return number if 0 < number < _FOR_EVER_S else None


def fresh(name: str, value: object) -> str:
    """What gets a fresh VM."""
    if value not in FRESH:
        raise pytest.UsageError(f"{name} {value!r} (expected {', '.join(FRESH[:-1])} or {FRESH[-1]})")
    return str(value)


# Those that have a value.
_VALUES = ("memory", "cpus", "deadline", "fresh", "pool", "scheduler", "runs", "save", "compare")


def _check_memory(name: str, memory: str) -> None:
    from sampleblk_lab.errors import InputError
    from sampleblk_lab.vm.options import mebibytes

    try:
        mebibytes(name, memory)
    except InputError as error:
        raise pytest.UsageError(str(error)) from None


def _read(config: pytest.Config) -> Settings:
    for name in _VALUES:
        if config.getoption(f"--sblk-{name}") == "":  # a shell's variable that is not set is not as if none were given
            raise pytest.UsageError(f"--sblk-{name} '' (expected a value)")
    given = config.getoption("--sblk-kernel")
    if given is not None and config.getoption("--sblk-host"):
        raise pytest.UsageError("--sblk-kernel and --sblk-host: this machine has the kernel that it runs")
    in_file: list[object] = config.getini("sblk_kernels")
    if wrong := [kernel for kernel in in_file if not isinstance(kernel, str)]:  # in TOML 6.10 is 6.1
        raise pytest.UsageError(f'sblk_kernels {wrong[0]!r} (expected strings, such as "6.1")')
    named = str(given) if given is not None else ",".join(map(str, in_file))
    kernels = tuple(dict.fromkeys(kernel for word in named.split(",") if (kernel := word.strip())))
    if given is not None and not kernels:
        raise pytest.UsageError(f"--sblk-kernel {given!r} names no kernel")
    name, memory = _value(config, "memory")
    if memory is not None:
        _check_memory(name, memory)
    name, cpus = _value(config, "cpus")
    if cpus is not None and not (cpus.isdecimal() and int(cpus) > 0):
        raise pytest.UsageError(f"{name} {cpus!r} (expected a number above 0)")
    name, deadline = _value(config, "deadline")
    deadline_s = DEADLINE_S if deadline is None else seconds(name, deadline)
    name, unit = _value(config, "fresh")
    name_of_pool, pool = _value(config, "pool")
    if pool is not None and not pool.isdecimal():
        raise pytest.UsageError(f"{name_of_pool} {pool!r} (expected a number, or 0 for none)")
    _, scheduler = _value(config, "scheduler")
    if config.getoption("--sblk-scheduler") is not None and config.getoption("--sblk-host"):
        raise pytest.UsageError("--sblk-scheduler and --sblk-host: tests run on other hosts, or on this one")
    runs = config.getoption("--sblk-runs")
    folder = (
        Path(config.invocation_params.dir, runs)
        if runs
        else config.rootpath / (str(config.getini("sblk_runs")).strip() or "runs")
    )
    if (runs or config.getini("sblk_runs")) and folder.exists() and not folder.is_dir():
        raise pytest.UsageError(f"{'--sblk-runs' if runs else 'sblk_runs'} {str(folder)!r} (expected a folder)")
    return Settings(
        kernels=kernels,
        memory=memory,
        cpus=cpus,
        deadline_s=deadline_s,
        fresh=fresh(name, unit or FRESH[-1]),
        pool=None if pool is None else int(pool),
        runs=folder,
        scheduler=scheduler,
    )
