# SPDX-License-Identifier: MIT
"""As much of the QEMU machine protocol as saving and cloning a machine takes (QEMU: docs/interop/qmp-spec.rst)."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from sampleblk_lab.vm.errors import BootError, GuestLostError

if TYPE_CHECKING:
    import socket

# It answers at once, unless QEMU itself hangs.
ANSWER_S = 2.0


class Qmp:
    """A QMP connection, past its greeting.

    Args:
        sock: The monitor's socket.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = b""
        self._greeted = False

    def _line(self, end: float) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            self._sock.settimeout(max(0.01, end - time.monotonic()))
            try:
                data = self._sock.recv(65536)
            except TimeoutError:
                raise BootError("QEMU's monitor did not answer in time") from None
            except ConnectionError:
                data = b""
            if not data:
                raise GuestLostError("QEMU closed its monitor")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        decoded: dict[str, Any] = json.loads(line)
        return decoded

    def execute(self, command: str, end: float, **arguments: Any) -> Any:
        """Runs a command and returns what it returned. `end` is a time.monotonic() deadline. Raises BootError."""
        if not self._greeted:
            self._line(end)
            self._greeted = True
            self.execute("qmp_capabilities", end)
        self._sock.settimeout(max(0.01, end - time.monotonic()))
        try:
            self._sock.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        except ConnectionError:
            raise GuestLostError("QEMU closed its monitor") from None
        while True:
            answer = self._line(end)
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise BootError(f"QEMU: {command}: {answer['error'].get('desc', answer['error'])}")
