# SPDX-License-Identifier: MIT
"""Which of the states that a crash may leave are gone through."""

from __future__ import annotations

import operator
from dataclasses import dataclass

from sampleblk_lab._native import core
from sampleblk_lab.errors import InputError


@dataclass(frozen=True)
class Prefix:
    """After each submission, with all that was submitted by then."""

    def native(self) -> core.CrashModel:
        """The model of the core."""
        return _model(core.CrashModelKind.prefix)


@dataclass(frozen=True)
class Reorder:
    """After each submission, with some of the writes lost that are not durable by then.

    Attributes:
        complete_up_to: All subsets, where at most so many writes can be lost beside the last one; up to 24.
        at_most: Where there are more: at most so many lost, or at most so many kept.
    """

    complete_up_to: int = 8
    at_most: int = 2

    def native(self) -> core.CrashModel:
        """The model of the core."""
        return _model(core.CrashModelKind.reorder, complete_up_to=self.complete_up_to, at_most=self.at_most)


@dataclass(frozen=True)
class Torn:
    """After each submission, with all that was submitted, and one write of it ended early.

    Attributes:
        block_bytes: What is written whole or not at all: the disk's logical block, which begins at a multiple of it.
            None: as the log says (:attr:`Log.block_bytes`), and 512 where it does not.
        places: Where a write is ended; evenly spread where it has more blocks.
    """

    block_bytes: int | None = None
    places: int = 16

    def native(self) -> core.CrashModel:
        """The model of the core. Raises InputError."""
        return _model(core.CrashModelKind.torn, unit_sectors=_sectors(self.block_bytes), tears=self.places)


@dataclass(frozen=True)
class Sample:
    """Drawn: after any submission, with any of the writes lost or torn that are not durable by then. Has no end.

    Attributes:
        seed: The same seed draws the same states.
        block_bytes: As of :class:`Torn`.
    """

    seed: int = 1
    block_bytes: int | None = None

    def native(self) -> core.CrashModel:
        """The model of the core. Raises InputError."""
        return _model(core.CrashModelKind.sample, unit_sectors=_sectors(self.block_bytes), seed=self.seed)


Model = Prefix | Reorder | Torn | Sample


def native_model(model: Model) -> core.CrashModel:
    """The model of the core. Raises InputError for what is none, such as a model's class or name."""
    if not isinstance(model, Model):
        raise InputError(f"model={model!r}", expected="Prefix(), Reorder(), Torn() or Sample()")
    return model.native()


def _sectors(block_bytes: int | None) -> int:
    if block_bytes is None:
        return 0
    try:
        size = operator.index(block_bytes)
    except TypeError:
        size = 0
    if not 512 <= size < 1 << 32 or size % 512:
        raise InputError(f"a block of {block_bytes!r} bytes", expected="a multiple of 512, below 4 GiB")
    return size // 512


def _model(kind: core.CrashModelKind, **fields: int) -> core.CrashModel:
    made = core.CrashModel()
    made.kind = kind
    for name, value in fields.items():
        try:
            setattr(made, name, value)
        except TypeError:
            raise InputError(f"{name} {value!r}", expected="a whole number from 0") from None
    return made
