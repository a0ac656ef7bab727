# SPDX-License-Identifier: MIT
"""What of a device can change while I/O runs: queues, completion, timing, limits, faults."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab import checked
from sampleblk_lab._native import core
from sampleblk_lab.device import names
from sampleblk_lab.device.control import Opened
from sampleblk_lab.device.latency import latency_bins, measured_ops
from sampleblk_lab.errors import InputError
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

_NO_LAST = names.U64_MOST
# struct sampleblk_rule.probability is in 1e-9.
_PROBABILITY_ONE = 1_000_000_000
# SAMPLEBLK_BAD_*
_BAD_ONCE, _BAD_WRITES = 1, 2
# What an action is told beside where and when it acts: arg0 and arg1, but for a bad sector's, which are flags of arg0.
_ARGUMENTS = {
    "error": ("errno",),
    "delay": ("delay_ns",),
    "torn_write": ("sectors", "errno"),
    "misdirected_write": ("sector",),
    "corrupt": ("bits",),
    "set_byte": ("byte", "value"),
    "bad_sector": ("once", "bad_writes"),
    "corrupt_tag": ("tag", "flip"),
}
# Which operations an action is one of; of the others it is one of all.
_OPS = {
    "lost_write": ("write", "discard", "write_zeroes"),
    "torn_write": ("write",),
    "misdirected_write": ("write",),
    "corrupt": ("read", "write"),
    "not_durable": ("write", "flush"),
    "set_byte": ("read", "write"),
    "bad_sector": ("read", "write", "write_zeroes"),
    "corrupt_tag": ("read", "write"),
}
# What is less than 64 bits.
_MOST = {"errno": 4095, "delay_ns": core.SAMPLEBLK_MAX_LATENCY_NS, "bits": 64, "value": 255, "every": 2**32 - 1}
_TAG_MOST = {"guard": 2**16 - 1, "app": 2**16 - 1, "ref": 2**32 - 1}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A rule of the fault table. Rules are tried in order; the first that matches and fires acts, and no other.

    Attributes:
        action: ``"error"`` (fail with `errno`), ``"delay"`` (`delay_ns` more), ``"hang"`` (never complete),
            ``"lost_write"`` (succeed but write nothing), ``"torn_write"`` (write the first `sectors` only; succeed, or
            fail with `errno` if given), ``"misdirected_write"`` (write at `sector` instead), ``"corrupt"`` (flip
            `bits` of what a read returns or a write stores), ``"hold"`` (execute, but complete only when the rules are
            replaced or the device must be idle), ``"not_durable"`` (a flush makes nothing durable, a write's FUA is
            ignored), ``"set_byte"`` (byte `byte` of what a read returns or a write stores becomes `value`),
            ``"bad_sector"`` (fail with ENODATA after what lies before the first bad sector of first_sector to
            last_sector; writes among `ops` repair the sectors that they cover) or ``"corrupt_tag"`` (flip the bits
            `flip` of the `tag` in the protection information of each block of first_sector to last_sector that a
            read returns or a write stores).
        ops: The operations: read, write, discard, write_zeroes, flush.
        first_sector: Requests that touch first_sector to last_sector (512 bytes each) match; a flush always does.
        last_sector: See there.
        skip: So many matches pass first.
        count: Then it fires at most this many times; 0: no limit.
        every: Of the matches after `skip` only each nth fires.
        probability: Chance of firing, above 0 and up to 1.
        errno: See ``"error"`` and ``"torn_write"``; for the first EIO by default.
        delay_ns: See ``"delay"``.
        sectors: See ``"torn_write"``.
        sector: See ``"misdirected_write"``.
        bits: See ``"corrupt"``.
        byte: See ``"set_byte"``; a request without that byte does not match.
        value: See ``"set_byte"``.
        once: ``"bad_sector"``: a request that failed has repaired the sectors that it covers.
        bad_writes: ``"bad_sector"``: writes fail, too, and repair nothing.
        tag: ``"corrupt_tag"``: ``"guard"`` (the checksum, 16 bits), ``"app"`` (16 bits, which the kernel leaves alone;
            where all are set nothing of the block is checked) or ``"ref"`` (its number, 32 bits).
        flip: ``"corrupt_tag"``: which bits of it, as a mask.
        up_ns: Since the rules were set this one sleeps for `up_ns`, then may act for `down_ns`, and so on.
        down_ns: See there; 0: it always may act.
        matched: Out: how many requests matched.
        hits: Out: how many times it fired.
        repaired: Out, ``"bad_sector"``: how many sectors are good again.
    """

    action: str
    ops: str | tuple[str, ...] = "write"
    first_sector: int = 0
    last_sector: int = _NO_LAST
    skip: int = 0
    count: int = 0
    every: int = 1
    probability: float = 1.0
    errno: int = 0
    delay_ns: int = 0
    sectors: int = 0
    sector: int = 0
    bits: int = 1
    byte: int = 0
    value: int = 0
    once: bool = False
    bad_writes: bool = False
    tag: str = "guard"
    flip: int = 1
    up_ns: int = 0
    down_ns: int = 0
    matched: int = 0
    hits: int = 0
    repaired: int = 0

    def _check(self) -> None:
        """What the ABI could not tell from something else that is meant, and the driver's rules (core/fault.c)."""
        if not isinstance(self.probability, (int, float)) or not 0 < self.probability <= 1:
            raise InputError(f"probability {self.probability!r}", expected="above 0 and up to 1")
        taken = _ARGUMENTS.get(self.action, ())
        foreign = set(chain.from_iterable(_ARGUMENTS.values())).difference(taken)
        for field in dataclasses.fields(self):
            if field.name in foreign and getattr(self, field.name) != field.default:
                raise InputError(f"{field.name} of a fault {self.action!r}", expected=", ".join(taken) or "none")
        allowed = _OPS.get(self.action, names.OPS)
        ops = names.ops_words(names.ops_mask(self.ops))
        needed = {"read"} if self.action == "bad_sector" else set()
        if not ops or not needed <= set(ops) <= set(allowed):
            known = f"{' and '.join(needed)}, and what else of {', '.join(allowed)}" if needed else " or ".join(allowed)
            raise InputError(f"ops={self.ops!r} of a fault {self.action!r}", expected=known)
        for name in ("first_sector", "last_sector", "skip", "count", "every", "up_ns", "down_ns", *taken):
            if name in ("once", "bad_writes"):
                checked.flag(name, getattr(self, name))
            elif name != "tag":
                most = _TAG_MOST[self.tag] if name == "flip" else _MOST.get(name, names.U64_MOST)
                checked.count(name, getattr(self, name), int(name == "flip"), most)
        if self.first_sector > self.last_sector:
            raise InputError(f"first_sector={self.first_sector}", expected=f"at most last_sector, {self.last_sector}")
        if self.up_ns and not self.down_ns:
            raise InputError(f"up_ns={self.up_ns} without down_ns", expected="for how long it may act then, as down_ns")
        checked.count("down_ns", self.down_ns, 0, names.U64_MOST - self.up_ns)

    def raw(self) -> dict[str, int]:
        """The fields of the ABI's ``struct sampleblk_rule``.

        Raises:
            InputError: A word, a chance, an operation or an argument that the action does not have.
        """
        action = names.number(names.FAULTS, self.action, "fault action")
        tag = names.number(names.TAGS, self.tag, "tag")
        self._check()
        told = {name: getattr(self, name) for name in _ARGUMENTS.get(self.action, ())}
        match self.action:
            case "error":
                told["errno"] = told["errno"] or errno.EIO
            case "corrupt_tag":
                told["tag"] = tag
            case "bad_sector":
                told = {"flags": _BAD_ONCE * self.once | _BAD_WRITES * self.bad_writes}
        arg0, arg1, *_ = *told.values(), 0, 0
        return {
            "action": action,
            "ops": names.ops_mask(self.ops),
            "first_sector": self.first_sector,
            "last_sector": self.last_sector,
            "skip": self.skip,
            "count": self.count,
            "every": self.every,
            "probability": 0 if self.probability >= 1 else max(1, round(self.probability * _PROBABILITY_ONE)),
            "arg0": arg0,
            "arg1": arg1,
            "up_ns": self.up_ns,
            "down_ns": self.down_ns,
        }

    @classmethod
    def from_raw(cls, raw: dict[str, int]) -> Fault:
        """From the fields of the ABI's ``struct sampleblk_rule``."""
        action = names.FAULTS[raw["action"]]
        told: dict[str, Any] = dict(zip(_ARGUMENTS.get(action, ()), (raw["arg0"], raw["arg1"]), strict=False))
        match action:
            case "corrupt_tag":
                told["tag"] = names.TAGS[told["tag"]]
            case "bad_sector":
                told = {"once": bool(raw["arg0"] & _BAD_ONCE), "bad_writes": bool(raw["arg0"] & _BAD_WRITES)}
                told["repaired"] = raw["arg1"]
        return cls(
            action=action,
            ops=names.ops_words(raw["ops"]),
            first_sector=raw["first_sector"],
            last_sector=raw["last_sector"],
            skip=raw["skip"],
            count=raw["count"],
            every=max(1, raw["every"]),
            probability=raw["probability"] / _PROBABILITY_ONE if raw["probability"] else 1.0,
            up_ns=raw["up_ns"],
            down_ns=raw["down_ns"],
            matched=raw["matched"],
            hits=raw["hits"],
            **told,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Latency:
    """An operation's latency as the driver draws it; the fields are those of :meth:`Tuning.set_timing`."""

    model: str
    a: int = 0
    b: int = 0
    bins: tuple[tuple[int, int], ...] = ()
    seed: int = 0


def _bins(bins: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    try:
        pairs = [(end, count) for end, count in bins]
    except (TypeError, ValueError):
        raise InputError(f"bins={bins!r:.60}", expected="pairs (end of the bin in ns, count)") from None
    for end, count in pairs:
        checked.count("end of a bin", end, 0, names.U64_MOST)
        checked.count("count of a bin", count, 0, names.U64_MOST)
    return pairs


def _raw(faults: Iterable[Fault]) -> list[dict[str, int]]:
    rules = list(faults) if isinstance(faults, Iterable) else [None]
    if not all(isinstance(rule, Fault) for rule in rules):
        raise InputError(f"faults={faults!r:.60}", expected="a list of Fault(…)")
    return [rule.raw() for rule in rules]


class Tuning(Opened):
    """The part of a device that changes how it answers."""

    def tune(
        self,
        *,
        queues: int | None = None,
        completion: str | None = None,
        histograms: bool | None = None,
        read_only: bool | None = None,
        sector_atomic: bool | None = None,
    ) -> dict[str, Any]:
        """Changes what is given, while I/O runs; returns how all of it is now.

        Args:
            queues: Hardware queues.
            completion: ``"inline"``, ``"softirq"`` or ``"timer"``.
            histograms: Record latencies (:meth:`histogram`).
            read_only: Refuse writes.
            sector_atomic: No reader sees half a sector of a write.

        Raises:
            OSError: EINVAL for more queues than CPUs, ENOMEM when the kernel grants fewer.
        """
        fields: dict[str, int] = {}
        if queues is not None:
            fields["queues"] = queues
        if completion is not None:
            fields["completion"] = names.number(names.COMPLETIONS, completion, "completion")
        for name, value in (("histograms", histograms), ("read_only", read_only), ("sector_atomic", sector_atomic)):
            if value is not None:
                fields[name] = int(checked.flag(name, value))
        now: dict[str, Any] = dict(self._control.tune(self.index, **fields))
        now["completion"] = names.COMPLETIONS[now["completion"]]
        for name in ("histograms", "read_only", "sector_atomic"):
            now[name] = bool(now[name])
        return now

    def histogram(self, op: str = "read", queue: int | None = None) -> Table:
        """How long requests took from queue to completion: columns ``from_ns``, ``to_ns`` (not included), ``count``.

        Args:
            op: read, write, discard, write_zeroes or flush.
            queue: One hardware queue, counted from 0; all together by default.

        Note:
            Recorded only after ``tune(histograms=True)``.
        """
        asked = names.number(names.OPS, op, "operation")
        raw = self._control.histogram(self.index, asked, *([] if queue is None else [names.queue(queue)]))
        buckets = np.array(raw["buckets"], dtype=np.uint64)
        powers = [2**n for n in range(len(buckets))]
        return Table.of(
            {
                "from_ns": np.array([0, *powers[1:]], dtype=np.uint64),
                "to_ns": np.array([*powers[1:], 2**64 - 1], dtype=np.uint64),
                "count": buckets,
            },
            units={"from_ns": "ns", "to_ns": "ns"},
            metadata={"total_ns": str(raw["total_ns"])},
        )

    def reset(self) -> None:
        """Lets counters and histograms begin again at zero."""
        self._control.reset(self.index)

    def set_timing(
        self,
        model: str = "none",
        a: int = 0,
        b: int = 0,
        *,
        ops: str | Iterable[str] = ("read", "write"),
        bins: Sequence[tuple[int, int]] = (),
        seed: int = 0,
    ) -> None:
        """Gives operations a latency, drawn for each request.

        Args:
            model: none; constant (`a`); uniform (`a` to `b`); normal (mean `a`, standard deviation `b`); lognormal
                (median `a`; `b`: standard deviation of the natural logarithm, in thousandths); exponential (mean `a`,
                added to `b`); pareto (minimum `a`; `b`: shape, in thousandths); empirical (`bins`). Times in ns.
            a: See `model`.
            b: See `model`.
            ops: Which operations; the others keep theirs.
            bins: (end of the bin in ns, count) in ascending order, such as a histogram measured on a real disk;
                within a bin latencies are spread evenly.
            seed: Decides what is drawn.

        Raises:
            InputError: `model` is none of these, a value no whole number, or `bins` are no pairs of them.
            OSError: EINVAL for what is no model, or a latency above 60 s.
        """
        self._control.set_timing(
            self.index,
            names.ops_mask(ops),
            names.number(names.LATENCIES, model, "latency model"),
            checked.count("a", a, 0, names.U64_MOST),
            checked.count("b", b, 0, names.U64_MOST),
            checked.count("seed", seed, 0, names.U64_MOST),
            _bins(bins),
        )

    def timing(self, op: str = "read") -> Latency:
        """The latency that an operation has now, as :meth:`set_timing` was told.

        Raises:
            InputError: `op` is none of read, write, discard, write_zeroes, flush.
        """
        raw = self._control.timing(self.index, names.number(names.OPS, op, "operation"))
        return Latency(names.LATENCIES[raw["model"]], raw["a"], raw["b"], tuple(raw["bins"]), raw["seed"])

    def set_timing_like(
        self, source: Any, *, ops: str | Iterable[str] | None = None, less_ns: int = 0, seed: int = 0
    ) -> dict[str, int]:
        """Gives operations the latencies that were measured elsewhere, such as on a real SSD: the empirical model.

        Args:
            source: What was measured, as :func:`latency_bins` takes it: a :class:`Result`, fio's JSON, …
            ops: Which operations, each from its own measurement; all that `source` has by default.
            less_ns: So much is taken off each latency, ns.
            seed: Decides what is drawn.

        Returns:
            The bins of each operation that was set; the others keep what they had.

        Raises:
            InputError: Nothing was measured of an operation.
            FormatError: A file that is not fio's JSON.
        """
        chosen = measured_ops(source) if ops is None else [ops] if isinstance(ops, str) else list(ops)
        if not chosen:
            raise InputError("a measurement without latencies", expected="those of a read, write, discard or flush")
        uploads = {op: latency_bins(source, op, less_ns=less_ns) for op in chosen}
        for op, bins in uploads.items():
            self.set_timing("empirical", ops=op, bins=bins, seed=seed)
        return {op: len(bins) for op, bins in uploads.items()}

    def set_limits(
        self,
        *,
        bytes_per_second: int = 0,
        iops: int = 0,
        stall_period_ns: int = 0,
        stall_ns: int = 0,
        stall_offset_ns: int = 0,
    ) -> None:
        """Limits throughput, and lets the device stall; what is not given is not limited.

        Args:
            bytes_per_second: Of reads and writes together.
            iops: Of all operations together.
            stall_period_ns: Every this many nanoseconds…
            stall_ns: …the device answers nothing for so long…
            stall_offset_ns: …from here in the period.
        """
        self._control.set_limits(
            self.index,
            bytes_per_second=bytes_per_second,
            iops=iops,
            stall_period_ns=stall_period_ns,
            stall_ns=stall_ns,
            stall_offset_ns=stall_offset_ns,
        )

    def limits(self) -> dict[str, int]:
        """The limits in force, by the names of :meth:`set_limits`; 0 is none."""
        return dict(self._control.limits(self.index))

    def set_faults(self, faults: Sequence[Fault], *, seed: int = 0) -> None:
        """Replaces the fault table; an empty one takes all faults away, and fails what hangs.

        Raises:
            InputError: A word, a chance, an operation or an argument that a fault's action does not have.
            OSError: EINVAL for a `sector`, or bad sectors, that the device does not have; EOPNOTSUPP for
                ``"corrupt_tag"`` on a device without protection information.
        """
        self._control.set_faults(self.index, _raw(faults), checked.count("seed", seed, 0, names.U64_MOST), False)

    def add_faults(self, faults: Sequence[Fault], *, seed: int = 0) -> None:
        """Adds rules after those that are there, which keep their counts, repaired sectors and what they let wait.

        Args:
            faults: The rules.
            seed: Of these rules' chances; those that are there keep theirs.

        Raises:
            InputError: As :meth:`set_faults`.
            OSError: As :meth:`set_faults`; EINVAL also for more than 256 rules in all.
        """
        self._control.set_faults(self.index, _raw(faults), checked.count("seed", seed, 0, names.U64_MOST), True)

    def faults(self) -> list[Fault]:
        """The fault table with its counts."""
        return [Fault.from_raw(raw) for raw in self._control.faults(self.index)]
