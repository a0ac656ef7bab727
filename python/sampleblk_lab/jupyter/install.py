# SPDX-License-Identifier: MIT
"""Installs the kernelspecs "Python (sampleblk VM, 6.1)"."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from sampleblk_lab.errors import UnsupportedError
from sampleblk_lab.kernels import packages, resolve
from sampleblk_lab.paths import in_home


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
        InputError: `kernel` names none.
        UnsupportedError: jupyter_client is not installed.
    """
    try:
        from jupyter_client.kernelspec import KernelSpecManager
    except ImportError:
        raise UnsupportedError(
            "Jupyter kernels", "jupyter_client is not installed", "pip install 'sampleblk-lab[notebook]'"
        ) from None
    with contextlib.suppress(UnsupportedError):  # not in the cache: it is fetched at the first start
        resolve(kernel, download=False)
    packed = packages.is_meant(kernel)
    if packed or "/" in kernel:  # notebooks are elsewhere
        parts = kernel.split(packages.SEPARATOR) if packed else [kernel]
        kernel = packages.SEPARATOR.join(str(in_home(part).absolute()) for part in parts)
    # What Jupyter takes as a name, in which '/' and '-' are one, and of which it makes small letters.
    name = re.sub(r"[^\w.-]", "-", f"sampleblk-vm-{kernel}", flags=re.ASCII)
    if "/" in kernel:
        name += f"-{hashlib.sha256(os.fsencode(kernel)).hexdigest()[:8]}"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "kernel")
        folder.mkdir()  # its mode is installed too, and the scratch folder is for its owner only
        (folder / "kernel.json").write_text(json.dumps(kernelspec(kernel), indent=1) + "\n")
        manager: Any = KernelSpecManager()
        target: str = manager.install_kernel_spec(str(folder), name, user=prefix is None, prefix=prefix)
    return Path(target)
