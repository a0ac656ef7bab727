# SPDX-License-Identifier: MIT
"""The fixtures. Each imports what it needs when a test asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# A test that asks for one of these needs a machine that may load modules and trace.
GUEST_FIXTURES = frozenset(
    {
        *("crash", "faults", "record", "sampleblk", "sampleblk_each_fs", "sampleblk_factory", "sampleblk_kernel"),
        *("sampleblk_mount", "workload"),
    }
)

FILE_SYSTEMS = ("ext4", "xfs", "btrfs", "f2fs")

# mkfs.xfs refuses less than 300 MB, mkfs.btrfs than 109 MiB; memory is taken only for what is written.
_ROOMY = "512M"


def _marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the test's marks give, ``fs`` too."""
    parameters: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers("sampleblk"))):
        if mark.args:
            raise pytest.UsageError(
                f"{request.node.nodeid}: @pytest.mark.sampleblk takes keywords only, got {mark.args!r}"
            )
        parameters.update(mark.kwargs)
    return parameters


def _device_parameters(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What of it the device takes."""
    import inspect

    import sampleblk_lab as lab

    parameters = _marked(request)
    parameters.pop("fs", None)
    known = [name for name in inspect.signature(lab.Device).parameters if name != "self"]
    for name in parameters:
        if name not in known:
            raise pytest.UsageError(
                f"{request.node.nodeid}: @pytest.mark.sampleblk has no parameter {name!r}; "
                f"there are {', '.join(sorted([*known, 'fs']))}"
            )
    return parameters


def _file_system(request: pytest.FixtureRequest) -> str | None:
    """The type that the test asks for, by `sampleblk_each_fs`, its own parameter ``fs``, or its mark."""
    if "sampleblk_each_fs" in request.fixturenames:
        return str(request.getfixturevalue("_sampleblk_fs"))
    # A parameter, that is: pyfakefs has a fixture of that name.
    parameter = getattr(getattr(request.node, "callspec", None), "params", {}).get("fs")
    if isinstance(parameter, str):
        return parameter
    chosen = _marked(request).get("fs")
    return None if chosen is None else str(chosen)


def _check_here(request: pytest.FixtureRequest) -> None:
    """Fails a test that got one of these fixtures where it cannot work."""
    from sampleblk_lab.pytest_plugin import selection

    if selection.delegates(request.config):
        pytest.fail(
            f"the fixture {request.fixturename} works in the VM; this test runs on the host, because it asks for it "
            "only while it runs (getfixturevalue): mark the test with @pytest.mark.in_vm",
            pytrace=False,
        )


@pytest.fixture(params=FILE_SYSTEMS)
def _sampleblk_fs(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sampleblk(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A :class:`sampleblk_lab.Device` with the parameters of ``@pytest.mark.sampleblk(…)``, gone after the test.

    Without a capacity of its own it has 64M, and 512M where a file system needs more.
    """
    import sampleblk_lab as lab

    _check_here(request)
    parameters = _device_parameters(request)
    if "capacity" not in parameters and _file_system(request) not in (None, "ext4"):
        parameters["capacity"] = _ROOMY
    try:
        device = lab.Device(**parameters)
    except (lab.InputError, TypeError) as error:
        raise pytest.UsageError(f"{request.node.nodeid}: @pytest.mark.sampleblk: {error}") from None
    with device:
        yield device


@pytest.fixture(scope="session")
def sampleblk_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """``sampleblk_factory(capacity="64M", …)`` makes a :class:`sampleblk_lab.Device` for a fixture of a wider scope.

    What is not closed before is closed when the VM's tests have run.
    """
    from contextlib import ExitStack

    import sampleblk_lab as lab

    _check_here(request)
    with ExitStack() as stack:

        def make(**parameters: Any) -> Any:
            return stack.enter_context(lab.Device(**parameters))

        yield make


@pytest.fixture(scope="session")
def sampleblk_kernel(request: pytest.FixtureRequest) -> str:
    """The kernel that the test runs on, as ``--sblk-kernel`` named it; its release where nothing named one."""
    import os

    from sampleblk_lab.pytest_plugin import options

    _check_here(request)
    kernels = options.of(request.config).kernels
    return str(getattr(request, "param", kernels[0] if kernels else os.uname().release))


@pytest.fixture
def sampleblk_mount(request: pytest.FixtureRequest, sampleblk: Any) -> Iterator[Any]:
    """Where a fresh file system on the ``sampleblk`` device is mounted; unmounted after the test.

    Its type is the test's own ``fs`` parameter if it has one, else ``fs=`` of the mark, else ext4.
    """
    with sampleblk.mkfs(_file_system(request) or "ext4").mount() as mount:
        yield mount


@pytest.fixture
def sampleblk_each_fs(_sampleblk_fs: str, sampleblk_mount: Any) -> Any:
    """The same as ``sampleblk_mount``, once for each of ext4, xfs, btrfs and f2fs."""
    return sampleblk_mount


@pytest.fixture
def sampleblk_folder(request: pytest.FixtureRequest) -> Path:
    """The test's run directory, for files to keep: they stay if the test measured, failed, or with ``--sblk-keep``."""
    from sampleblk_lab.pytest_plugin import artefacts

    folder = artefacts.directory_of(request.node)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """:func:`sampleblk_lab.record`, whose recordings end with the test if it has not ended them.

    They go to the test's run directory if it fails, or with ``--sblk-keep``.
    """
    from contextlib import ExitStack, suppress

    import sampleblk_lab as lab
    from sampleblk_lab.pytest_plugin import FAILED, artefacts

    _check_here(request)
    recordings: list[Any] = []
    with ExitStack() as stack:

        def begin(**what: Any) -> Any:
            recording = lab.record(**what)
            stack.callback(recording.close)
            recordings.append(recording)
            return recording

        yield begin
        if request.node.stash.get(FAILED, False) or request.config.getoption("--sblk-keep"):
            for number, recording in enumerate(recordings, 1):
                with suppress(RuntimeError):  # it never ran to its end
                    recording.save(artefacts.directory_of(request.node) / f"recording-{number}")


@pytest.fixture
def faults(sampleblk: Any) -> Iterator[Callable[..., Any]]:
    """``faults(*rules, seed=0)`` gives the ``sampleblk`` device its fault table; none is left after the test.

    A rule is a :class:`sampleblk_lab.Fault`. Without rules the table is emptied. ``faults.hits()`` lists how often
    each rule fired.
    """
    from sampleblk_lab.errors import InputError

    class Faults:
        def __call__(self, *rules: Any, seed: int = 0) -> None:
            import sampleblk_lab as lab

            for rule in rules:
                if not isinstance(rule, lab.Fault):
                    raise InputError(f"fault {rule!r}", expected="a sampleblk_lab.Fault")
            sampleblk.set_faults(rules, seed=seed)

        def hits(self) -> list[int]:
            return [rule.hits for rule in sampleblk.faults()]

    chosen = Faults()
    yield chosen
    sampleblk.set_faults([])


@pytest.fixture
def workload(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """``workload(**keys)`` runs a :class:`sampleblk_lab.Job` and returns its result.

    Without ``filename`` or ``directory`` it works on a file of ``sampleblk_mount``. The result goes into the test's run
    directory in fio's JSON.
    """
    from sampleblk_lab.pytest_plugin import artefacts

    _check_here(request)
    count = 0

    def run(**keys: Any) -> Any:
        import sampleblk_lab as lab

        nonlocal count
        count += 1
        if "filename" not in keys and "directory" not in keys:
            keys["filename"] = request.getfixturevalue("sampleblk_mount") / "test"
        result = lab.Job(**keys).run(progress=False)
        if result.interrupted:
            raise KeyboardInterrupt
        folder = artefacts.directory_of(request.node)
        folder.mkdir(parents=True, exist_ok=True)
        name = "result.json" if count == 1 else f"result-{count}.json"
        (folder / name).write_text(result.json_text())
        return result

    return run


@pytest.fixture
def crash(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Records a workload and explores what a crash may leave of it: one test is one exploration.

    ``with crash.recording() as mount:`` mounts a fresh file system, of 32M for ext4, on a device with a volatile cache
    and the parameters of ``@pytest.mark.sampleblk(…)``; ``crash.mark(text)`` notes what is promised from there on. Then
    ``crash.explore(check, model=…, states=…)`` mounts each state, gives it to the check (of the mount point and the
    state) and to fsck. What fails is in the test's report, reduced and named, and in its run directory as
    :meth:`sampleblk_lab.crash.Failure.save` writes it. See :class:`sampleblk_lab.pytest_plugin.exploring.Exploring`.
    """
    from sampleblk_lab.pytest_plugin.exploring import exploring

    _check_here(request)
    fstype = _file_system(request) or "ext4"
    capacity = "32M" if fstype == "ext4" else _ROOMY
    parameters = {"capacity": capacity, "cache": True, **_device_parameters(request)}
    with exploring(request.node, parameters, fstype) as value:
        yield value


@pytest.fixture
def measure(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Repeats a function until its result is precise enough: see :func:`sampleblk_lab.results.measure`.

    ``measure(function, width=0.02, budget_s=10)`` returns a Measurement, and stores it in the test's run directory,
    where ``--sblk-save`` and ``--sblk-compare`` find it. ``measure.both(before, after, names=("none", "bfq"))``
    measures two variants alternately, stores each under its name and returns the Comparison.
    """
    from sampleblk_lab.pytest_plugin import artefacts
    from sampleblk_lab.pytest_plugin.measuring import Measure

    measuring = Measure()
    # Asked for before the test: the session notes whether tests fail from its first use on.
    directory = artefacts.directory_of(request.node)
    yield measuring
    measuring.write(directory, request.node)
