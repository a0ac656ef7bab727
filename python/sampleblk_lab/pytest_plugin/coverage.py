# SPDX-License-Identifier: MIT
"""pytest-cov's measurement in guests: data files of their own, which its combination finds beside the session's."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampleblk_lab.pytest_plugin import internals

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


def _controller(config: pytest.Config) -> Any:
    return getattr(config.pluginmanager.get_plugin("_cov"), "cov_controller", None)


def is_measured(config: pytest.Config) -> bool:
    """Whether this session measures."""
    return _controller(config) is not None


def arguments(config: pytest.Config, scratch: Path) -> dict[str, Any] | None:
    """What a guest gives coverage.Coverage; None when this session does not measure."""
    controller = _controller(config)
    if controller is None:
        return None
    folder = tempfile.mkdtemp(prefix="coverage-", dir=scratch)
    return {
        "source": controller.cov_source,
        "branch": controller.cov_branch,
        "config_file": controller.cov_config,
        "data_file": str(Path(folder) / "data"),
    }


def collect(config: pytest.Config, given: dict[str, Any] | None) -> bool:
    """Moves what a guest measured to where pytest-cov combines; returns whether there was any."""
    controller = _controller(config)
    if controller is None or given is None:
        return False
    target = Path(controller.topdir, controller.cov.get_option("run:data_file"))
    folder = Path(given["data_file"]).parent
    found = sorted(folder.iterdir())
    for number, path in enumerate(found):
        shutil.move(path, target.with_name(f"{target.name}.vm.{os.getpid()}.{folder.name}.{number}"))
    folder.rmdir()
    return bool(found)


@contextlib.contextmanager
def measured(given: dict[str, Any]) -> Iterator[None]:
    """In the guest: measures what runs meanwhile."""
    from coverage import Coverage

    coverage = Coverage(**given)
    internals.quiet(coverage)  # a guest may run nothing of the project
    coverage.start()
    try:
        yield
    finally:
        coverage.stop()
        coverage.save()
