# SPDX-License-Identifier: MIT
"""A sweep's folder: what it was to do, what came of each trial, and the table of it.

``plan.jsonl`` has the trials. ``journal.jsonl`` has a line for each outcome, written when the trial ends and never
changed: it is what counts. ``results.parquet`` is the table of what the journal had when it was last written, replaced
as a whole, so that other programs may read it at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sampleblk_lab.errors import FormatError, InputError, UnsupportedError
from sampleblk_lab.paths import append_whole, locked, naming, replace_file
from sampleblk_lab.sweeps.plan import canonical, has_text, plain
from sampleblk_lab.sweeps.trial import Trial
from sampleblk_lab.table import Table
from sampleblk_lab.texts import utf8

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Self

PLAN, JOURNAL, RESULTS = "plan.jsonl", "journal.jsonl", "results.parquet"

# Held by the process that adds outcomes.
_LOCK = "sweep"

_FORMAT = 1

#: Columns that every table has beside the axes and what the function returned.
FACTS = (
    *(
        "seconds",
        "started_ns",
        "ended_ns",
        "exclusive",
        "host",
        "host_cpu",
        "host_cpus",
        "host_memory_mib",
        "release",
        "accelerator",
        "vm_cpus",
    ),
    *("vm_memory_mib", "load", "steal", "attempts", "retried", "artefacts", "repeat", "seed", "key"),
)
_UNITS = {"seconds": "s", "host_memory_mib": "MiB", "vm_memory_mib": "MiB", "started_ns": "ns", "ended_ns": "ns"}

# Of the time that a sweep runs, at most this share goes into writing its table anew.
_SHARE = 0.05
_EVERY_S = 1.0

# A loss of power costs at most the outcomes of so many seconds, which are then run again.
_SYNC_S = 0.5


def arrow() -> Any:
    """pyarrow, with its ``parquet``. Raises UnsupportedError where it is not installed."""
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError:
        raise UnsupportedError("sweeps", "pyarrow is not installed", "pip install 'sampleblk-lab[sweep]'") from None


class Plan:
    """What is to be done: the content of ``plan.jsonl``, a line about the sweep and one with its trials.

    Args:
        about: What the sweep was called with, for people.
        axes: The axes' names, in order.
        trials: In the order they are to be run.
        growing: Whether there will be more, by what comes of these.
    """

    def __init__(
        self, about: dict[str, Any], axes: Sequence[str], trials: Sequence[Trial], *, growing: bool = False
    ) -> None:
        self.about = about
        self.axes = list(axes)
        self.growing = growing
        self._trials: list[Trial] | None = []
        self.extend(trials)
        self._source = Path()
        self._line = b""

    def __len__(self) -> int:
        return self._count

    def extend(self, trials: Sequence[Trial]) -> None:
        """Adds trials at the end."""
        self._trials = [*self.trials, *trials]
        self.identity = _identity(self._trials)
        self._count = len(self._trials)

    @property
    def trials(self) -> list[Trial]:
        """In the order they are to be run. Read when first asked for: a table does not need them.

        Raises:
            FormatError: They are not what a sweep writes.
        """
        if self._trials is None:
            try:
                self._trials = [
                    Trial(key, dict(zip(self.axes, values, strict=True)), repeat, seed, release)
                    for key, values, repeat, seed, release in json.loads(self._line)
                ]
                for trial in self._trials:
                    if [type(trial.repeat), type(trial.seed), type(trial.release)] != [int, int, str]:
                        raise TypeError
                    canonical(trial.parameters)
                if (len(self._trials), _identity(self._trials)) != (self._count, self.identity):
                    raise ValueError
            except (ValueError, TypeError, RecursionError):
                self._trials = None
                raise FormatError(str(self._source), 0, "the trials of a sweep in its second line") from None
        return self._trials

    def save(self, folder: Path) -> None:
        """Writes it."""
        rows = [
            [trial.key, [plain(trial.parameters[name]) for name in self.axes], trial.repeat, trial.seed, trial.release]
            for trial in self.trials
        ]
        own = {"axes": self.axes, "identity": self.identity, "count": len(rows), "growing": self.growing}
        about = {"format": _FORMAT, **self.about, **own}
        plan = f"{json.dumps(about, default=str)}\n{json.dumps(rows)}\n".encode()
        replace_file(folder / PLAN, plan, durable=True)

    @classmethod
    def load(cls, folder: Path) -> Plan:
        """Reads it.

        Raises:
            InputError: There is no sweep.
            FormatError: It is not what a sweep writes.
        """
        path = folder / PLAN
        try:
            first, _, second = path.read_bytes().partition(b"\n")
            value = json.loads(first)
        except FileNotFoundError:
            raise InputError(f"there is no sweep in {folder}", expected=f"a folder with {PLAN}") from None
        except ValueError as error:
            raise FormatError(str(path), getattr(error, "pos", 0), "JSON") from None
        if not isinstance(value, dict) or value.pop("format", None) != _FORMAT:
            raise FormatError(str(path), 0, f"a sweep of format {_FORMAT}")
        axes, identity, count = value.pop("axes", None), value.pop("identity", None), value.pop("count", None)
        growing = value.pop("growing", False)
        if not (
            _are_texts(axes) and isinstance(identity, str) and isinstance(count, int) and isinstance(growing, bool)
        ) or not (len(set(axes)) == len(axes) and all(map(str.isidentifier, axes))):
            raise FormatError(str(path), 0, "axes, identity and count of a sweep")
        if not _are_said(value):
            raise FormatError(str(path), 0, "what a sweep was called with in its first line")
        made = cls(value, axes, [], growing=growing)
        made.identity, made._count = identity, count
        made._trials, made._source, made._line = None, path, second
        return made


def _identity(trials: Iterable[Trial]) -> str:
    return hashlib.sha256("".join(trial.key for trial in trials).encode()).hexdigest()[:24]


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _are_said(about: Mapping[str, Any]) -> bool:
    """Whether of a plan's first line, which is for people, those parts are right that are made use of."""
    values, repeat = about.get("values", {}), about.get("repeat", 1)
    if not isinstance(values, dict) or not has_text(values):
        return False
    if not all(isinstance(some, list) and len(set(map(canonical, some))) == len(some) for some in values.values()):
        return False
    return isinstance(repeat, int) and isinstance(about.get("choose") or {}, dict)


def _are_plain(value: Any) -> bool:
    return isinstance(value, dict) and all(one is None or isinstance(one, (str, int, float)) for one in value.values())


# What a trial that is done tells of the place where it ran, and what it may.
_PLACE = {"host": str, "host_cpu": str, "host_cpus": int, "host_memory_mib": int, "release": str, "accelerator": str}
_MAY = {"started_ns": int, "ended_ns": int, "vm_cpus": int, "vm_memory_mib": int, "artefacts": str, "exclusive": bool}
_MAY |= {"load": float, "steal": float}


def _are_facts(value: Mapping[str, Any]) -> bool:
    return all(type(value[name]) is kind for name, kind in _PLACE.items()) and all(
        type(value[name]) is kind for name, kind in _MAY.items() if name in value
    )


def _is_outcome(value: Any) -> bool:
    """Whether it has all that is made use of. Raises TypeError or KeyError where it is far from it."""
    if not isinstance(value["key"], str) or not _are_plain(value["facts"]):
        return False
    if value["type"] == "failed":
        return all(isinstance(value[name], str) for name in ("kind", "message", "detail"))
    if "trial" in value:
        about = value["trial"]
        if not isinstance(about["revision"], str) or not isinstance(about["parameters"], dict):
            return False
        if not isinstance(about["repeat"], int) or not isinstance(about.get("made_of", ""), str):
            return False
        canonical(about["parameters"])
    return (
        value["type"] == "done"
        and _are_plain(value["values"])
        and all(type(value[name]) in (int, float) for name in ("seconds", "attempts"))
        and _are_texts(value["retried"])
        and _are_facts(value["facts"])
    )


def read_journal(folder: Path, begin: int = 0) -> tuple[list[dict[str, Any]], int]:
    """The outcomes from a place in the journal on, and where they end. What was only begun to be written is no outcome.

    Raises:
        FormatError: A line is not what a sweep writes.
    """
    path = folder / JOURNAL
    try:
        with path.open("rb") as file:
            file.seek(begin)
            data = file.read()
    except FileNotFoundError:
        return [], 0
    whole = data.rfind(b"\n") + 1
    found = []
    at = begin
    for line in data[:whole].split(b"\n")[:-1]:
        try:
            value = json.loads(line)
            if not _is_outcome(value):
                raise ValueError
        except (ValueError, TypeError, KeyError, RecursionError):
            raise FormatError(str(path), at, "an outcome of a trial") from None
        found.append(value)
        at += len(line) + 1
    return found, begin + whole


# --- the table


def chosen_metric(metric: str | None, known: Sequence[str]) -> str:
    """The column that is meant, of those of numbers that the function returned.

    Raises:
        InputError: It is none of them, or there are several and none is named.
    """
    if metric is None:
        if len(known) > 1:
            raise InputError("metric is not given, and there are several", expected=", ".join(map(repr, known)))
        return known[0]
    if metric not in known and metric != "seconds":
        raise InputError(f"{metric!r} is not a column of numbers that the function returned", expected=", ".join(known))
    return metric


def numbers(rows: Iterable[Mapping[str, Any]], metric: str) -> list[float]:
    """What the rows have of a metric, without what is missing or not finite."""
    return [row[metric] for row in rows if row[metric] is not None and math.isfinite(row[metric])]


def _row(trial: Trial, outcome: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **plain(trial.parameters),
        **outcome["values"],
        **outcome["facts"],
        "seconds": outcome["seconds"],
        "attempts": outcome["attempts"],
        "retried": "; ".join(outcome["retried"]),
        "repeat": trial.repeat,
        "seed": trial.seed,
        "key": trial.key,
    }


def uniform(values: list[Any]) -> list[Any]:
    """Values of one kind: bools, ints, floats or strings, and None; what has no kind of its own becomes text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool}:
        return values
    # Where one is missing the others become floats, and may become other ints. Beside a float they are measurements.
    exact = kinds == {int} and None in values
    whole = [value for value in values if type(value) is int]
    if kinds <= {int, float} and all(abs(one) < 2**63 and not (exact and int(float(one)) != one) for one in whole):
        return values
    return [None if value is None else _word(value) for value in values]


def distinct(values: list[Any]) -> list[Any]:
    """An axis's values as :func:`uniform` has them; as JSON where otherwise two were the same, such as 1 and "1"."""
    made = uniform(values)
    kinds = {type(value) for value in values if value is not None}
    # Beside a float or a missing value ints become floats, and one may be none that a float is equal to.
    floats = int in kinds and (float in kinds or None in made) and str not in map(type, made)
    if floats and any(type(value) is int and int(float(value)) != value for value in made):
        return [None if value is None else canonical(value) for value in values]
    if len(kinds) <= 1 and kinds <= {bool, int, float, str} and len(set(made)) == len(set(values)):
        return made
    told = {canonical(value) for value in values}
    if len(set(made)) == len(told):
        return made
    return [None if value is None else canonical(value) for value in values]


def _word(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return utf8(value if isinstance(value, str) else canonical(value))


def beside(axes: Sequence[str], names: Iterable[str]) -> dict[str, str]:
    """What a table's columns of these names are called beside those of the axes, which keep their own."""
    found = {}
    for name in names:
        found[name] = name
        while found[name] in axes:
            found[name] += "_"
    return found


def _columns(axes: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names: dict[str, None] = dict.fromkeys(axes)
    for row in rows:
        names.update(dict.fromkeys(row))
    own = [name for name in names if name not in FACTS]
    return {
        name: (distinct if name in axes else uniform)([row.get(name) for row in rows])
        for name in (*own, *FACTS)
        if name in names or not rows
    }


def _arrow_table(axes: Sequence[str], rows: Sequence[Mapping[str, Any]], metadata: dict[str, str]) -> Any:
    pa = arrow()
    columns = _columns(axes, rows)
    arrays, fields = [], []
    for name, values in columns.items():
        kinds = {type(value) for value in values if value is not None}
        if kinds == {bool}:
            kind = pa.bool_()
        elif kinds and kinds <= {int, float}:
            kind = pa.float64() if float in kinds else pa.int64()
            if float in kinds:  # Arrow itself refuses an int that no float is equal to
                values = [None if value is None else float(value) for value in values]
        else:
            kind = pa.string()
        unit = {"unit": _UNITS[name]} if name in _UNITS else None
        arrays.append(pa.array(values, kind))
        fields.append(pa.field(name, kind, metadata=unit))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=metadata))


def _table(arrow_table: Any, metadata: dict[str, str]) -> Table:
    """A table of ours. Where a number is missing there is NaN."""
    pa = arrow()
    columns: dict[str, Any] = {}
    units = {}
    for field, chunks in zip(arrow_table.schema, arrow_table.columns, strict=True):
        if pa.types.is_string(field.type):
            coded = chunks.combine_chunks().dictionary_encode() if len(chunks) else None
            # Each distinct string is made once.
            columns[field.name] = [] if coded is None else _decoded(coded)
        elif chunks.null_count:
            columns[field.name] = chunks.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)
        else:
            columns[field.name] = chunks.to_numpy()
        if field.name in _UNITS and columns[field.name] is not None and not pa.types.is_string(field.type):
            units[field.name] = _UNITS[field.name]
    return Table.of(columns, units=units, metadata=metadata)


def _decoded(coded: Any) -> list[str | None]:
    words = np.array([*coded.dictionary.to_pylist(), None], dtype=object)
    codes = coded.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)
    found: list[str | None] = words[codes].tolist()
    return found


def read_rows(folder: Path, plan: Plan) -> Table:
    """The table of what has been done of a plan so far."""
    kept = _kept(folder, plan)
    begin = 0 if kept is None else int(kept.schema.metadata[b"journal_bytes"])
    outcomes, _ = read_journal(folder, begin)
    by_key = {trial.key: trial for trial in plan.trials} if outcomes else {}
    done = [outcome for outcome in outcomes if outcome["type"] == "done" and outcome["key"] in by_key]
    if done or kept is None:
        # The axes from the plan: the file may have a number of theirs as text.
        rows = (
            {}
            if kept is None
            else {row["key"]: {**row, **plain(by_key[row["key"]].parameters)} for row in kept.to_pylist()}
        )
        for outcome in done:
            if outcome["key"] not in rows:  # the first one counts
                rows[outcome["key"]] = _row(by_key[outcome["key"]], outcome)
        kept = _arrow_table(plan.axes, list(rows.values()), {})
    return _table(kept, {"missing": str(len(plan) - kept.num_rows)})


def _kept(folder: Path, plan: Plan) -> Any:
    """The Parquet file, if it is whole and of this plan."""
    pa = arrow()
    try:
        found = pa.parquet.read_table(folder / RESULTS)
        size = (folder / JOURNAL).stat().st_size
    except (OSError, pa.ArrowInvalid):  # the journal has all of it
        return None
    metadata = found.schema.metadata or {}
    told = metadata.get(b"journal_bytes", b"")
    # Of a journal that has become shorter, or that somebody has taken away, it says nothing any more.
    if metadata.get(b"plan") != plan.identity.encode() or not told.isdigit() or int(told) > size:
        return None
    return found


class Writer:
    """The one process that adds outcomes. A context manager.

    Args:
        folder: The sweep's.
        plan: What is to be done; it replaces the folder's.

    Raises:
        InputError: Another process adds to this folder.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self.plan = plan
        self._stack = contextlib.ExitStack()
        self._trials = {trial.key: trial for trial in plan.trials}
        self._rows: dict[str, dict[str, Any]] = {}
        self._others: dict[str, dict[str, Any]] = {}  # what was done of trials that a growing plan does not have yet
        self._descriptor = -1
        self._written_bytes = 0
        self._synced_s = 0.0
        self._dirty = True
        self._shown_s = -1e9
        self._took_s = 0.0

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            self._lock(stack)
            self._descriptor = os.open(self.folder / JOURNAL, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            stack.callback(os.close, self._descriptor)
            outcomes, self._written_bytes = read_journal(self.folder)
            os.ftruncate(self._descriptor, self._written_bytes)
            for outcome in outcomes:
                if not self._keep(outcome) and self.plan.growing and outcome["type"] == "done":
                    self._others.setdefault(outcome["key"], outcome)
            self.plan.save(self.folder)
            self._stack = stack.pop_all()
        return self

    def _lock(self, stack: contextlib.ExitStack) -> None:
        # Somebody who asks whether a sweep runs holds it for a moment.
        end = time.monotonic() + 1.0
        while not stack.enter_context(locked(self.folder / _LOCK, wait=False)):
            if time.monotonic() > end:
                raise InputError(f"another sweep writes to {self.folder}", expected="a folder that none writes to")
            time.sleep(0.05)

    def __exit__(self, *exc_info: object) -> None:
        with self._stack:
            self.show(at_once=True)
            os.fdatasync(self._descriptor)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def values(self, trial: Trial) -> dict[str, Any] | None:
        """What a trial returned, and the seconds that it took; None unless it is done."""
        row = self._rows.get(trial.key)
        if row is None:
            return None
        own = {name: value for name, value in row.items() if name not in FACTS and name not in self.plan.axes}
        return {**own, "seconds": row["seconds"]}

    def grow(self, trials: Sequence[Trial]) -> None:
        """Trials that were added to the plan, or none any more: takes what was done of them, and writes the plan."""
        for trial in trials:
            self._trials[trial.key] = trial
            if trial.key in self._others:
                self._keep(self._others.pop(trial.key))
        self.plan.save(self.folder)

    def _keep(self, outcome: Mapping[str, Any]) -> bool:
        key = outcome["key"]
        if outcome["type"] != "done" or key not in self._trials or key in self._rows:
            return False
        self._rows[key] = _row(self._trials[key], outcome)
        self._dirty = True
        return True

    def add(self, outcome: dict[str, Any]) -> bool:
        """Adds an outcome for good; False when that trial is done already.

        Raises:
            OSError: It could not be written, and then nothing of it is.
        """
        if outcome["key"] in self._rows:
            return False
        line = json.dumps(outcome, allow_nan=True).encode() + b"\n"
        with naming(self.folder / JOURNAL):
            self._written_bytes = append_whole(self._descriptor, self._written_bytes, line)
        now = time.monotonic()
        if now - self._synced_s > _SYNC_S:
            os.fdatasync(self._descriptor)
            self._synced_s = time.monotonic()
        self._keep(json.loads(line))  # as whoever reads the journal has it
        return True

    def show(self, *, at_once: bool = False) -> None:
        """Writes the Parquet file, if it is time to."""
        begin = time.monotonic()
        if not self._dirty or (not at_once and begin - self._shown_s < max(_EVERY_S, self._took_s / _SHARE)):
            return
        pa = arrow()
        metadata = {"plan": self.plan.identity, "journal_bytes": str(self._written_bytes)}
        sink = pa.BufferOutputStream()
        pa.parquet.write_table(_arrow_table(self.plan.axes, list(self._rows.values()), metadata), sink)
        replace_file(self.folder / RESULTS, sink.getvalue().to_pybytes(), durable=True)
        self._dirty = False
        self._shown_s = time.monotonic()
        self._took_s = self._shown_s - begin


def is_running(folder: Path) -> bool:
    """Whether a process adds outcomes to this folder now."""
    if not (folder / f"{_LOCK}.lock").exists():
        return False
    with locked(folder / _LOCK, wait=False) as free:
        return not free


def failures(folder: Path, keys: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The failed attempts at trials that are not done, in the order they happened."""
    wanted = set(keys)
    outcomes, _ = read_journal(folder)
    done = {outcome["key"] for outcome in outcomes if outcome["type"] == "done"}
    for outcome in outcomes:
        if outcome["type"] == "failed" and outcome["key"] in wanted - done:
            yield outcome
