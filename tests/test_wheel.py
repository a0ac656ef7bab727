# SPDX-License-Identifier: MIT
"""The package as a user gets it: a wheel, installed into an environment that has nothing else."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    build = f"--config-settings=build-dir={tmp_path_factory.mktemp('build')}"
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", build, "-w", str(target), str(CHECKOUT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [path] = target.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of a fresh environment with the wheel in it."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, with_pip=True)
    subprocess.run([home / "bin/pip", "install", "-q", str(wheel)], check=True)
    return home / "bin"


def run(command: list[str | Path], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_drivers_source_is_in_it(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(
        ["git", "-C", str(CHECKOUT), "ls-files", "--", "module"], capture_output=True, text=True, check=True
    ).stdout.split()
    for path in (Path(line).relative_to("module") for line in tracked):
        wanted = path.parts[0] != "tests" and not path.name.startswith(".")
        assert (f"sampleblk_lab/_module/{path}" in names) == wanted, path
    assert "sampleblk_lab/_module/Makefile" in names
    assert "sampleblk_lab/py.typed" in names


def test_it_runs_the_driver_in_a_vm(installed: Path, tmp_path: Path) -> None:
    """The module that the guest loads is built from the wheel's own copy of the source."""
    where = run(
        [installed / "python", "-c", "from sampleblk_lab.paths import module_source as m; print(m())"], tmp_path
    )
    assert where.strip().endswith("site-packages/sampleblk_lab/_module")
    code = "import sampleblk_lab as lab; d = lab.Device('32M'); print(open(d.path, 'rb').read(4) == bytes(4))"
    setup = "import subprocess; subprocess.run(['modprobe', 'sampleblk'], check=True); "
    assert run([installed / "sampleblk-python", "-c", setup + code], tmp_path) == "True\n"


def test_doctor_is_ready_in_it(installed: Path, tmp_path: Path) -> None:
    """Without the extras: what lacks is named with how to get it, and nothing that everything needs is missing."""
    text = run([installed / "sampleblk-lab", "doctor"], tmp_path)
    assert text.splitlines()[-1] == "ready: sampleblk-lab demo"
    assert "pip install 'sampleblk-lab[plot]'" in text
    assert "site-packages/sampleblk_lab/_module" in text


def test_plots_say_what_to_install(installed: Path, tmp_path: Path) -> None:
    code = (
        "import sampleblk_lab as lab\nfrom sampleblk_lab import plot\n"
        "made = plot.comparison(lab.compare([1.0] * 6, [2.0] * 6))\n"
        "try: made.figure()\nexcept lab.UnsupportedError as error: print(error)\n"
    )
    assert "pip install 'sampleblk-lab[plot]'" in run([installed / "python", "-c", code], tmp_path)


def test_the_sdist_has_all_that_a_build_reads(tmp_path: Path) -> None:
    code = f"import scikit_build_core.build as backend; print(backend.build_sdist({str(tmp_path)!r}))"
    run([sys.executable, "-c", code], CHECKOUT)
    [path] = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("CMakeLists.txt", "pyproject.toml", "README.md", "CHANGELOG.md", "module/main.c", "docs/conf.py"):
        assert name in names
    assert not any(name.startswith(("runs/", "build/", ".venv/", ".ci/")) for name in names)
