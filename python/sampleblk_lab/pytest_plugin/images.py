# SPDX-License-Identifier: MIT
"""Guests that have collected their tests and are saved, for the tests that each have a fresh machine.

To load plugins and to collect is most of what such a test takes, and the same each time. It is done once, in a guest
that is made beside the first of these tests; the others run in clones of it. A guest that cannot be saved, as one in
which a conftest keeps a file open, costs nothing but that: each test's guest collects then by itself.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from sampleblk_lab.memory import QEMU_MIB, available_mib
from sampleblk_lab.pytest_plugin import coverage, options, selection, waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from sampleblk_lab.pytest_plugin.guests import Guest, SavedGuest

# An image takes as long as two or three tests would with guests of their own.
_WORTH_IT = 5


class Images:
    """The images of a session, one for each kernel.

    Args:
        config: The session's configuration.
        guest_for: How many tests there are for an image of a test's kernel, and how the guest for it is started.
    """

    def __init__(
        self, config: pytest.Config, guest_for: Callable[[pytest.Item], tuple[int, Callable[[], Guest]]]
    ) -> None:
        self._config = config
        self._guest_for = guest_for
        self._making: dict[str | None, Guest] = {}
        self._holding: dict[str | None, Guest] = {}
        self._made: dict[str | None, SavedGuest | None] = {}

    def of(self, item: pytest.Item) -> SavedGuest | None:
        """The image for a test's guest, once it is made; None: there is none, or it is begun only now."""
        kernel = selection.kernel_of(item)
        if kernel in self._making:
            self._finish(kernel)
        elif kernel not in self._made and self._is_possible():
            count, start = self._guest_for(item)
            self._made[kernel] = None
            if count >= _WORTH_IT:
                with contextlib.suppress(OSError):
                    self._making[kernel] = start()
        return self._made.get(kernel)

    def settle(self) -> None:
        """Waits until those that are being made have been."""
        for kernel in list(self._making):
            self._finish(kernel)

    def forget(self, kernel: str | None) -> bool:
        """Has none from now on; whether there was one."""
        guest = self._holding.pop(kernel, None)
        if guest is not None:
            guest.kill()
            self._made[kernel] = None
        return guest is not None

    def kill(self) -> None:
        """Ends all of them, and with them what they have saved. Idempotent."""
        for guest in (*self._making.values(), *self._holding.values()):
            guest.kill()
        self._making.clear()
        self._holding.clear()
        self._made.clear()

    def _finish(self, kernel: str | None) -> None:
        from sampleblk_lab.pytest_plugin.guests import GuestLostError

        guest = self._making[kernel]
        try:
            guest.wait_until_ready()
            self._made[kernel] = guest.make_image()
            self._holding[kernel] = guest
        except BaseException as error:
            guest.kill()
            if not isinstance(error, GuestLostError):
                raise
        finally:
            del self._making[kernel]

    def _is_possible(self) -> bool:
        """Whether a session of this kind can be gone on with in clones, and there is memory for it."""
        if options.of(self._config).scheduler is not None:
            return False
        if coverage.is_measured(self._config):
            return False
        # Its own memory, those of the guests beside it, and one to spare.
        return available_mib() >= 4 * (waiting.memory_mib(self._config) + QEMU_MIB)
