# SPDX-License-Identifier: MIT
"""The wheel on the hosts of a cluster: sent once a host, verified by its digest, installed by pip.

What runs there is sent by value and uses the standard library only: sampleblk-lab is what such a host may lack.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab import by_value
from sampleblk_lab.errors import InputError
from sampleblk_lab.sweeps.place import connected
from sampleblk_lab.table import Table

if TYPE_CHECKING:
    import os

_PREFIX = "sampleblk_lab-"

#: What a host may say.
THERE, INSTALLED, FAILED = "there", "installed", "failed"


async def _where() -> tuple[str, str, bool]:
    """The host, the environment of its interpreter, and whether this process has imported the package."""
    import importlib
    import os
    import sys

    importlib.invalidate_caches()
    return os.uname().nodename, sys.prefix, "sampleblk_lab" in sys.modules


async def _installed(name: str, digest: str, data: bytes | None) -> tuple[str, str, str]:
    """Installs the wheel in this environment, if its data is given and it is not installed.

    Returns:
        What became of it (empty: it is not installed), the version, and pip's last words where it failed.
    """
    import asyncio

    def work() -> tuple[str, str, str]:
        import fcntl
        import hashlib
        import importlib
        import importlib.metadata
        import json
        import pathlib
        import subprocess
        import sys
        import tempfile

        def version() -> str:
            """Of what is installed from this very file: pip notes its digest (PEP 610)."""
            importlib.invalidate_caches()
            try:
                there = importlib.metadata.distribution("sampleblk-lab")
                about = json.loads(there.read_text("direct_url.json") or "{}").get("archive_info", {})
            except (importlib.metadata.PackageNotFoundError, ValueError):
                return ""
            known = {about.get("hash", "").partition("=")[2], about.get("hashes", {}).get("sha256", "")}
            return there.version if digest in known else ""

        if found := version():
            return "there", found, ""
        if data is None:
            return "", "", ""
        if hashlib.sha256(data).hexdigest() != digest:
            return "failed", "", "what has arrived is not the wheel that was sent"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        with (
            tempfile.TemporaryDirectory() as folder,
            (pathlib.Path(sys.prefix) / ".sampleblk-lab.lock").open("w") as lock,
        ):
            fcntl.flock(lock, fcntl.LOCK_EX)
            wheel = pathlib.Path(folder) / name
            wheel.write_bytes(data)
            # Named with its digest, which pip before 23.1 would not note otherwise.
            place = f"{wheel.as_uri()}#sha256={digest}"
            # The second one where pip finds that version installed, from elsewhere.
            for words in ([f"sampleblk-lab[sweep] @ {place}"], ["--force-reinstall", "--no-deps", place]):
                if version():
                    break
                done = subprocess.run(
                    [*pip, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
                )
                if done.returncode:
                    return "failed", "", done.stderr.strip()[-1000:]
            return "installed", version(), ""

    try:
        return await asyncio.get_running_loop().run_in_executor(None, work)
    except OSError as error:
        return "failed", "", str(error)


def _checked(wheel: Path) -> bytes:
    data = wheel.read_bytes()
    if not (wheel.name.startswith(_PREFIX) and wheel.suffix == ".whl" and zipfile.is_zipfile(wheel)):
        raise InputError(f"{wheel} is not a wheel of sampleblk-lab", expected="what make wheel makes, dist/*.whl")
    return data


def install(client: Any, wheel: str | os.PathLike[str]) -> Table:
    """Installs a wheel of this package where a cluster's workers run, with the extra ``sweep``.

    It is sent once to each environment of each host, and not where it is installed already. Workers that had imported
    another one are started again.

    Args:
        client: A ``distributed.Client``, or the address of its scheduler.
        wheel: The file, as ``make wheel`` makes it.

    Returns:
        A row for each environment: host, environment, state (``"there"``, ``"installed"``, ``"failed"``), version,
        message.

    Raises:
        InputError: It is no wheel of this package, there is no such scheduler, or no worker.
        UnsupportedError: distributed is not installed here.
    """
    path = Path(wheel)
    data = _checked(path)
    with contextlib.ExitStack() as stack:
        if isinstance(client, str):
            client = stack.enter_context(connected(client))
        stack.enter_context(by_value.whole([sys.modules[__name__]]))
        return _install(client, path.name, data)


def _install(client: Any, name: str, data: bytes) -> Table:
    digest = hashlib.sha256(data).hexdigest()
    workers: dict[str, tuple[str, str, bool]] = client.run(_where)
    if not workers:
        raise InputError("the cluster has no worker", expected="one at least, as dask worker starts it")
    places: dict[tuple[str, str], list[str]] = {}
    for address, (host, environment, _) in sorted(workers.items()):
        places.setdefault((host, environment), []).append(address)
    first = [addresses[0] for addresses in places.values()]
    said: dict[str, tuple[str, str, str]] = client.run(_installed, name, digest, None, workers=first)
    lacking = [address for address in first if not said[address][0]]
    if lacking:
        said |= client.run(_installed, name, digest, data, workers=lacking)
    stale = [
        address
        for addresses in places.values()
        if said[addresses[0]][0] == INSTALLED
        for address in addresses
        if workers[address][2]
    ]
    if stale:
        client.restart_workers(stale)
    client.run(_where)  # what was imported by none is found from now on
    rows = [(*place, *said[addresses[0]]) for place, addresses in places.items()]
    names = ("host", "environment", "state", "version", "message")
    return Table.of({name: [row[number] for row in rows] for number, name in enumerate(names)})
