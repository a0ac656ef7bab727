# SPDX-License-Identifier: MIT
"""Suites in miniature: the layout of xfstests and of blktests, with tests that end in each way."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sampleblk_lab import UnsupportedError
from sampleblk_lab.suites import packages
from sampleblk_lab.sweeps import claim, processes

# What xfstests' check does of one test, as far as a runner sees it: its arguments, its environment, what it leaves.
_CHECK = """\
#!/bin/bash
test=$1 base=$RESULT_BASE
[ -b "$TEST_DEV" ] && [ -b "$SCRATCH_DEV" ] && [ -b "$LOGWRITES_DEV" ] || { echo "no devices"; exit 1; }
mkdir -p $base/${test%/*}
mount -t $FSTYP $TEST_DEV $TEST_DIR || exit 1
printf '%s ' $test
export seqres=$base/$test
bash ./tests/$test > /tmp/out 2>&1
status=$?
{
    echo; echo "Ran: $test"
    if [ -f $seqres.notrun ]; then
        echo "Not run: $test"; echo "Passed all 1 tests"
    elif [ $status -eq 0 ] && cmp -s /tmp/out tests/$test.out; then
        echo "Passed all 1 tests"; echo "$test 1" > $base/check.time
    else
        cp /tmp/out $seqres.out.bad
        echo "Failures: $test"; echo "Failed 1 of 1 tests"
    fi
} >> $base/check.log
[ -f $seqres.out.bad ] && echo "- output mismatch (see $seqres.out.bad)"
cat $base/check.log
"""

_TESTS = {
    "001": (
        '[ -z "$USE_EXTERNAL$SCRATCH_LOGDEV" ] && id -u fsgqa > /dev/null && dmsetup --version > /dev/null &&'
        ' [ "$DM_DISABLE_UDEV" = 1 ] &&'
        ' [ "${SCRATCH_DEV/$(hostname)/}" = $SCRATCH_DEV ] &&'
        " [ ! -e /tmp/was-here ] && touch /tmp/was-here && su fsgqa -c './src/program' && echo $FSTYP > $TEST_DIR/f &&"
        " cat $TEST_DIR/f",
        "ready\next4\n",
    ),
    "002": ("echo wrong", "right\n"),
    "003": ('echo "nothing  for\nthis test" > $seqres.notrun', ""),
    "004": ("echo c > /proc/sysrq-trigger; sleep 100", ""),
    "006": ("losetup --version > /dev/null; udevadm control --ping && echo ${DM_DISABLE_UDEV:-unset}", "unset\n"),
    "007": (
        '_require_logdev\n[ -b $SCRATCH_LOGDEV ] && [ $USE_EXTERNAL = yes ] && [ -z "$SCRATCH_RTDEV" ] &&'
        " echo $TEST_DEV $SCRATCH_DEV $LOGWRITES_DEV $SCRATCH_LOGDEV | tr ' ' '\\n' | sort -u | wc -l",
        "4\n",
    ),
    "005": ("fsfreeze -f $TEST_DIR; touch $TEST_DIR/never", ""),
}


@pytest.fixture(autouse=True, scope="session")
def _a_host_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests of this session do not wait for those of another one on the same machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(claim.VARIABLE, str(tmp_path_factory.mktemp("host") / "lock"))
        yield
    processes.close()


@pytest.fixture
def suite_packages() -> None:
    """Skips where a run would refuse to begin for want of packages; `make test` installs them."""
    try:
        packages.check("xfstests")
    except UnsupportedError as error:
        pytest.skip(str(error))


@pytest.fixture
def miniature(tmp_path: Path) -> Path:
    """A checkout, of git's, with the layout of xfstests."""
    folder = tmp_path / "checkout"
    for name in ("common", "tests/generic", "src"):
        (folder / name).mkdir(parents=True)
    (folder / "check").write_text(_CHECK)
    (folder / "check").chmod(0o755)
    (folder / "common/rc").write_text("_require_test() { :; }\n_require_logdev() { :; }\n")
    (folder / "common/config").write_text('export NONE_PROG="$(type -P no-such-program)"\n')
    (folder / "src/program.in").write_text("#!/bin/sh\necho ready\n")
    for name, (text, expected) in _TESTS.items():
        (folder / f"tests/generic/{name}").write_text(f". ./common/rc\n_require_test\n{text}\n")
        (folder / f"tests/generic/{name}.out").write_text(expected)
    groups = "\\n".join(f"{name} auto{' dangerous' if name in ('004', '005') else ' quick'}" for name in _TESTS)
    (folder / "Makefile").write_text(
        "default: src/program tests/generic/group.list\n"
        "src/program: src/program.in\n\tcp $< $@ && chmod 755 $@\n"
        f"tests/generic/group.list:\n\tprintf '{groups}\\n' > $@\n"
    )
    (folder / ".gitignore").write_text("src/program\ngroup.list\nignored\n")
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "all"], check=True)
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
