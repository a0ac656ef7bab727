# SPDX-License-Identifier: MIT
"""What tests of sweeps have in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sampleblk_lab.sweeps import claim


@pytest.fixture(autouse=True, scope="session")
def _a_host_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Sweeps of this session do not wait for those of another one on the same machine."""
    path = tmp_path_factory.mktemp("host") / "lock"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(claim.VARIABLE, str(path))
        yield path
