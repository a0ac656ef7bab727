# SPDX-License-Identifier: MIT
"""Installs the kernelspecs "Python (sampleblk VM, 6.1)"."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from sampleblk_lab.errors import UnsupportedError


def kernelspec(kernel: str) -> dict[str, Any]:
    """The kernel.json for notebooks on the Linux of that name."""
    return {
        "argv": [
            *(sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"),
            '--IPKernelApp.extra_extensions=["sampleblk_lab.jupyter"]',
        ],
        "display_name": f"Python (sampleblk VM, {kernel})",
        "language": "python",
        "interrupt_mode": "signal",
        "metadata": {"kernel_provisioner": {"provisioner_name": "sampleblk-vm", "config": {"kernel": kernel}}},
    }


def install(kernel: str, *, prefix: str | None = None) -> Path:
    """Installs the kernelspec for one Linux; returns its folder.

    Args:
        kernel: As ``--kernel`` takes it.
        prefix: Below this folder, such as ``sys.prefix``; None: for the user.

    Raises:
        UnsupportedError: jupyter_client is not installed.
    """
    try:
        from jupyter_client.kernelspec import KernelSpecManager
    except ImportError:
        raise UnsupportedError(
            "Jupyter kernels", "jupyter_client is not installed", "pip install 'sampleblk-lab[notebook]'"
        ) from None
    name = f"sampleblk-vm-{kernel}".replace("/", "-")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "kernel")
        folder.mkdir()  # its mode is installed too, and the scratch folder is for its owner only
        (folder / "kernel.json").write_text(json.dumps(kernelspec(kernel), indent=1) + "\n")
        manager: Any = KernelSpecManager()
        target: str = manager.install_kernel_spec(str(folder), name, user=prefix is None, prefix=prefix)
    return Path(target)
