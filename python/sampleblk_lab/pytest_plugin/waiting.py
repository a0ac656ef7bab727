# SPDX-License-Identifier: MIT
"""Guests that wait for tests to come: each is started while those before it run.

There are as many as processors could start beside each other, and only as memory is left for them to run in. A guest
belongs to the tests that will share it, since it collects them while it waits. It is a child of this process, as the
one that runs a test is, and ends with it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from sampleblk_lab.errors import InputError
from sampleblk_lab.memory import QEMU_MIB, available_mib
from sampleblk_lab.pytest_plugin import options, selection
from sampleblk_lab.vm import options as vm_options

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    import pytest

    from sampleblk_lab.pytest_plugin.guests import Guest

# More make no test come sooner.
AT_MOST = 4

# Fixtures of tests whose results other work on the machine changes.
_MEASURES = frozenset({"measure"})


class Waiting:
    """The guests that were started for tests to come.

    Args:
        config: The session's configuration.
        unit_of: What tests that share a guest have in common; None: it is the session's.
        start: Starts the guest of a test.
    """

    def __init__(
        self,
        config: pytest.Config,
        unit_of: Callable[[pytest.Item], Hashable | None],
        start: Callable[[pytest.Item], Guest],
    ) -> None:
        self._config = config
        self._unit_of = unit_of
        self._start = start
        self._guests: dict[Hashable, Guest] = {}
        self._memory_mib: int | None = None  # of each, once it is known

    def take(self, unit: Hashable) -> Guest | None:
        """The guest for these tests, whose end is the caller's from now on; None: there is none."""
        guest = self._guests.pop(unit, None)
        if guest is not None and guest.has_ended():
            guest.kill()  # nobody looked after it
            return None
        return guest

    def fill(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Starts guests for the tests that come after one, and ends those for tests that do not."""
        number = self._number()
        wanted: dict[Hashable, pytest.Item] = {}
        if number > 0:
            for one in self._after(item, nextitem, number):
                if (unit := self._unit_of(one)) is not None:
                    wanted.setdefault(unit, one)
            wanted.pop(self._unit_of(item), None)
        for unit in [unit for unit in self._guests if unit not in wanted]:
            self._guests.pop(unit).kill()
        for unit, one in wanted.items():
            if unit not in self._guests:
                if not self._has_room():
                    break
                self._guests[unit] = self._start(one)

    def settle(self) -> None:
        """Waits until those that are being started have been, so that they use no processor while a test runs."""
        from sampleblk_lab.pytest_plugin.guests import GuestLostError

        for unit, guest in list(self._guests.items()):
            try:
                guest.wait_until_ready()
            except GuestLostError:
                del self._guests[unit]

    def kill(self) -> None:
        """Ends all of them. Idempotent."""
        while self._guests:
            self._guests.popitem()[1].kill()

    def _number(self) -> int:
        settings = options.of(self._config)
        if settings.scheduler is not None:
            return 0  # the hosts' processors are not ours to count
        if settings.pool is not None:
            return settings.pool
        processors = len(os.sched_getaffinity(0))
        if hasattr(self._config, "workerinput"):
            # xdist's workers are as many guests as run at a time.
            return min(AT_MOST, processors // workers(self._config) - 1)
        return min(AT_MOST, processors)

    @staticmethod
    def _after(item: pytest.Item, nextitem: pytest.Item | None, number: int) -> Iterator[pytest.Item]:
        """The tests to come that need a guest, among so many; xdist tells its workers of one."""
        if nextitem is None:
            return
        coming = [nextitem]
        if not hasattr(item.config, "workerinput"):
            at = item.session.items.index(nextitem)
            coming = item.session.items[at : at + number]
        yield from (one for one in coming if selection.needs_guest(one))

    def _has_room(self) -> bool:
        """Whether one more leaves memory for the one that runs a test."""
        if self._memory_mib is None:
            self._memory_mib = memory_mib(self._config)
        return available_mib() >= 2 * (self._memory_mib + QEMU_MIB)


def workers(config: pytest.Config) -> int:
    """How many processes run the session's tests: xdist's workers, or this one."""
    return int(getattr(config, "workerinput", {"workercount": 1})["workercount"])


def memory_mib(config: pytest.Config) -> int:
    """What a guest has, in MiB; where that cannot be, too much for a second one: the first to start says why."""
    memory = options.of(config).memory
    try:
        return vm_options.size_of(vm_options.parsed(["--memory", memory] if memory else ()))[1]
    except InputError:
        return sys.maxsize


def is_disturbed(item: pytest.Item) -> bool:
    """Whether a test measures what other work on the machine changes."""
    return not _MEASURES.isdisjoint(getattr(item, "fixturenames", ()))
