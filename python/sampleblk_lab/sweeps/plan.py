# SPDX-License-Identifier: MIT
"""Which combinations of the axes' values there are, and in which order they are run.

An axis is a list of values, or a function of other axes that returns such a list. Conditions (`where`, `exclude` and
the dependent axes) are tested as soon as the axes that they name have values, so that a product of many axes is never
enumerated only to be thrown away.
"""

from __future__ import annotations

import inspect
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sampleblk_lab.errors import InputError
from sampleblk_lab.functions import check_ran
from sampleblk_lab.sweeps.identity import is_own
from sampleblk_lab.texts import INT_BITS

#: What one axis may be given as.
Axis = Any
Combination = dict[str, Any]

# More combinations than this are a mistake, such as a list of bytes in place of a list of names.
MOST = 10_000_000

_VALUES = "strings, numbers, bools, None, or lists and dicts of these"


@dataclass(frozen=True)
class Condition:
    """What a combination must fulfil.

    Attributes:
        names: The axes that it looks at.
        holds: Called with their values, in this order.
    """

    names: tuple[str, ...]
    holds: Callable[..., bool]


def canonical(value: Any) -> str:
    """A value as text, the same for equal values: JSON with sorted keys.

    Raises:
        TypeError: It has none.
    """
    try:
        return json.dumps(_plain(value), sort_keys=True, allow_nan=False)
    except RecursionError:
        raise TypeError(f"a {type(value).__name__} that is too deep, or within itself") from None


def plain(value: Any) -> Any:
    """A value as whoever reads its text gets it: no tuple, nor a number of numpy's. Raises TypeError, see above."""
    return json.loads(canonical(value))


def _plain(value: Any) -> Any:
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # numpy's scalars
        value = value.item()
    if isinstance(value, int) and value.bit_length() > INT_BITS:
        raise TypeError(f"an int of {value.bit_length()} bits; {INT_BITS} at most")
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError(f"{value!r} is not a number")
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: _plain(one) for name, one in value.items()}
    raise TypeError(f"{value!r} is not one of {_VALUES}")


def has_text(value: Any) -> bool:
    """Whether :func:`canonical` takes it."""
    try:
        canonical(value)
    except TypeError:
        return False
    return True


def _shown(value: Any) -> str:
    """A value for an error, which may be one that has no text."""
    try:
        return repr(value)
    except ValueError:  # Python writes no int of so many digits
        return f"an int of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"


def _text_of(value: Any, what: str) -> str:
    """A value's text. Raises InputError where it has none, or is one that only this process knows."""
    try:
        text = canonical(value)
    except TypeError:
        raise InputError(f"{what} has the value {_shown(value)}", expected=_VALUES) from None
    if (kind := _own_kind(value)) is not None:
        # No other process need have the class; and the key has the value only: a class that was changed would be
        # answered with what the old one gave.
        said = f"{what} has the value {_shown(value)}, of a class of your own"
        raise InputError(said, expected=f"{_VALUES}; the function may make a {kind.__qualname__} of it")
    return text


def _own_kind(value: Any) -> type | None:
    """The class of the user's own that a value is of, or has a value of."""
    if is_own(type(value).__module__):
        return type(value)
    parts: Iterable[Any] = ()
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, (list, tuple)):
        parts = value
    return next(filter(None, map(_own_kind, parts)), None)


def _listed(name: str, given: Any) -> list[Any]:
    """The values of an axis, each once."""
    values = list(given) if isinstance(given, (list, tuple, range, set, frozenset)) else [given]
    if isinstance(given, (set, frozenset)):
        values.sort(key=repr)
    elif type(given).__module__ == "numpy" and getattr(given, "ndim", 0) == 1:
        values = given.tolist()
    if not values:
        raise InputError(f"axis {name!r} has no values", expected="at least one")
    seen: set[str] = set()
    for value in values:
        text = _text_of(value, f"axis {name!r}")
        if text in seen:
            raise InputError(f"axis {name!r} has the value {value!r} twice", expected="each value once")
        seen.add(text)
    return values


def parameters(function: Callable[..., Any], what: str) -> list[str]:
    """The names of the axes that a function of axes asks for."""
    found = []
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise InputError(f"{what} is {_shown(function)}", expected="a Python function of axes") from None
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise InputError(f"{what} takes {parameter}", expected="parameters that are named as axes are")
        found.append(parameter.name)
    return found


class Space:
    """The combinations of the axes' values that fulfil all conditions.

    Args:
        axes: Name to values: a list, one value, or a function whose parameters are other axes and which returns a list.
        where: A function whose parameters are axes: combinations for which it returns something false are left out.
        exclude: Combinations to leave out: mappings of axes to a value, or to a list of values. One is left out when it
            has all that a mapping names.

    Raises:
        InputError: An axis has no values, one that is not plain data, or the same twice; a condition names an axis that
            does not exist; dependent axes form a circle.
    """

    def __init__(
        self,
        axes: Mapping[str, Axis],
        where: Callable[..., object] | None = None,
        exclude: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        if not axes:
            raise InputError("a sweep without axes", expected="at least one, such as bs=['4k', '128k']")
        self.names = list(axes)
        fixed = {name: _listed(name, given) for name, given in axes.items() if not callable(given)}
        dependent = {name: given for name, given in axes.items() if callable(given)}
        self.conditions: list[Condition] = []
        self.domains = self._resolved(fixed, dependent)
        if where is not None:
            self.conditions.append(self._condition(where, "where"))
        if isinstance(exclude, (str, bytes, Mapping)) or not isinstance(exclude, Iterable):
            raise InputError(f"exclude is {exclude!r}", expected="a list of mappings, such as [{'fs': 'xfs'}]")
        for number, one in enumerate(exclude):
            self.conditions.append(self._exclusion(number, one))
        # Conditions are tested in this order of the axes: the one that a condition waits for comes as early as it can.
        weight = {name: sum(name in condition.names for condition in self.conditions) for name in self.names}
        self._order = sorted(self.names, key=lambda name: -weight[name])

    def _known(self, name: str, what: str) -> str:
        if name not in self.names:
            raise InputError(f"{what} names {name!r}, which is not an axis", expected=", ".join(map(repr, self.names)))
        return name

    def _condition(self, function: Callable[..., object], what: str) -> Condition:
        names = tuple(self._known(name, what) for name in parameters(function, what))
        if not names:
            raise InputError(f"{what} has no parameters", expected=", ".join(map(repr, self.names)))

        def holds(*values: Any) -> bool:
            said = function(**dict(zip(names, values, strict=True)))
            check_ran(said, what)
            return bool(said)

        return Condition(names, holds)

    def _exclusion(self, number: int, one: Mapping[str, Any]) -> Condition:
        what = f"exclude[{number}]"
        if not isinstance(one, Mapping) or not one:
            raise InputError(f"{what} is {one!r}", expected="a mapping of axes to values, such as {'fs': 'xfs'}")
        wanted: dict[str, set[str]] = {}
        for name, given in one.items():
            known = {canonical(value) for value in self.domains[self._known(name, what)]}
            some = isinstance(given, (list, tuple)) and not (has_text(given) and canonical(given) in known)
            listed = given if some else [given]
            for value in listed:
                if not has_text(value) or canonical(value) not in known:
                    raise InputError(
                        f"{what}: {name}={_shown(value)} is not a value of that axis",
                        expected=", ".join(map(repr, self.domains[name])),
                    )
            wanted[name] = {canonical(value) for value in listed}
        sets = list(wanted.values())
        return Condition(
            tuple(wanted),
            lambda *values: not all(canonical(value) in some for value, some in zip(values, sets, strict=True)),
        )

    def _resolved(self, fixed: dict[str, list[Any]], dependent: dict[str, Callable[..., Any]]) -> dict[str, list[Any]]:
        """All values that each axis may have; what a dependent one has at which time becomes a condition."""
        domains = dict(fixed)
        scopes: dict[str, list[str]] = {}
        for name, function in dependent.items():
            scopes[name] = [self._known(other, f"axis {name!r}") for other in parameters(function, f"axis {name!r}")]
            if not scopes[name]:
                raise InputError(f"axis {name!r} is a function without parameters", expected="a list of values")
        while len(domains) < len(self.names):
            ready = [name for name in scopes if name not in domains and all(other in domains for other in scopes[name])]
            if not ready:
                circle = ", ".join(repr(name) for name in scopes if name not in domains)
                raise InputError(f"the axes {circle} depend on each other", expected="axes that depend on earlier ones")
            for name in ready:
                domains[name] = self._depend(name, dependent[name], scopes[name], domains)
        return {name: domains[name] for name in self.names}

    def _depend(
        self, name: str, function: Callable[..., Any], scope: list[str], domains: dict[str, list[Any]]
    ) -> list[Any]:
        allowed: dict[tuple[str, ...], set[str]] = {}
        values: dict[str, Any] = {}
        for one in self._product(scope, domains):
            given = function(**one)
            listed = [] if isinstance(given, (list, tuple)) and not given else _listed(name, given)
            allowed[tuple(canonical(one[other]) for other in scope)] = set(map(canonical, listed))
            values.update((canonical(value), value) for value in listed)
        self.conditions.append(
            Condition(
                (*scope, name),
                lambda *all_values: canonical(all_values[-1])
                in allowed.get(tuple(map(canonical, all_values[:-1])), ()),
            )
        )
        if not values:
            raise InputError(f"axis {name!r} has no values", expected="at least one for some combination")
        return list(values.values())

    def _product(self, names: Sequence[str], domains: Mapping[str, list[Any]]) -> Iterator[Combination]:
        """The combinations of some axes, as far as the conditions so far allow them."""
        settled = [condition for condition in self.conditions if set(condition.names) <= set(names)]
        yield from search(list(names), lambda name, _: domains[name], settled, {})

    def allows(self, one: Combination) -> bool:
        """Whether values of all axes are one of the combinations."""
        return all(condition.holds(*(one[name] for name in condition.names)) for condition in self.conditions)

    def walk(self, values: Callable[[str, Combination], Sequence[Any]]) -> Iterator[Combination]:
        """Every combination, one by one, in an order that `values` decides: those of an axis, given some others."""
        for one in search(self._order, values, self.conditions, {}):
            yield {name: one[name] for name in self.names}

    def __iter__(self) -> Iterator[Combination]:
        """Every combination, in the order of the axes and of their values."""
        found = search(self._order, lambda name, _: self.domains[name], self.conditions, {})
        if self._order != self.names:
            ranks = {
                name: {canonical(value): rank for rank, value in enumerate(domain)}
                for name, domain in self.domains.items()
            }
            listed = list(_bounded(found))
            listed.sort(key=lambda one: [ranks[name][canonical(one[name])] for name in self.names])
            yield from ({name: one[name] for name in self.names} for one in listed)
        else:
            yield from _bounded(found)


def _bounded(found: Iterable[Combination]) -> Iterator[Combination]:
    for count, one in enumerate(found, start=1):
        if count > MOST:
            raise InputError(f"more than {MOST:,} combinations", expected="fewer values, or pairwise=True")
        yield one


def search(
    names: Sequence[str],
    values: Callable[[str, dict[str, Any]], Sequence[Any]],
    conditions: Sequence[Condition],
    begin: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    """What `begin` can be completed to, depth first: each condition is tested when the last of its axes has a value.

    Args:
        names: The other axes, in the order in which they get values.
        values: What to try for an axis, given those that have one already.
        conditions: Those that only look at axes of `names` and `begin` are heeded.
        begin: The values that are given.
    """
    known = set(begin)
    one = dict(begin)
    if not all(
        condition.holds(*(one[name] for name in condition.names))
        for condition in conditions
        if set(condition.names) <= known
    ):
        return
    due: list[list[Condition]] = []
    for name in names:
        known.add(name)
        due.append([condition for condition in conditions if name in condition.names and set(condition.names) <= known])

    def descend(depth: int) -> Iterator[dict[str, Any]]:
        if depth == len(names):
            yield dict(one)
            return
        name = names[depth]
        for value in values(name, one):
            one[name] = value
            if all(condition.holds(*(one[other] for other in condition.names)) for condition in due[depth]):
                yield from descend(depth + 1)
            del one[name]

    yield from descend(0)


def interleaved(combinations: Sequence[Combination], repeat: int, seed: int) -> list[tuple[Combination, int]]:
    """Every combination `repeat` times: in rounds, each round in an order of its own.

    What changes on the hosts during a sweep then meets all combinations alike.
    """
    ordered = []
    for number in range(repeat):
        turn = list(range(len(combinations)))
        random.Random(f"{seed} order {number}").shuffle(turn)
        ordered += [(combinations[index], number) for index in turn]
    return ordered
