# SPDX-License-Identifier: MIT
"""The kernel provisioner (jupyter_client, "Provisioning"): a notebook kernel whose process runs in a VM."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import Unicode

_DEADLINE_S = 15.0


class VMProvisioner(LocalProvisioner):
    """Starts a kernelspec's command in a VM, and joins its sockets to the ports that the front ends were told.

    Interrupting it interrupts the cell; restarting it is a fresh VM; what the guest's kernel says is in the run
    directory's ``console-ID.log``, with the beginning of the notebook kernel's id, and what it said before a restart in
    ``console-ID.before.log``.
    """

    kernel = Unicode("", help="the guest's Linux: a release or its beginning (6.1), or a Debian suite").tag(config=True)
    memory = Unicode("", help="the VM's memory (1G)").tag(config=True)
    cpus = Unicode("", help="the VM's CPUs (2)").tag(config=True)
    run_dir = Unicode("runs", help="the folder that the guest may write to, below the notebook's; empty: none").tag(
        config=True
    )

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Wraps the kernelspec's command."""
        told: dict[str, Any] = await super().pre_launch(**kwargs)
        assert self.parent is not None
        told["cmd"] = self.wrapped(told["cmd"], str(self.parent.connection_file), told.get("cwd"))
        return told

    def wrapped(self, command: list[str], connection_file: str, cwd: str | None) -> list[str]:
        """The command that starts `command` in a VM."""
        options: list[str] = []
        for option, value in (("--kernel", self.kernel), ("--memory", self.memory), ("--cpus", self.cpus)):
            if value:
                options += [option, value]
        if self.run_dir:
            folder = Path(cwd or Path.cwd(), self.run_dir)
            options += ["--run-dir", str(folder), "--console", str(self._console(folder))]
        return [sys.executable, "-m", "sampleblk_lab.jupyter.host", connection_file, *options, "--", *command]

    def _console(self, folder: Path) -> Path:
        """A file of its own: other notebooks of the folder have VMs, too. That of before a restart is kept."""
        path = folder / f"console-{(self.kernel_id or '')[:8]}.log"
        with contextlib.suppress(FileNotFoundError):
            path.rename(path.with_suffix(".before.log"))
        return path

    def get_shutdown_wait_time(self, recommended: float = 5.0) -> float:
        """A kernel under emulation takes longer to end than most."""
        return max(recommended, _DEADLINE_S)
