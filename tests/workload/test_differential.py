# SPDX-License-Identifier: MIT
"""Random job files by our engines and by fio: the same I/Os, bytes, places, errors and files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import differential
import pytest
from beside_fio import FIO_VERSION, needs_fio

CASES = 200
PER_TEST = 20


# Of the first 12,000, those in which a fault was found, or that are why a reason is as it is.
KNOWN = (760, 961, 963, 967, 998, 1997, 2849, 2925, 2976, 5389, 5605, 5909, 8050)
# Of them, those that newer releases of fio (3.39) do otherwise.
OLDER = (961,)


@needs_fio
@pytest.mark.parametrize("number", KNOWN)
def test_job_files_that_found_faults_do_what_fios_do(number: int, tmp_path: Path) -> None:
    if number in OLDER and FIO_VERSION != "fio-3.33":
        pytest.skip(f"held against fio 3.33, which does this otherwise than {FIO_VERSION}")
    compare([number], tmp_path)


@needs_fio
@pytest.mark.full
@pytest.mark.parametrize("first", range(0, CASES, PER_TEST))
def test_random_job_files_do_what_fios_do(first: int, tmp_path: Path) -> None:
    compare(range(first, first + PER_TEST), tmp_path)


def compare(numbers: Iterable[int], tmp_path: Path) -> None:
    found = []
    for number in numbers:
        case = differential.case_of(number)
        place = tmp_path / str(number)
        place.mkdir()
        mine, theirs = differential.run_both(case, place)
        found += [f"{number}: {line}" for line in differential.judge(case, mine, theirs).differences]
    assert not found, "\n".join(found)
