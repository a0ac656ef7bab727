# SPDX-License-Identifier: MIT
"""The words that stand for the ABI's numbers (linux/sampleblk.h)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sampleblk_lab import checked
from sampleblk_lab._native import core
from sampleblk_lab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

OPS = ("read", "write", "discard", "write_zeroes", "flush")
MODES = ("mq", "bio")
COMPLETIONS = ("inline", "softirq", "timer")
CUTS = ("all", "random", "explicit")
FAULTS = (
    "error", "delay", "hang", "lost_write", "torn_write", "misdirected_write", "corrupt", "hold", "not_durable",
    "set_byte", "bad_sector", "corrupt_tag",
)  # fmt: skip
TAGS = ("guard", "app", "ref")
# SAMPLEBLK_MAX_DEVICES
MAX_DEVICES = 256
LATENCIES = ("none", "constant", "uniform", "normal", "lognormal", "exponential", "pareto", "empirical")


#: What most of its fields hold.
U64_MOST = 2**64 - 1
#: What a snapshot's id and a queue's number hold.
U32_MOST = 2**32 - 1


def size(value: int | str, what: str) -> int:
    """A number of bytes, or what is written for one, such as ``"64K"``. Raises InputError."""
    return core.parse_bytes(value, what) if isinstance(value, str) else checked.count(what, value, 0, U64_MOST)


def index(value: int | None) -> int:
    """A device's number to be; 0, the lowest free one, for None. Raises InputError."""
    return 0 if value is None else checked.count("index", value, 1, MAX_DEVICES)


def queue(value: int) -> int:
    """A hardware queue's number, and not the one that stands for all together. Raises InputError."""
    return checked.count("queue", value, 0, U32_MOST - 1)


def snapshot(value: int) -> int:
    """A snapshot's id. Raises InputError."""
    return checked.count("snapshot", value, 0, U32_MOST)


def number(words: Sequence[str], word: str, what: str) -> int:
    """The ABI's number of a word.

    Raises:
        InputError: It is none of them; the message lists them.
    """
    if word not in words:
        raise InputError(f"{what} {word!r}", expected=", ".join(words))
    return words.index(word)


def ops_mask(ops: str | Iterable[str]) -> int:
    """The bits of one or more operations."""
    if isinstance(ops, str):
        ops = (ops,)
    elif not isinstance(ops, Iterable):
        raise InputError(f"operations {ops!r}", expected=", ".join(OPS))
    mask = 0
    for op in ops:
        mask |= 1 << number(OPS, op, "operation")
    return mask


def ops_words(mask: int) -> tuple[str, ...]:
    """The operations of a mask."""
    return tuple(op for bit, op in enumerate(OPS) if mask & 1 << bit)
