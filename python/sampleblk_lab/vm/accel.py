# SPDX-License-Identifier: MIT
"""KVM is tried, not trusted: a /dev/kvm that opens and answers can still hang every guest."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sampleblk_lab import checked
from sampleblk_lab.paths import CacheError, cache_root, locked, write_atomically
from sampleblk_lab.progress import step

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sampleblk_lab.vm.qemu import Qemu

DEVICE = "/dev/kvm"

# A probe that had too little of a busy machine to tell anything is made again after this long, twice as long each time.
_AGAIN_S = 600.0
_AGAIN_AT_MOST_S = 24 * 3600.0


@dataclass(frozen=True)
class Verdict:
    """What a probe guest showed.

    Attributes:
        accel: ``"kvm"`` or ``"tcg"``.
        why: What was seen.
        final: False where the probe could not tell, so that another one may.
        when: Seconds since the epoch.
        tries: How many probes in a row could not tell.
    """

    accel: str
    why: str
    final: bool = True
    when: float = 0.0
    tries: int = 0

    @property
    def again_at(self) -> float:
        """When to probe again, in seconds since the epoch."""
        if self.final:
            return float("inf")
        return self.when + min(_AGAIN_S * 2.0 ** max(self.tries - 1, 0), _AGAIN_AT_MOST_S)


def usable() -> bool:
    """Whether this user may open /dev/kvm, which says nothing yet of guests."""
    return os.access(DEVICE, os.R_OK | os.W_OK)


def _path(qemu: Qemu) -> Path:
    # KVM is the host kernel's and QEMU's; either one's update may fix it or break it.
    host = os.uname()
    key = hashlib.sha256(f"{qemu.identity} {host.release} {host.version}".encode()).hexdigest()[:16]
    return cache_root() / "kvm" / f"{key}.json"


def known(qemu: Qemu) -> Verdict | None:
    """The verdict in the cache for this QEMU and host kernel; None when there is none, or none that can be read."""
    try:
        found = Verdict(**json.loads(_path(qemu).read_text()))
        return found if found.accel in ("kvm", "tcg") and found.again_at > 0 else None
    except (OSError, ValueError, TypeError, OverflowError):
        return None


def forget(qemu: Qemu) -> None:
    """Lets the next VM try KVM again."""
    _path(qemu).unlink(missing_ok=True)


def choose(qemu: Qemu, probe: Callable[[], Verdict]) -> str:
    """``"kvm"`` where a guest has been seen to boot with it, else ``"tcg"``; ``$SAMPLEBLK_ACCEL`` overrides it.

    The verdict is kept for each QEMU and host kernel. One that a busy machine kept from being found is asked for again.

    Args:
        qemu: The QEMU that is to run the guest.
        probe: Boots a guest under KVM.

    Raises:
        InputError: The variable has another value.
    """
    override = os.environ.get("SAMPLEBLK_ACCEL")
    if override:
        checked.one_of("SAMPLEBLK_ACCEL", override, ("kvm", "tcg"))
        return override
    if not usable():
        return "tcg"
    verdict = known(qemu)
    if verdict is not None and time.time() < verdict.again_at:
        return verdict.accel
    try:
        with locked(_path(qemu)):
            verdict = known(qemu)
            if verdict is None or time.time() >= verdict.again_at:
                verdict = _ask(qemu, probe, 0 if verdict is None else verdict.tries)
    except CacheError:
        verdict = _ask(qemu, probe, 0)
    return verdict.accel


def _ask(qemu: Qemu, probe: Callable[[], Verdict], tries: int) -> Verdict:
    with step("trying KVM"):
        found = probe()
    verdict = Verdict(found.accel, found.why, found.final, time.time(), 0 if found.final else tries + 1)
    with contextlib.suppress(CacheError):
        write_atomically(_path(qemu), json.dumps(asdict(verdict)).encode())
    return verdict
