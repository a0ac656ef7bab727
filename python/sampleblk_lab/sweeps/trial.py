# SPDX-License-Identifier: MIT
"""One trial: the parameters that the function gets, the machine that it runs in, and the key of both."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sampleblk_lab
from sampleblk_lab.errors import InputError
from sampleblk_lab.paths import in_home
from sampleblk_lab.sweeps.plan import canonical
from sampleblk_lab.texts import utf8

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Digits of a key. Two of a million trials have the same by chance once in 10^17.
_DIGITS = 24

#: The axis that chooses the kernel of the trial's VM.
KERNEL = "kernel"


@dataclass(frozen=True)
class Shape:
    """The VM of each trial.

    Attributes:
        cpus: Virtual CPUs.
        memory_mib: Memory.
        accel: ``"kvm"``, ``"tcg"`` or None, as for :class:`sampleblk_lab.vm.VM`.
        driver: Offer the driver to the guest's modprobe.
    """

    cpus: int = 2
    memory_mib: int = 1024
    accel: str | None = None
    driver: bool = True

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Shape:
        """From what a user wrote. Raises InputError."""
        kinds = {"cpus": (int, "1 to 255"), "memory_mib": (int, "128 or more"), "accel": (str, "'kvm' or 'tcg'")}
        for name, value in given.items():
            if name == "driver" and isinstance(value, bool):
                continue
            if name not in kinds:
                raise InputError(f"vm has {name}={value!r}", expected="cpus, memory_mib, accel, and driver, a bool")
            kind, expected = kinds[name]
            if not isinstance(value, kind) or isinstance(value, bool):
                raise InputError(f"vm {name}={value!r}", expected=expected)
        made = cls(**given)
        if not 1 <= made.cpus <= 255:
            raise InputError(f"vm cpus={made.cpus}", expected="1 to 255")
        if made.memory_mib < 128:
            raise InputError(f"vm memory_mib={made.memory_mib}", expected="128 or more")
        if made.accel not in (None, "kvm", "tcg"):
            raise InputError(f"vm accel={made.accel!r}", expected="'kvm' or 'tcg'")
        return made

    def json(self) -> dict[str, Any]:
        """For the key, and to be sent."""
        return {"cpus": self.cpus, "memory_mib": self.memory_mib, "accel": self.accel, "driver": self.driver}


@dataclass(frozen=True)
class Trial:
    """One of the sweep's trials.

    Attributes:
        key: What it is known by: the digest of the code, the parameters, the kernel, the driver and the seed.
        parameters: Axis to value.
        repeat: Which repeat, from 0.
        seed: Its own: the same whenever and wherever it runs.
        release: The kernel of its VM; empty when it runs on the host, or is not known before the kernel is fetched.
        exclusive: Whether it has its host to itself.
        made_of: The digest of all that its key is of but the parameters, the repeat, the seed and the revision.
    """

    key: str
    parameters: dict[str, Any] = field(hash=False)
    repeat: int
    seed: int
    release: str = ""
    exclusive: bool = False
    made_of: str = ""

    def described(self) -> str:
        """Its parameters, for people: ``kernel=6.1 fs=ext4 (repeat 2)``."""
        return f"{describe(self.parameters)} (repeat {self.repeat})"


def describe(parameters: Mapping[str, Any]) -> str:
    """``kernel=6.1 fs=ext4``."""
    return utf8(" ".join(f"{name}={value}" for name, value in parameters.items()))


def named(settings: Sequence[Sequence[Any]]) -> list[str]:
    """``6.1, ext4`` for each; as JSON where otherwise two would be called the same, such as 1 and "1"."""
    names = [utf8(", ".join(map(str, values))) for values in settings]
    return names if len(set(names)) == len(names) else [canonical(list(values))[1:-1] for values in settings]


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def make(
    code: str,
    parameters: dict[str, Any],
    repeat: int,
    seed: int,
    machine: Mapping[str, Any] | None,
    release: str = "",
    *,
    exclusive: bool = False,
    revision: str | None = None,
) -> Trial:
    """A trial, with its key.

    Args:
        code: The function's digest.
        parameters: Axis to value.
        repeat: Which repeat.
        seed: The sweep's.
        machine: The VM, its kernel and driver, as plain data; None on the host.
        release: The kernel's, to be shown.
        exclusive: Whether it has its host to itself. What was measured beside others does not count for it.
        revision: Of what is measured; nor does what was measured of another one.
    """
    said = canonical(parameters)
    # Not of the code: a changed function meets the same random choices.
    own = int(_digest("seed", seed, said, repeat)[:8], 16) >> 1
    alone = ("exclusive",) if exclusive else ()
    of = () if revision is None else ("revision", revision)
    key = _digest(sampleblk_lab.__version__, code, said, repeat, own, machine, *alone, *of)[:_DIGITS]
    made_of = _digest(sampleblk_lab.__version__, code, machine, *alone)[:_DIGITS]
    return Trial(key, parameters, repeat, own, release, exclusive, made_of)


class Machines:
    """What VMs of a shape are made of, by the kernel's name; each is looked up once."""

    def __init__(self, shape: Shape, *, download: bool) -> None:
        self._shape = shape
        self._download = download
        self._known: dict[str | None, tuple[dict[str, Any] | None, str]] = {}

    def of(self, kernel: str | None) -> tuple[dict[str, Any] | None, str]:
        """The machine as plain data, and the release; None when its kernel is not in the cache and must not be fetched.

        Raises:
            InputError: The name means nothing.
        """
        if kernel not in self._known:
            self._known[kernel] = self._look_up(kernel)
        return self._known[kernel]

    def _look_up(self, kernel: str | None) -> tuple[dict[str, Any] | None, str]:
        from sampleblk_lab.errors import UnsupportedError
        from sampleblk_lab.kernels import resolve
        from sampleblk_lab.kernels.driver import source_identity

        try:
            found = resolve(kernel, download=self._download)
        except UnsupportedError:
            if self._download:
                raise
            return None, ""
        with found.image.open("rb") as file:
            image = hashlib.file_digest(file, "sha256").hexdigest()
        driver = source_identity() if self._shape.driver else None
        about = {**self._shape.json(), "release": found.release, "image": image, "driver": driver}
        # Those of Debian go with the image. A kernel of the user's own may have others with the same image.
        if found.modules is not None and not found.suite:
            about["modules"] = _modules_digest(found.modules)
        return about, found.release


def _modules_digest(folder: Path) -> str:
    """What is in a kernel's modules."""
    made = hashlib.sha256()
    for path in sorted(folder.rglob("*.ko*")):
        if path.is_file():
            with path.open("rb") as file:
                made.update(f"{path.relative_to(folder)}\n{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return made.hexdigest()


def kernel_there(asked: str | None, release: str) -> str | None:
    """What a host of the sweep is told: the release, so that all take the same one, or what is a path there, too."""
    return asked if asked is not None and ("/" in asked or asked == "host") else release or None


def path_of(given: Any) -> str | None:
    """A kernel given by a path as every process finds it."""
    return str(in_home(given).absolute()) if isinstance(given, str) and "/" in given else given
