# SPDX-License-Identifier: MIT
"""``with`` blocks that have or start something, and close or stop it at their end.

A fork that leaves a block does neither: it is its parent's.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from types import TracebackType


class ClosesAtEnd(ABC):
    """Is there when the block begins, and closed at its end."""

    _begun_in = 0  # the process

    @abstractmethod
    def close(self) -> None:
        """Lets go of it."""

    def __enter__(self) -> Self:
        self._begun_in = os.getpid()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._begun_in == os.getpid():
            self.close()


class StopsAtEnd(ABC):
    """Starts with the block and stops with it; what it has by then is kept, also where the block raises."""

    # What is lost where stopping fails as well, for the exception's notes.
    _KEPT: ClassVar[str]
    _begun_in = 0  # the process

    @abstractmethod
    def start(self) -> Self:
        """Starts it."""

    @abstractmethod
    def stop(self) -> object:
        """Stops it, and keeps what it has."""

    def _note_process(self) -> None:
        """For :meth:`start`: whose it is."""
        self._begun_in = os.getpid()

    @property
    def _in_fork(self) -> bool:
        """Whether this process is a fork of the one that started it, which goes on with it."""
        return self._begun_in not in (0, os.getpid())

    def _refuse_in_fork(self) -> None:
        """For :meth:`stop`. Raises RuntimeError in a fork."""
        if self._in_fork:
            raise RuntimeError(f"{self._KEPT} belongs to process {self._begun_in}: a fork of it cannot stop it")

    def __enter__(self) -> Self:
        self._note_process()
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._in_fork:
            return
        if kind is None:
            self.stop()
            return
        # The block's own exception passes, whatever happens here.
        try:
            self.stop()
        except Exception as error:
            if value is not None:
                value.add_note(f"{self._KEPT} could not be kept: {error}")
